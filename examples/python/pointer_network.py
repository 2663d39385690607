"""A pointer network (Vinyals et al., 2015): sorts numbers by pointing at them.

The weights of an additive attention over the input are the output: which number comes next.
"""

import argparse

import torch
from torch import Tensor, nn

import heed.torch


class Pointer(nn.Module):
    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.encoder = nn.LSTM(1, size, batch_first=True)
        self.decoder = nn.LSTM(1, size, batch_first=True)
        self.attention = heed.torch.AdditiveAttention(query=size)

    def forward(self, numbers: Tensor, order: Tensor) -> Tensor:
        """Weights [B, T, T]: row t says where the t-th smallest of `numbers` [B, T] is."""
        memory, state = self.encoder(numbers[..., None])
        before = torch.gather(numbers, 1, order).roll(1, 1)  # what was pointed at last
        before[:, 0] = 0
        states, _ = self.decoder(before[..., None], state)
        _, weights = self.attention(states, memory, weights=True)
        assert isinstance(weights, Tensor)
        return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few steps")
    steps = 20 if parser.parse_args().quick else 1500
    torch.manual_seed(1)
    model = Pointer()
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        numbers = torch.rand(128, 6)
        order = numbers.argsort(1)
        weights = model(numbers, order)
        loss = -weights.gather(2, order[..., None]).clamp(min=1e-9).log().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % max(1, steps // 5) == 0:
            right = (weights.argmax(2) == order).float().mean().item()
            print(f"step {step}: loss {loss.item():.3f}, {right:.1%} of the places are right")


if __name__ == "__main__":
    main()
