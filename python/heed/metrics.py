"""Scores of translations, as sacreBLEU 2.6.0 gives them to the last digit, and AER.

>>> import heed.metrics
>>> print(heed.metrics.bleu(["the cat sat on the mat ."], [["the cat sat on a mat ."]]))
BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = 48.89 85.7/66.7/40.0/25.0 (BP = 1.000 ratio = 1.000 hyp_len = 7 ref_len = 7)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

from . import _core


@dataclass(frozen=True)
class Score:
    """A corpus' score; `str()` is the line that sacreBLEU prints."""

    score: float
    signature: str
    lines: list[float]
    """the score of each line by itself"""
    confidence: tuple[float, float] | None
    """with bootstrap: the mean of the samples, and half the width of the 95 % interval"""
    _text: str

    def __str__(self) -> str:
        return self._text

    def __float__(self) -> float:
        return self.score


def _measured(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    bootstrap: int,
    options: dict[str, Any],
) -> Score:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError(f"{metric}: wants lists of lines, given a string")
    lists: Any = references
    if references and isinstance(references[0], str):
        lists = [references]
    score, text, signature, lines, confidence = _core.measure(
        metric, list(hypotheses), [list(r) for r in lists], bootstrap, options
    )
    return Score(score, signature, lines, confidence, text)


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
    smooth: str = "exp",
    smooth_value: float | None = None,
    effective_order: bool = False,
    bootstrap: int = 0,
) -> Score:
    """BLEU. `references`: one list of lines, or one list for each reference, as sacreBLEU has it.

    >>> heed.metrics.bleu(["a b c d e"], ["a b c d e"]).score
    100.00000000000004
    """
    return _measured(
        "bleu", hypotheses, references, bootstrap,
        dict(tokenize=tokenize, lowercase=lowercase, smooth=smooth, smooth_value=smooth_value,
             effective_order=effective_order),
    )


def chrf(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    *,
    char_order: int = 6,
    word_order: int = 0,
    beta: int = 2,
    lowercase: bool = False,
    whitespace: bool = False,
    eps_smoothing: bool = False,
    bootstrap: int = 0,
) -> Score:
    """chrF; with word_order=2 chrF++."""
    return _measured(
        "chrf", hypotheses, references, bootstrap,
        dict(char_order=char_order, word_order=word_order, beta=beta, lowercase=lowercase,
             whitespace=whitespace, eps_smoothing=eps_smoothing),
    )


def ter(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    *,
    normalized: bool = False,
    no_punctuation: bool = False,
    asian_support: bool = False,
    case_sensitive: bool = False,
    bootstrap: int = 0,
) -> Score:
    """TER: edits for each word of the references, in percent; less is better."""
    return _measured(
        "ter", hypotheses, references, bootstrap,
        dict(normalized=normalized, no_punctuation=no_punctuation, asian_support=asian_support,
             case_sensitive=case_sensitive),
    )


def aer(hypotheses: Sequence[str], gold: Sequence[str]) -> Score:
    """Alignment error rate of links in Pharaoh's form; gold links that are merely possible have a
    "p" instead of the hyphen.

    >>> heed.metrics.aer(["0-0 1-1"], ["0-0 1p1"]).score
    0.0
    """
    return _measured("aer", hypotheses, gold, 0, {})
