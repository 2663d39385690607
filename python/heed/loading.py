"""How a model's folder becomes a model, and what all of them are given: one way for translators,
language models and embedders."""

from __future__ import annotations

import os
from typing import Any, Callable, Generic, Iterable, TypeVar

import numpy as np

from . import _core

Made = TypeVar("Made")


class Opened(Generic[Made]):
    """What is made of a model's folder. Pickled it is the folder's name and how it was opened; in a
    process that was forked from the one that opened it, it says so."""

    def __init__(
        self,
        make: Callable[..., Made],
        path: str | os.PathLike[str],
        device: str,
        compute: str,
        threads: int,
        *more: str,  # what this kind of model is given besides
    ) -> None:
        folder = os.fspath(path)
        if not isinstance(folder, str):
            raise TypeError(f"a model's folder is a path, given {type(path).__name__}")
        for name, value in (("device", device), ("compute", compute)):
            if not isinstance(value, str):
                raise TypeError(f"{name} wants a string, given {type(value).__name__}")
        if not isinstance(threads, int) or isinstance(threads, bool):
            raise TypeError(f"threads wants a whole number, given {type(threads).__name__}")
        if not 0 <= threads <= 1024:
            raise ValueError(f"threads wants a number from 0 (all cores) to 1024, given {threads}")
        self._given = (want_string("a model's folder", folder), device, compute, threads, *more)
        self._process = os.getpid()
        try:
            self._made = make(*self._given)
        except _core.Error as error:
            if not os.path.exists(os.path.join(folder, "config.json")):
                raise FileNotFoundError(str(error)) from None
            raise

    @property
    def _core(self) -> Made:
        if os.getpid() != self._process:
            raise _core.Error(
                f"{self._given[0]}: this model was opened before the process was forked, and its "
                "threads are in the other one; open it here, or start processes by 'spawn'"
            )
        return self._made

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), self._given


def want_string(what: str, value: object) -> str:
    """`value`, which must be a string that has an encoding."""
    if not isinstance(value, str):
        raise TypeError(f"{what} wants strings, given {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{what} wants text, given half a character (a surrogate, at {error.start}); read "
                "files with encoding='utf-8'"
            ) from None
    return value


def want_line(what: str, given: object) -> str:
    """The same, without a line's own end."""
    value = want_string(what, given)
    if value.endswith("\n"):
        return value[:-2] if value.endswith("\r\n") else value[:-1]
    return value


def want_iterable(what: str, value: object) -> None:
    """Throws unless `value` is an iterable of strings, or may be."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{what} wants a list of strings, given {type(value).__name__}")


_WHOLE = (int, np.integer)
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(
        "beam best min_length no_repeat top_k seed layer head shift max_length batch batch_tokens "
        "chunk alternatives longest_part length count stride bootstrap char_order word_order "
        "beta".split(),
        ("a whole number", _WHOLE),
    ),
    **dict.fromkeys(
        "patience normalize coverage max_ratio temperature top_p threshold smooth_value".split(),
        ("a number", (int, float, np.integer, np.floating)),
    ),
    **dict.fromkeys(
        "alignment tree replace_unk sample attention lowercase effective_order whitespace "
        "eps_smoothing normalized no_punctuation asian_support case_sensitive".split(),
        ("True or False", (bool, np.bool_)),
    ),
    **dict.fromkeys("extract format language tokenize smooth".split(), ("a string", (str,))),
}
_ABOVE_ZERO = {"beam", "best", "max_length", "batch", "batch_tokens", "chunk"}
_SMALL = {"bootstrap", "char_order", "word_order", "beta"}
_LEAST = {"layer": -1, "head": -1, "shift": -(2**31)}  # -1: the last layer, the mean of all heads


def checked(who: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not None, each of its type and no number beyond what the library's hold."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        wanted, kinds = _KINDS[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError(f"{who}: {name} wants {wanted}, given {value!r}")
        if kinds is not _WHOLE:
            continue
        number: int = given[name]
        least = 1 if name in _ABOVE_ZERO else _LEAST.get(name, 0)
        if number < least:
            raise ValueError(f"{who}: {name} wants a number of at least {least}, given {number}")
        bits = 31 if name in _SMALL else 63
        if number >= 2**bits:
            raise ValueError(f"{who}: {name} wants a number below 2**{bits}, given {number}")
    return given
