"""Training a translator from Python, with the settings of `heed train`."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Union

from . import _core
from .loading import want_line

Lines = Union[str, "os.PathLike[str]", Iterable[str]]
"""A file's path, or strings, one a sentence."""


class CorpusWarning(UserWarning):
    """What speaks against a corpus, though not gravely."""


@dataclass(frozen=True)
class Progress:
    """A line of a training's log."""

    epoch: int
    step: int
    updates: int
    loss: float
    """nats a token since the last line, smoothing included"""
    words_a_second: float
    rate: float
    gradient_norm: float
    seconds: float
    best: bool
    """whether the model that was validated is the best so far"""
    left: float | None = None
    """seconds until the nearest limit"""
    valid_loss: float | None = None
    """after a validation: nats a token"""
    bleu: float | None = None
    """after a validation"""


@dataclass(frozen=True)
class Trained:
    """How a training ended: "limit", or "patience" where no better model came."""

    model: str
    steps: int
    end: str


def settings() -> dict[str, tuple[Any, str]]:
    """Every setting of models and training: its default, and what it is.

    >>> heed.settings()["score"][0], heed.settings()["clip"]
    ('additive', (1.0, 'gradients are scaled down to this norm; 0: never'))
    """
    return {name: (default, what) for _, name, default, what in _core.settings()}


def presets() -> dict[str, dict[str, Any]]:
    """The models that have names, with their settings.

    >>> sorted(heed.presets())[0]
    'rnn'
    """
    return {name: _core.preset(name) for name in _core.presets()}


_OWN = {
    "tokens": str, "vocabulary": int, "min_count": int, "joint": bool, "max_length": int,
    "max_ratio": float, "tokenize": str, "anyway": bool, "device": str, "threads": int,
    "alignment": str,
}


class _Files:
    """Corpora as files: those that are files, and iterables, which are written into a folder that
    is gone at the end."""

    def __init__(self) -> None:
        self._folder: str | None = None

    def path(self, name: str, lines: Lines) -> str:
        if isinstance(lines, (str, os.PathLike)):
            path = os.fspath(lines)
            if not os.path.exists(path):
                raise FileNotFoundError(f"{path}: cannot be read: there is no such file")
            return path
        if isinstance(lines, bytes) or not isinstance(lines, Iterable):
            raise TypeError(
                f"train: {name} wants a path or an iterable of strings, given "
                f"{type(lines).__name__}"
            )
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="heed-")
        path = os.path.join(self._folder, name)
        with open(path, "w", encoding="utf-8") as file:
            for line in lines:
                text = want_line(f"train: {name}", line)
                if "\n" in text:
                    raise ValueError(f"train: {name} has a line with a newline in it: {text!r}")
                file.write(text + "\n")
        return path

    def told(self, text: str) -> str:
        """What is said of a file that was an iterable: its name alone."""
        return text if self._folder is None else text.replace(self._folder + os.sep, "")

    def remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def train(
    source: Lines,
    target: Lines,
    model: str | os.PathLike[str],
    *,
    valid_source: Lines | None = None,
    valid_target: Lines | None = None,
    preset: str = "auto",
    resume: bool = False,
    on_log: Callable[[Progress], None] | None = None,
    on_validation: Callable[[Progress], None] | None = None,
    on_message: Callable[[str], None] | None = None,
    **settings: Any,
) -> Trained:
    """Trains a translator into the folder `model`: what `heed train` does.

    `source` and `target`, and the two to validate on, are paths (plain or gzip) or iterables of
    sentences. What is not said is chosen for the corpus, the device and the time (preset "auto"),
    or is the preset's. Further settings have the names of the flags, with underscores: those of
    `heed.settings()`, and tokens, vocabulary, min_count, joint, max_length, max_ratio, tokenize,
    anyway, alignment, device, threads.

    `on_log` is called with every line of progress, `on_validation` with those that have a
    validation, `on_message` with what the program would tell; what they raise ends the training.
    Ctrl-C saves a checkpoint and raises KeyboardInterrupt: `resume=True` goes on from it, with the
    same bytes in the end as if nothing had happened. Given iterables must then give the same lines.

    >>> english, french = ["a cat", "a dog"] * 40, ["un chat", "un chien"] * 40
    >>> heed.train(english, french, folder, preset="rnn-small", tokens="words", steps=3,
    ...            anyway=True).steps
    3
    """
    known = {name for _, name, _, _ in _core.settings()} | set(_OWN)
    for name, value in settings.items():
        if name not in known:
            raise TypeError(f"train: {_unknown(name, known)}")
        kind = _OWN.get(name)
        if kind is not None and not isinstance(value, (int, float) if kind is float else kind):
            raise TypeError(f"train: {name} wants {kind.__name__}, given {value!r}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"train: {name} wants a number that 64 bits hold, given {value}")
    if not isinstance(preset, str):
        raise TypeError(f"train: preset wants a string, given {type(preset).__name__}")
    for name, call in dict(
        on_log=on_log, on_validation=on_validation, on_message=on_message
    ).items():
        if call is not None and not callable(call):
            raise TypeError(f"train: {name} wants a function, given {type(call).__name__}")
    if (valid_source is None) != (valid_target is None):
        raise ValueError("train: valid_source and valid_target belong together")
    folder = os.fspath(model)
    files = _Files()

    def log(line: dict[str, Any]) -> None:
        progress = Progress(**line)
        if on_log is not None:
            on_log(progress)
        if on_validation is not None and progress.valid_loss is not None:
            on_validation(progress)

    def told(text: str, warning: bool) -> None:
        if warning:
            warnings.warn(files.told(text), CorpusWarning, stacklevel=3)
        elif on_message is not None:
            on_message(files.told(text).rstrip("\n"))

    try:
        given: dict[str, Any] = {
            **settings,
            "source": files.path("source", source),
            "target": files.path("target", target),
            "model": folder,
            "preset": preset,
            "resume": resume,
        }
        if valid_source is not None and valid_target is not None:
            given["valid_source"] = files.path("valid_source", valid_source)
            given["valid_target"] = files.path("valid_target", valid_target)
        steps, end = _core.train(given, log, told)
    except _core.Error as error:
        raise _core.Error(files.told(str(error))) from None
    finally:
        files.remove()
    return Trained(folder, steps, end)


def _unknown(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"unknown setting '{name}'{hint} heed.settings() has them all"
