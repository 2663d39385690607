"""heed: attention mechanisms, and translators and language models built from them.

>>> translator = heed.Translator(model)
>>> result = translator.translate("the cat sleeps .")
>>> result.text
'le chat dort .'
>>> ("cat", "chat") in result.alignment.words
True
>>> result.attention.shape
(1, 1, 5, 5)

`heed.attend` is the operator on arrays, `heed.torch` the same for PyTorch with gradients,
`heed.train` trains, `heed.metrics` measures. The page: docs/python.md.
"""

from . import metrics
from ._core import Error, built_with_cuda
from ._core import version as __version__
from .attention import Mask, Score, attend, score_parameters, scores, weighings
from .language import Embedder, Generated, LanguageModel, ReadText, TextScore, WordVectors
from .training import CorpusWarning, Progress, Trained, presets, settings, train
from .translator import (
    Alignment,
    Hypothesis,
    Result,
    SearchTree,
    TranslatedText,
    Translator,
)

__all__ = [
    "Alignment",
    "CorpusWarning",
    "Embedder",
    "Error",
    "Generated",
    "Hypothesis",
    "LanguageModel",
    "Mask",
    "Progress",
    "ReadText",
    "Result",
    "Score",
    "SearchTree",
    "TextScore",
    "Trained",
    "TranslatedText",
    "Translator",
    "WordVectors",
    "__version__",
    "attend",
    "built_with_cuda",
    "metrics",
    "presets",
    "score_parameters",
    "scores",
    "settings",
    "train",
    "weighings",
]
