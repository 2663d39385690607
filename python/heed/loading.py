"""How a model's folder becomes a model: one way for translators, language models and embedders."""

from __future__ import annotations

import os
from typing import Callable, TypeVar

from . import _core

Made = TypeVar("Made")
Make = Callable[[str, str, str, int], Made]


def opened(
    make: Make[Made], path: str | os.PathLike[str], device: str, compute: str, threads: int
) -> Made:
    """Opens the folder `path`; its mistakes are raised as Python's, with heed's sentence."""
    folder = os.fspath(path)
    if not isinstance(folder, str):
        raise TypeError(f"a model's folder is a path, given {type(path).__name__}")
    for name, value in (("device", device), ("compute", compute)):
        if not isinstance(value, str):
            raise TypeError(f"{name} wants a string, given {type(value).__name__}")
    if not isinstance(threads, int) or isinstance(threads, bool):
        raise TypeError(f"threads wants a whole number, given {type(threads).__name__}")
    try:
        return make(folder, device, compute, threads)
    except _core.Error as error:
        if not os.path.exists(os.path.join(folder, "config.json")):
            raise FileNotFoundError(str(error)) from None
        raise


def want_text(what: str, value: object) -> str:
    """`value`, which must be a string; a line's own end is left out."""
    if not isinstance(value, str):
        raise TypeError(f"{what} wants strings, given {type(value).__name__}")
    if value.endswith("\n"):
        return value[:-2] if value.endswith("\r\n") else value[:-1]
    return value
