"""Language models, and vectors for words in their sentence."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from typing import Iterable, Iterator, Sequence, overload

import numpy as np
import numpy.typing as npt

from . import _core
from .loading import Opened, checked, want_iterable, want_line, want_string

_CHUNK = 256  # lines that are embedded at a time


@dataclass(frozen=True)
class TextScore:
    """How probable a text is. Nats; in a model of lines the end of a line counts as a piece."""

    log_probability: float
    pieces: int
    words: int
    characters: int
    unknown: int
    """of the pieces: those that the model does not know"""
    perplexity_by_piece: float
    perplexity_by_word: float


@dataclass(frozen=True)
class Generated:
    """A text that begins with the prompt, and the log-probability of what follows it."""

    text: str
    log_probability: float

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class ReadText:
    """A text as a language model reads it, piece by piece."""

    read: list[str]
    """the pieces it was given, from the beginning on"""
    predicted: list[str]
    """those it was to predict"""
    log_probability: npt.NDArray[np.float64]
    """of each of `predicted`"""
    attention: list[npt.NDArray[np.float32]]
    """by layer: [head, predicted, read]; views, without copies"""


def _scored(core: _core.TextScore) -> TextScore:
    return TextScore(
        core.log_probability, core.pieces, core.words, core.characters, core.unknown,
        core.perplexity_by_piece, core.perplexity_by_word,
    )


class LanguageModel(Opened[_core.LanguageModel]):
    """A trained language model, as `heed lm train` makes it; safe to use from many threads.

    >>> lm = heed.LanguageModel(language_model)
    >>> lm.score("the cat sleeps .").perplexity_by_piece < 1000
    True
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        device: str = "auto",
        compute: str = "auto",
        threads: int = 0,
    ) -> None:
        super().__init__(_core.LanguageModel, path, device, compute, threads)

    @property
    def of_lines(self) -> bool:
        """Whether each line is a text of its own, which ends."""
        return self._core.of_lines

    @property
    def context(self) -> int:
        """Pieces that it reads at once."""
        return self._core.context

    @overload
    def score(  # type: ignore[overload-overlap]
        self, text: str, *, stride: int = ...
    ) -> TextScore: ...
    @overload
    def score(self, text: Sequence[str], *, stride: int = ...) -> list[TextScore]: ...
    def score(self, text: str | Sequence[str], *, stride: int = 0) -> TextScore | list[TextScore]:
        """Of a text; of a list of lines one for each, for a model of lines.

        `stride`: how many pieces of a stream each window adds; 0: half the context.
        """
        checked("score", dict(stride=stride))
        if isinstance(text, str):
            return _scored(self._core.score(want_string("score", text), stride))
        want_iterable("score", text)
        return [_scored(s) for s in self._core.score_lines([want_line("score", t) for t in text])]

    def read(self, text: str, *, attention: bool = True) -> ReadText:
        """A text that fits into the context, piece by piece."""
        return ReadText(*self._core.read(want_string("read", text), attention))

    def generate(
        self,
        prompt: str = "",
        *,
        length: int = 256,
        count: int = 1,
        beam: int = 1,
        sample: bool = True,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
    ) -> list[Generated]:
        """Texts that begin with the prompt: drawn or, with sample=False, searched with a beam.

        >>> lm.generate("the cat", length=5, seed=3)[0].text.startswith("the cat")
        True
        """
        options = checked(
            "generate",
            dict(
                length=length, count=count, beam=beam, sample=sample, temperature=temperature,
                top_k=top_k, top_p=top_p, seed=seed,
            ),
        )
        found = self._core.generate(want_string("generate", prompt), **options)
        return [Generated(text, log_probability) for text, log_probability in found]


@dataclass(frozen=True)
class WordVectors:
    """The words of a line, what stands between white space, and a vector for each."""

    words: list[str]
    vectors: npt.NDArray[np.float32]
    """[words, size]; a view, without a copy"""


class Embedder(Opened[_core.Embedder]):
    """Vectors for words in their sentence: of a bidirectional language model or of a translator's
    encoder.

    >>> embedder = heed.Embedder(model)
    >>> embedder.embed("the cat sleeps .").vectors.shape[0]
    4
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        device: str = "auto",
        compute: str = "auto",
        threads: int = 0,
    ) -> None:
        super().__init__(_core.Embedder, path, device, compute, threads)

    @property
    def layers(self) -> int:
        """Layers above the static table, which is layer 0."""
        return self._core.layers

    @overload
    def embed(  # type: ignore[overload-overlap]
        self, lines: str, *, layer: int | str | None = ...
    ) -> WordVectors: ...
    @overload
    def embed(  # type: ignore[overload-overlap]
        self, lines: list[str] | tuple[str, ...], *, layer: int | str | None = ...
    ) -> list[WordVectors]: ...
    @overload
    def embed(
        self, lines: Iterable[str], *, layer: int | str | None = ...
    ) -> Iterator[WordVectors]: ...
    def embed(
        self, lines: str | Iterable[str], *, layer: int | str | None = None
    ) -> WordVectors | list[WordVectors] | Iterator[WordVectors]:
        """A string gives one, a list a list, any other iterable an iterator, in order.

        `layer`: a number, "mix", or None: the mix where one is learned, else the last.
        """
        which = "" if layer is None else str(layer)
        if isinstance(lines, str):
            return next(self._vectors(iter([lines]), which))
        want_iterable("embed", lines)
        out = self._vectors(iter(lines), which)
        return list(out) if isinstance(lines, (list, tuple)) else out

    def _vectors(self, lines: Iterator[str], layer: str) -> Iterator[WordVectors]:
        while now := [want_line("embed", line) for line in islice(lines, _CHUNK)]:
            for words, vectors in self._core.embed(now, layer):
                yield WordVectors(words, vectors)
