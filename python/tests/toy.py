"""A small world for the tests: sentences of a dozen words, and a translator that has learnt them."""

import atexit
import itertools
import os
import shutil
import subprocess
import tempfile

import heed

_NOUNS = [("cat", "chat"), ("dog", "chien"), ("horse", "cheval"), ("bird", "moineau")]
_ADJECTIVES = [("black", "noir"), ("white", "blanc"), ("green", "vert")]
_VERBS = [("sleeps", "dort"), ("reads", "lit"), ("sings", "chante")]
_SEEING = [("sees", "voit"), ("hears", "entend")]
_PERSONS = [("he", "il"), ("she", "elle")]


def pairs():
    """All sentences of the world, English and French."""
    things = [(f"the {e}", f"le {f}") for e, f in _NOUNS]
    things += [(f"the {a} {e}", f"le {f} {b}") for e, f in _NOUNS for a, b in _ADJECTIVES]
    out = []
    for (e, f), (v, w) in itertools.product(things + _PERSONS, _VERBS):
        out.append((f"{e} {v} .", f"{f} {w} ."))
    for (e, f), (v, w) in itertools.product(things + _PERSONS, _SEEING):
        out.append((f"{e} {v} me .", f"{f} me {w} ."))
        out += [(f"{e} {v} {x} .", f"{f} {w} {y} .") for x, y in things]
    return out


def train(folder, **settings):
    """A translator of all of it but every 20th sentence, in seconds."""
    known = [p for i, p in enumerate(pairs()) if i % 20]
    return heed.train(
        [e for e, _ in known], [f for _, f in known], folder,
        **{**dict(preset="rnn-small", tokens="words", steps=300, rate=4e-3, warmup=50,
                  batch_tokens=512, average=0.99, device="cpu"), **settings},
    )


_folder = None


def folder():
    """Where this run's models are; gone at its end."""
    global _folder
    if _folder is None:
        _folder = tempfile.mkdtemp(prefix="heed-tests-")
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    return _folder


def model():
    """The translator's folder, trained when it is first asked for."""
    path = os.environ.get("HEED_TOY_MODEL") or os.path.join(folder(), "translator")
    if not os.path.exists(os.path.join(path, "model.safetensors")):
        train(path)
    return path


def language_model():
    """A language model's folder, trained by the program; None where there is no program."""
    program = os.environ.get("HEED_PROGRAM")
    if not program:
        return None
    path = os.path.join(folder(), "language")
    if not os.path.exists(path):
        text = os.path.join(folder(), "text")
        with open(text, "w", encoding="utf-8") as file:
            file.writelines(e + "\n" for e, _ in pairs())
        subprocess.run(
            [program, "lm", "train", "--text", text, "--model", path, "--preset", "lm-transformer",
             "--size", "32", "--heads", "2", "--inner", "64", "--decoder-layers", "2", "--tokens",
             "words", "--reads", "lines", "--context", "16", "--steps", "100",
             "--rate", "4e-3", "--warmup", "20", "--device", "cpu"],
            check=True, capture_output=True,
        )
    return path
