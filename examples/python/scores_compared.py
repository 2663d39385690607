"""All scores of the lectures on one task: find the key that a query belongs to.

A query is its key seen through a fixed rotation, with noise; the value is a class. Scores that learn
how a query and a key belong together find it; those without parameters, or by position, cannot.
"""

import argparse
from typing import Any

import torch

import heed
import heed.torch


def task(batch: int, keys: int, size: int, turn: torch.Tensor) -> tuple[Any, Any, Any, Any]:
    k = torch.randn(batch, keys, size)
    which = torch.randint(keys, (batch,))
    q = k[torch.arange(batch), which] @ turn + 0.1 * torch.randn(batch, size)
    v = torch.nn.functional.one_hot(torch.randint(8, (batch, keys)), 8).float()
    return q[:, None], k, v, v[torch.arange(batch), which]


def accuracy(score: str, steps: int, size: int = 16, keys: int = 8) -> float:
    torch.manual_seed(1)
    turn = torch.linalg.qr(torch.randn(size, size)).Q
    own = heed.torch.ScoreParameters(score, query=size, key=size, positions=keys, size=64)
    learnt = list(own.parameters())
    adam = torch.optim.Adam(learnt, lr=0.02) if learnt else None
    right = 0.0
    for step in range(steps + 1):
        q, k, v, wanted = task(512, keys, size, turn)
        read = heed.torch.attend(q, k, v, score, params=own())[:, 0]
        right = (read.argmax(-1) == wanted.argmax(-1)).float().mean().item()
        if adam is None or step == steps:
            break
        loss = -(read * wanted).sum(-1).clamp(min=1e-6).log().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few steps each")
    steps = 10 if parser.parse_args().quick else 300
    for score, formula in heed.scores().items():
        print(f"{score:>12}  {accuracy(score, steps):6.1%}  {formula}")


if __name__ == "__main__":
    main()
