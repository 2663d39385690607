"""Translates lines, says which words belong together, and draws what was attended to.

    python3 examples/python/translate_and_look.py --model m < text.en
"""

import argparse
import sys
from typing import Iterable

import heed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a folder that 'heed train' made")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two sentences of our own")
    given = parser.parse_args()

    translator = heed.Translator(given.model)
    lines: Iterable[str] = sys.stdin
    if given.quick:
        lines = ["the black cat sleeps .", "the dog sees me ."]
    first = None
    for result in translator.translate(iter(lines), beam=given.beam, alignment=True, tree=True):
        print(result.text)
        print("   ", ", ".join(f"{s} - {t}" for s, t in result.alignment.words))
        first = first or result
    if first is None:
        return
    print(first.draw())
    first.save("attention.html")  # every layer and head, to click on
    first.tree.save("beam.svg")
    print("attention.html and beam.svg show the first line")


if __name__ == "__main__":
    main()
