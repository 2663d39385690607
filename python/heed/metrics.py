"""Scores of translations, as sacreBLEU 2.6.0 gives them to the last digit, and AER.

>>> import heed.metrics
>>> print(heed.metrics.bleu(["the cat sat on the mat ."], [["the cat sat on a mat ."]]))
BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = 48.89 85.7/66.7/40.0/25.0 (BP = 1.000 ratio = 1.000 hyp_len = 7 ref_len = 7)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable

from . import _core
from .loading import checked, want_iterable, want_string


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
    hypotheses: Iterable[str],
    references: Iterable[str] | Iterable[Iterable[str]],
    bootstrap: int,
    options: dict[str, Any],
) -> Score:
    want_iterable(f"{metric}: hypotheses", hypotheses)
    want_iterable(f"{metric}: references", references)
    given: list[Any] = list(references)
    lists = [given] if given and isinstance(given[0], (str, bytes)) else given
    for one in lists:
        want_iterable(f"{metric}: references", one)
    score, text, signature, lines, confidence = _core.measure(
        metric,
        [want_string(f"{metric}: hypotheses", line) for line in hypotheses],
        [[want_string(f"{metric}: references", line) for line in one] for one in lists],
        checked(metric, dict(bootstrap=bootstrap))["bootstrap"],
        checked(metric, options),
    )
    return Score(score, signature, lines, confidence, text)


def bleu(
    hypotheses: Iterable[str],
    references: Iterable[str] | Iterable[Iterable[str]],
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
    hypotheses: Iterable[str],
    references: Iterable[str] | Iterable[Iterable[str]],
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
    hypotheses: Iterable[str],
    references: Iterable[str] | Iterable[Iterable[str]],
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


def aer(hypotheses: Iterable[str], gold: Iterable[str]) -> Score:
    """Alignment error rate of links in Pharaoh's form; gold links that are merely possible have a
    "p" instead of the hyphen.

    >>> heed.metrics.aer(["0-0 1-1"], ["0-0 1p1"]).score
    0.0
    """
    return _measured("aer", hypotheses, gold, 0, {})
