"""Additive attention inside a PyTorch model: heed's fused op beside the same formula in torch.

Prints the time of a step with gradients, and what each holds for the backward pass at its peak.
"""

import argparse
import time
from typing import Callable

import torch
from torch import Tensor

import heed.torch

Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def composed(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    hidden = torch.tanh(q[..., :, None, :] + k[..., None, :, :])  # B x Tq x Tk x n
    return (hidden @ w[0]).softmax(-1) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    read = heed.torch.attend(q, k, v, "additive", params={"v": w})
    assert isinstance(read, Tensor)
    return read


def seconds(attention: Attention, inputs: list[Tensor], times: int) -> float:
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        torch.autograd.backward(attention(*inputs).sum())
        if inputs[0].is_cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda where heed was built with it")
    given = parser.parse_args()
    batch, length, size = (2, 32, 16) if given.quick else (4, 256, 128)
    torch.manual_seed(1)
    shapes = [(batch, length, size)] * 3 + [(1, size)]
    inputs = [torch.randn(*s, device=given.device, requires_grad=True) for s in shapes]
    times = 2 if given.quick else 5
    ours, theirs = seconds(fused, inputs, times), seconds(composed, inputs, times)
    torch.testing.assert_close(fused(*inputs), composed(*inputs), rtol=1e-4, atol=1e-5)
    held = batch * length * length * size * 4 / 2**20
    print(f"{batch} x {length} x {length} x {size}, with gradients, {given.device}:")
    print(f"  heed     {ours * 1e3:9.2f} ms, nothing of size {length} x {length}")
    print(f"  composed {theirs * 1e3:9.2f} ms, {held:.0f} MiB for tanh alone")
    print(f"  ratio    {theirs / ours:9.1f}")


if __name__ == "__main__":
    main()
