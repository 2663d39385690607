"""The operator on NumPy arrays: score, mask, weigh, read, each by its name."""

import argparse

import numpy as np

import heed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the same: it is quick")
    parser.parse_args()

    words = "the cat that the dogs saw sleeps".split()
    random = np.random.default_rng(7)
    table = random.normal(size=(len(words), 16)).astype(np.float32)

    # Each word reads those up to itself; nothing of size T x T is held unless it is asked for.
    context, weights = heed.attend(table, table, table, mask="causal", weights=True)
    print("causal:", context.shape)
    for word, row in zip(words, weights):
        print(f"{word:>8}", " ".join(f"{w:4.2f}" if w > 0 else "   ." for w in row))

    # Two sentences of different length, grouped heads, another score, sparse weights.
    q = random.normal(size=(2, 4, 5, 16))
    k = random.normal(size=(2, 2, 7, 16))
    params = heed.score_parameters(
        "additive", query=16, heads=4, key_heads=2, size=32, dtype=np.float64
    )
    _, sparse = heed.attend(
        q, k, k, "additive", params=params, mask=heed.Mask.padding([7, 4]), weigh="sparsemax",
        weights=True,
    )
    print(f"sparsemax: {(sparse == 0).mean():.0%} of the weights are exactly 0")


if __name__ == "__main__":
    main()
