"""A trained translator, and what it gives."""

from __future__ import annotations

import json
import os
import re
from itertools import islice, repeat
from typing import Any, Iterable, Iterator, Literal, Sequence, overload

import numpy as np
import numpy.typing as npt

from . import _core
from .loading import Opened, checked, want_iterable, want_line, want_string
from .pictures import in_frame, write_picture

Span = tuple[int, int]
Extract = Literal["best", "threshold", "path"]

# Lines that are translated at a time, and no fewer than 32 batches: after the last of them slots
# run empty.
_CHUNK = 2000
_WORD = re.compile(r"[^ \t-\r]+")


def _word_spans(text: str) -> list[Span]:
    return [match.span() for match in _WORD.finditer(text)]


class Alignment(Sequence[tuple[int, int]]):
    """Which words belong together: pairs (source word, target word), counted from 0.

    Words are what stands between white space. `spans` has the same pairs as ranges of characters of
    the two texts, and `str()` is Pharaoh's form, "0-0 1-2".
    """

    __slots__ = ("_links", "_source", "_target")

    def __init__(self, links: Sequence[tuple[int, int]], source: str, target: str) -> None:
        self._links = [(int(s), int(t)) for s, t in links]
        self._source = source
        self._target = target

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, int]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, int] | Sequence[tuple[int, int]]:
        return self._links[index]

    def __len__(self) -> int:
        return len(self._links)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Alignment):
            return self._links == other._links
        return self._links == other

    __hash__ = None  # type: ignore[assignment]

    @property
    def spans(self) -> list[tuple[Span, Span]]:
        """The pairs as ranges of characters: ((begin, end) of the source, (begin, end) of the
        target), for `text[begin:end]`."""
        source, target = _word_spans(self._source), _word_spans(self._target)
        return [(source[s], target[t]) for s, t in self._links]

    @property
    def words(self) -> list[tuple[str, str]]:
        """The pairs as words."""
        return [(self._source[a:b], self._target[c:d]) for (a, b), (c, d) in self.spans]

    def __str__(self) -> str:
        return " ".join(f"{s}-{t}" for s, t in self._links)

    def __repr__(self) -> str:
        return f"Alignment({self._links!r})"


class SearchTree:
    """A beam search as a tree: every piece that was kept at some step, with those that followed.

    `nodes` are (piece, parent, log-probability, ends here, on the best way). Shows itself in a
    notebook; `save("tree.svg")` writes it.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.SearchTree) -> None:
        self._core = core

    @property
    def nodes(self) -> list[tuple[str, int, float, bool, bool]]:
        return self._core.nodes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the tree as .svg."""
        write_picture(path, {"svg": self._core.svg})

    def _repr_svg_(self) -> str:
        return self._core.svg()

    def __str__(self) -> str:
        return self._core.text(0)


class Hypothesis:
    """One translation of a line."""

    __slots__ = ("_core", "_i")

    def __init__(self, core: _core.Result, i: int) -> None:
        self._core = core
        self._i = i

    @property
    def text(self) -> str:
        return self._core.text(self._i)

    @property
    def pieces(self) -> list[str]:
        """What the model wrote, piece by piece; "▁" is a space."""
        return self._core.pieces(self._i)

    @property
    def score(self) -> float:
        """What hypotheses are ranked by: the log-probability, normalized by length."""
        return self._core.score(self._i)

    @property
    def log_probability(self) -> float:
        """Of all pieces and the end, in nats."""
        return self._core.log_probability(self._i)

    @property
    def alignment(self) -> Alignment:
        """Which words belong together. Where translate() was not called with alignment=True, the
        model reads both sides once more for it."""
        return Alignment(self._core.links(self._i), self._core.source, self.text)

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """What `alignment` is made of: [target pieces + end, source pieces + end], of one head or
        the mean of all. A view: no copy is made."""
        return self._core.weights(self._i)

    @property
    def attention(self) -> npt.NDArray[np.float32]:
        """The weights of every head of the decoder: [layer, head, target pieces + end, source
        pieces + end]. A view: every time the same memory, without a copy. Computed when it is first
        looked at."""
        return self._core.attention(self._i)

    def save(self, path: str | os.PathLike[str], *, words: bool = False) -> None:
        """Writes what it attended to: .html is a page with all layers and heads, .svg and .png are
        the heat map of `weights`. words=True joins pieces to words."""
        i = self._i
        write_picture(
            path,
            {
                "html": lambda: self._core.page(i, words),
                "svg": lambda: self._core.svg(i, words),
                "png": lambda: self._core.png(i, words),
            },
        )

    def draw(self, *, words: bool = False, width: int = 0) -> str:
        """The heat map of `weights` in block characters, for a terminal."""
        return self._core.drawn(self._i, words, width)

    def _repr_html_(self) -> str:
        return in_frame(self._core.page(self._i, False))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r}, score={self.score:.4f})"

    def __str__(self) -> str:
        return self.text


class Result(Hypothesis):
    """A line's translations: itself the best one, `hypotheses` all of them, best first.

    In a notebook it shows itself as the page of `heed view`.
    """

    __slots__ = ()

    def __init__(self, core: _core.Result) -> None:
        super().__init__(core, 0)

    @property
    def source(self) -> str:
        return self._core.source

    @property
    def source_pieces(self) -> list[str]:
        return self._core.source_pieces

    @property
    def hypotheses(self) -> list[Hypothesis]:
        return [Hypothesis(self._core, i) for i in range(self._core.count)]

    @property
    def cut(self) -> bool:
        """Whether the source was longer than max_length, and its rest left out."""
        return self._core.cut

    @property
    def tree(self) -> SearchTree:
        """The search as a tree, where translate() was called with tree=True."""
        return SearchTree(self._core.tree())


class TranslatedText:
    """A whole text, translated: `text`, further `alternatives`, and the `parts` it was cut into."""

    __slots__ = ("text", "alternatives", "parts")

    def __init__(self, core: _core.TranslatedText, source: str) -> None:
        self.text: str = core.text
        self.alternatives: list[str] = core.alternatives
        given, made = source.encode(), core.text.encode()

        def characters(text: bytes, begin: int, end: int) -> Span:
            first = len(text[:begin].decode(errors="replace"))
            return first, first + len(text[begin:end].decode(errors="replace"))

        self.parts: list[tuple[Span, Span, float]] = [
            (characters(given, a, b), characters(made, c, d), score)
            for a, b, c, d, score in core.parts
        ]
        """(range of the source's characters, range of `text`'s, score)"""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"TranslatedText({self.text!r})"


class Translator(Opened[_core.Translator]):
    """A trained translator, loaded once; safe to use from any number of threads at once.

    `path` is a folder that `heed train` (or `heed.train`) made. `device`: "cpu", "cuda", "cuda:1",
    or "auto", a GPU where this build and this machine have one. `compute`: "f32", "bf16" or "int8"
    (on a CPU), or "auto", as the folder has it. `threads`: 0 takes all cores. `shortlist`: which
    pieces translations may have, a file or "none", all of them; by default as `heed shortlist` made
    it.

    >>> translator = heed.Translator(model)
    >>> translator.translate("the cat sleeps .").text
    'le chat dort .'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        device: str = "auto",
        compute: str = "auto",
        threads: int = 0,
        shortlist: str | os.PathLike[str] | None = None,
    ) -> None:
        pieces = os.fspath(shortlist) if shortlist is not None else ""
        if not isinstance(pieces, str):
            raise TypeError(f"shortlist wants a path or 'none', given {type(shortlist).__name__}")
        super().__init__(_core.Translator, path, device, compute, threads, pieces)

    @property
    def device(self) -> str:
        """Where it computes: "cpu" or "cuda"."""
        return self._core.device

    @property
    def has_attention(self) -> bool:
        """Whether translations have alignments and weights."""
        return self._core.attends

    @property
    def search_defaults(self) -> dict[str, Any]:
        """How the model's makers search with it: "search" of an imported folder's config.json.
        Empty for heed's own."""
        found: dict[str, Any] = json.loads(self._core.search)
        return found

    def __repr__(self) -> str:
        return f"Translator({self._given[0]!r}, device={self.device!r})"

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, lines: str, *, beam: int | None = ..., best: int = ..., prefix: str | None = ...,
        alignment: bool = ..., tree: bool = ..., patience: float | None = ..., normalize: float | None = ...,
        coverage: float = ..., min_length: int | None = ..., max_ratio: float | None = ..., no_repeat: int | None = ...,
        replace_unk: bool = ..., sample: bool = ..., temperature: float = ..., top_k: int = ...,
        top_p: float = ..., seed: int = ..., layer: int | None = ..., head: int | None = ...,
        shift: int = ..., extract: Extract = ..., threshold: float | None = ..., max_length: int = ...,
        batch: int | None = ..., batch_tokens: int = ..., chunk: int | None = ...,
    ) -> Result: ...
    @overload
    def translate(  # type: ignore[overload-overlap]
        self, lines: list[str] | tuple[str, ...], *, beam: int | None = ..., best: int = ...,
        prefix: str | Iterable[str] | None = ..., alignment: bool = ..., tree: bool = ...,
        patience: float | None = ..., normalize: float | None = ..., coverage: float = ..., min_length: int | None = ...,
        max_ratio: float | None = ..., no_repeat: int | None = ..., replace_unk: bool = ..., sample: bool = ...,
        temperature: float = ..., top_k: int = ..., top_p: float = ..., seed: int = ...,
        layer: int | None = ..., head: int | None = ..., shift: int = ..., extract: Extract = ...,
        threshold: float | None = ..., max_length: int = ..., batch: int | None = ...,
        batch_tokens: int = ..., chunk: int | None = ...,
    ) -> list[Result]: ...
    @overload
    def translate(
        self, lines: Iterable[str], *, beam: int | None = ..., best: int = ...,
        prefix: str | Iterable[str] | None = ..., alignment: bool = ..., tree: bool = ...,
        patience: float | None = ..., normalize: float | None = ..., coverage: float = ..., min_length: int | None = ...,
        max_ratio: float | None = ..., no_repeat: int | None = ..., replace_unk: bool = ..., sample: bool = ...,
        temperature: float = ..., top_k: int = ..., top_p: float = ..., seed: int = ...,
        layer: int | None = ..., head: int | None = ..., shift: int = ..., extract: Extract = ...,
        threshold: float | None = ..., max_length: int = ..., batch: int | None = ...,
        batch_tokens: int = ..., chunk: int | None = ...,
    ) -> Iterator[Result]: ...
    def translate(
        self,
        lines: str | Iterable[str],
        *,
        beam: int | None = None,
        best: int = 1,
        prefix: str | Iterable[str] | None = None,
        alignment: bool = False,
        tree: bool = False,
        patience: float | None = None,
        normalize: float | None = None,
        coverage: float = 0.0,
        min_length: int | None = None,
        max_ratio: float | None = None,
        no_repeat: int | None = None,
        replace_unk: bool = False,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
        layer: int | None = None,
        head: int | None = None,
        shift: int = 0,
        extract: Extract = "path",
        threshold: float | None = None,
        max_length: int = 1000,
        batch: int | None = None,
        batch_tokens: int = 32768,
        chunk: int | None = None,
    ) -> Result | list[Result] | Iterator[Result]:
        """Translates line by line; the options are the flags of `heed translate`.

        What is not given of the search is as the makers of an imported model have it
        (`search_defaults`), else beam 5, patience 1, normalize 1, min_length 0, max_ratio 2,
        no_repeat 0 (never). A beam is at least as wide as `best`, unless it is given.

        A string gives one result, a list (or tuple) a list, and any other iterable, such as an open
        file, an iterator: it reads `chunk` lines at a time (2000, or 32 batches), so that memory
        stays bounded, and gives results in the order of the lines. A line's result depends neither
        on the others nor on the size of batches.

        `prefix`: what a translation must begin with: one for all, or one for each line.
        `alignment=True` keeps the weights that alignments are made of while it searches, where many
        are wanted; `tree=True` keeps the search.

        >>> best = translator.translate(["he sees the dog .", "she reads ."], beam=5, best=2)
        >>> [len(r.hypotheses) for r in best]
        [2, 2]
        >>> ("cat", "chat") in translator.translate("the black cat sleeps .").alignment.words
        True
        """
        options = checked(
            "translate",
            dict(
                beam=beam, best=best, alignment=alignment, tree=tree, patience=patience,
                normalize=normalize, coverage=coverage, min_length=min_length, max_ratio=max_ratio,
                no_repeat=no_repeat, replace_unk=replace_unk, sample=sample,
                temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, layer=layer,
                head=head, shift=shift, extract=extract, threshold=threshold,
                max_length=max_length, batch=batch, batch_tokens=batch_tokens, chunk=chunk,
            ),
        )
        if alignment and not self._core.attends:
            raise _core.Error(f"{self._given[0]}: a model without attention; it aligns nothing")
        chunk = int(options.pop("chunk", max(_CHUNK, 32 * self._core.batch(options))))
        if isinstance(lines, str):
            if prefix is not None and not isinstance(prefix, str):
                raise TypeError("translate: the prefix of one line is a string")
            return next(self._results(iter([lines]), prefix, options, 1))
        if isinstance(lines, bytes) or not isinstance(lines, Iterable):
            raise TypeError(
                "translate: wants a string, a list of strings or an iterable of strings, given "
                f"{type(lines).__name__}"
            )
        if prefix is not None and not isinstance(prefix, str):
            want_iterable("translate: prefix", prefix)
            counts = [len(x) for x in (prefix, lines) if isinstance(x, (list, tuple))]
            if len(set(counts)) > 1:
                raise ValueError(f"translate: {counts[0]} prefixes for {counts[1]} lines")
        out = self._results(iter(lines), prefix, options, chunk)
        return list(out) if isinstance(lines, (list, tuple)) else out

    def _results(
        self,
        lines: Iterator[str],
        prefix: str | Iterable[str] | None,
        options: dict[str, Any],
        chunk: int,
    ) -> Iterator[Result]:
        prefixes: Iterator[str] | None = None
        if isinstance(prefix, str):
            prefixes = repeat(prefix)
        elif prefix is not None:
            prefixes = iter(prefix)
        done = 0
        while now := [want_line("translate", line) for line in islice(lines, chunk)]:
            begun: list[str] = []
            if prefixes is not None:
                begun = [want_line("translate: prefix", p) for p in islice(prefixes, len(now))]
                if len(begun) < len(now):
                    raise ValueError(
                        f"translate: {done + len(begun)} prefixes for more lines; it wants one for "
                        "each, which may be empty"
                    )
            found = self._core.translate(now, begun, {**options, "first_line": done + 1})
            done += len(now)
            for core in found:
                yield Result(core)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        normalize: float | None = None,
        alignment: bool = False,
        layer: int | None = None,
        head: int | None = None,
        shift: int = 0,
        extract: Extract = "path",
        threshold: float | None = None,
        max_length: int = 1000,
        batch: int | None = None,
        batch_tokens: int = 32768,
    ) -> list[Result]:
        """How probable given translations are, and the weights that would have produced them.

        >>> given = translator.score(["the cat sleeps ."], ["le chat dort ."])[0]
        >>> given.score > translator.score(["the cat sleeps ."], ["dort ."])[0].score
        True
        """
        want_iterable("score: sources", sources)
        want_iterable("score: targets", targets)
        options = checked(
            "score",
            dict(
                normalize=normalize, alignment=alignment, layer=layer, head=head, shift=shift,
                extract=extract, threshold=threshold, max_length=max_length, batch=batch,
                batch_tokens=batch_tokens,
            ),
        )
        found = self._core.score(
            [want_line("score", s) for s in sources],
            [want_line("score", t) for t in targets],
            options,
        )
        return [Result(core) for core in found]

    def translate_text(
        self,
        text: str,
        *,
        format: Literal["text", "html"] = "text",
        language: str = "",
        alternatives: int = 0,
        longest_part: int = 200,
        beam: int | None = None,
    ) -> TranslatedText:
        """A whole text or HTML: its sentences are found, and spaces, line breaks, tags, addresses
        and placeholders come through as they are (docs/text.md).

        >>> translator.translate_text("the cat sleeps .\\n\\nthe dog sees me .\\n").text
        'le chat dort .\\n\\nle chien me voit .\\n'
        """
        options = checked(
            "translate_text",
            dict(
                format=format, language=language, alternatives=alternatives,
                longest_part=longest_part, beam=beam,
            ),
        )
        options["best"] = alternatives + 1
        if beam is not None:
            options["beam"] = max(beam, alternatives + 1)
        found = self._core.translate_texts([want_string("translate_text", text)], options)
        return TranslatedText(found[0], text)
