"""The operator on arrays: attention(q, K, V) = weigh(mask(score(q, K))) V."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Callable, Literal, Mapping, Protocol, Sequence, overload

import numpy as np
import numpy.typing as npt

from . import _core

Array = Any
"""A NumPy array, or anything with __dlpack__: a tensor of PyTorch, CuPy, JAX."""


class Score(Protocol):
    """A score of your own: scores [..., Tq, Tk] of queries [..., Tq, d] against keys [..., Tk, d]."""

    def forward(self, q: Any, k: Any) -> Any: ...


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees: an interval of them. Masks are joined by `&`.

    >>> heed.Mask.causal() & heed.Mask.padding([3, 5])
    Mask(lengths=(3, 5), is_causal=True)
    """

    lengths: tuple[int, ...] | None = None
    is_causal: bool = False
    is_past: bool = False
    around: tuple[int, int] | None = None

    @staticmethod
    def padding(lengths: Sequence[int]) -> Mask:
        """Keys at and after a sentence's length are not seen: one length for each of the batch."""
        return Mask(lengths=tuple(int(n) for n in lengths))

    @staticmethod
    def causal() -> Mask:
        """Only keys up to the query's own position."""
        return Mask(is_causal=True)

    @staticmethod
    def past() -> Mask:
        """Only keys before it."""
        return Mask(is_past=True)

    @staticmethod
    def window(before: int, after: int) -> Mask:
        """Only keys from `before` before to `after` after the query's position."""
        return Mask(around=(int(before), int(after)))

    def __and__(self, other: Mask) -> Mask:
        for a, b in ((self.lengths, other.lengths), (self.around, other.around)):
            if a is not None and b is not None and a != b:
                raise ValueError(f"mask: {a} and {b} say different things of one kind")
        return Mask(
            self.lengths if self.lengths is not None else other.lengths,
            self.is_causal or other.is_causal,
            self.is_past or other.is_past,
            self.around if self.around is not None else other.around,
        )

    def __repr__(self) -> str:
        parts = [
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if value is not None and value is not False
        ]
        return f"Mask({', '.join(parts)})"

    def _options(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self.lengths is not None:
            out["lengths"] = list(self.lengths)
        if self.is_causal:
            out["causal"] = True
        if self.is_past:
            out["past"] = True
        if self.around is not None:
            out["window"] = self.around
        return out


def mask_named(mask: Mask | str | None) -> Mask:
    if mask is None:
        return Mask()
    if isinstance(mask, Mask):
        return mask
    if mask == "causal":
        return Mask.causal()
    if mask == "past":
        return Mask.past()
    if not isinstance(mask, str):
        raise TypeError(
            "attend: a mask is 'causal', 'past', a heed.Mask or an array of bool, given "
            f"{type(mask).__name__}"
        )
    raise ValueError(f"attend: unknown mask {mask!r}; have: 'causal', 'past', or a heed.Mask")


def want_score(score: object) -> None:
    """Throws unless it has a forward(q, k)."""
    if isinstance(score, type) or not callable(getattr(score, "forward", None)):
        given = f"the class {score.__name__}" if isinstance(score, type) else repr(score)
        raise TypeError(
            "attend: a score is a name of heed.scores() or an object with forward(q, k), given "
            f"{given}"
        )


def scores() -> dict[str, str]:
    """The scores that heed knows, with their formulas.

    >>> heed.scores()["additive"]
    'v^T tanh(W q + U k)'
    """
    return dict(_core.scores())


def weighings() -> dict[str, str]:
    """The ways from scores to weights, with their formulas."""
    return dict(_core.weighings())


def score_parameters(
    score: str,
    *,
    query: int,
    key: int | None = None,
    heads: int = 1,
    key_heads: int = 0,
    size: int = 0,
    rank: int = 0,
    positions: int = 0,
    seed: int = 1,
    dtype: npt.DTypeLike = np.float32,
) -> dict[str, npt.NDArray[Any]]:
    """First values of a score's parameters, by name, drawn as heed draws them in training.

    >>> {n: p.shape for n, p in heed.score_parameters("additive", query=8, size=4).items()}
    {'W': (1, 8, 4), 'U': (1, 8, 4), 'v': (1, 4)}
    """
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"score_parameters: dtype wants float32 or float64, given {kind}")
    for name, value in dict(query=query, key=key, heads=heads).items():
        if value is not None and value < 1:
            raise ValueError(f"score_parameters: {name} wants a number above 0, given {value}")
    sizes = dict(
        query=query, key=query if key is None else key, heads=heads, key_heads=key_heads, size=size,
        rank=rank, positions=positions,
    )
    return _core.score_parameters(score, sizes, seed, str(kind))


def _module_of(array: Array) -> str:
    return type(array).__module__.partition(".")[0]


def _stream_of(array: Array) -> int:
    """The stream that the array's own library works on now; 0 on a CPU."""
    if isinstance(array, np.ndarray) or not hasattr(array, "__dlpack_device__"):
        return 0
    if array.__dlpack_device__()[0] != 2:
        return 0
    library = sys.modules.get(_module_of(array))
    stream = 0
    if _module_of(array) == "torch":
        stream = library.cuda.current_stream(array.device).cuda_stream  # type: ignore[union-attr]
    elif _module_of(array) == "cupy":
        stream = library.cuda.get_current_stream().ptr  # type: ignore[union-attr]
    return stream or 1  # the default stream is named 1 by DLPack


def _as(like: Array, found: Any) -> Any:
    """What was computed, as an array of the library that `like` is of; no copy."""
    if isinstance(like, np.ndarray):
        return found
    library = _module_of(like)
    readers: dict[str, Callable[[], Any]] = {
        "torch": lambda: sys.modules["torch"].from_dlpack(found),
        "cupy": lambda: sys.modules["cupy"].from_dlpack(found),
        "jax": lambda: sys.modules["jax"].dlpack.from_dlpack(found),
        "jaxlib": lambda: sys.modules["jax"].dlpack.from_dlpack(found),
    }
    return readers[library]() if library in readers else found


@overload
def attend(
    q: Array, k: Array, v: Array, score: str | Score = ..., *,
    params: Mapping[str, Array] | None = ..., mask: Mask | str | npt.NDArray[np.bool_] | None = ...,
    bias: Array | None = ..., weigh: str = ..., temperature: float = ...,
    weights: Literal[False] = ...,
) -> Any: ...
@overload
def attend(
    q: Array, k: Array, v: Array, score: str | Score = ..., *,
    params: Mapping[str, Array] | None = ..., mask: Mask | str | npt.NDArray[np.bool_] | None = ...,
    bias: Array | None = ..., weigh: str = ..., temperature: float = ..., weights: Literal[True],
) -> tuple[Any, Any]: ...
def attend(
    q: Array,
    k: Array,
    v: Array,
    score: str | Score = "scaled_dot",
    *,
    params: Mapping[str, Array] | None = None,
    mask: Mask | str | npt.NDArray[np.bool_] | None = None,
    bias: Array | None = None,
    weigh: str = "soft",
    temperature: float = 1.0,
    weights: bool = False,
) -> Any:
    """Attention of queries to keys: what each query reads of the values.

    Shapes: q [B, H, Tq, d], k [B, G, Tk, d], v [B, G, Tk, m] (G divides H); or without the heads
    [B, T, d]; or one sentence, [T, d]. NumPy arrays, or anything with DLPack; float32 or float64 on
    a CPU, float32 or bfloat16 on CUDA. No copy is made of what comes in, or of what goes out, which
    is an array of the same library on the same device.

    `score`: a name of `heed.scores()`, whose parameters are `params` (`heed.score_parameters` draws
    some), or an object of yours with `forward(q, k)`. `mask`: a `heed.Mask`, "causal", or an array
    of bool [Tq, Tk], True where a key is seen (which is not fused). `bias`: added to the scores.
    `weigh`: a name of `heed.weighings()`. `weights=True` also gives the weights [B, H, Tq, Tk].

    >>> q, k, v = np.ones((3, 8)), np.ones((5, 8)), np.ones((5, 2))
    >>> context, weights = heed.attend(q, k, v, weights=True)
    >>> context.shape, weights.shape, bool(np.allclose(weights, 1 / 5))
    ((3, 2), (3, 5), True)
    >>> additive = heed.score_parameters("additive", query=8, dtype=np.float64)
    >>> heed.attend(q, k, v, "additive", params=additive, mask="causal").shape
    (3, 2)
    """
    for name, array in (("q", q), ("k", k), ("v", v), ("mask", mask)):
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"attend: {name} is a masked array; give what is seen as mask=")
    if params is not None and not isinstance(params, Mapping):
        raise TypeError(f"attend: params wants a dict of arrays, given {type(params).__name__}")
    if not isinstance(temperature, (int, float, np.integer, np.floating)):
        raise TypeError(f"attend: temperature wants a number, given {temperature!r}")
    if mask is not None and hasattr(mask, "dtype"):
        seen = np.asarray(mask)
        if seen.dtype != np.bool_:
            raise TypeError(f"attend: a mask that is an array wants bool, given {seen.dtype}")
        kind = np.float64 if str(getattr(q, "dtype", "")).endswith("float64") else np.float32
        unseen = np.where(seen, 0, -np.inf).astype(kind)
        bias = unseen if bias is None else unseen + np.asarray(bias)
        mask = None
    if not isinstance(score, str):
        want_score(score)
        given = score.forward(q, k)
        bias = given if bias is None else given + bias
        if isinstance(q, np.ndarray):
            bias = np.ascontiguousarray(bias, dtype=q.dtype)
        if bias.ndim == 3:  # [B, Tq, Tk], of one head
            bias = bias[:, None]
        # The scores are the bias; what is compared beside them is nothing.
        q, k, score, params = q[..., :0], k[..., :0], "dot", None
    if bias is not None and getattr(bias, "ndim", 0) == 3:
        bias = bias[:, None]
    options = dict(
        params=dict(params or {}), mask=mask_named(mask)._options(), bias=bias, weigh=weigh,
        temperature=float(temperature), weights=bool(weights), stream=_stream_of(q),
    )
    context, found = _core.attend(q, k, v, score, options)
    return (_as(v, context), _as(v, found)) if weights else _as(v, context)
