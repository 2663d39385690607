"""heed's attention for PyTorch: one autograd function, and modules made of it.

>>> import torch, heed.torch
>>> q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
>>> context = heed.torch.attend(q, k, v, mask="causal")
>>> context.sum().backward()
>>> context.shape, q.grad.shape
(torch.Size([2, 4, 16, 8]), torch.Size([2, 4, 16, 8]))

Nothing of PyTorch is needed when heed is built: tensors come and go by DLPack, and the memory of
results is PyTorch's own.
"""

import math
from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from . import _core
from .attention import Mask, mask_named, score_parameters, want_score
from .attention import Score as ScoreProtocol

Score = Union[str, nn.Module, ScoreProtocol]


def _wide(kind: torch.dtype) -> torch.dtype:
    return torch.float32 if kind == torch.bfloat16 else kind


_raw_stream: Optional[Callable[[int], int]] = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _stream(x: Tensor) -> int:
    """PyTorch's current one, as DLPack names it."""
    if not x.is_cuda:
        return 0
    if _raw_stream is not None:  # a tenth of the time
        return _raw_stream(x.get_device()) or 1
    return int(torch.cuda.current_stream(x.device).cuda_stream) or 1  # 1: the default stream


def _scratch(x: Tensor) -> Callable[[int], Tensor]:
    """What kernels need while they run, on a GPU, in memory that PyTorch knows of."""
    return lambda size: x.new_empty(size // x.itemsize + 1)  # naming a type takes longer


# ---- the op

# Its own kernel for autograd, instead of torch.library.register_autograd's: half of the time of a
# small call with gradients.

_untyped: Any = torch.library.Library
_library = _untyped("heed", "DEF")
_INPUTS = "Tensor q, Tensor k, Tensor value, Tensor? v, Tensor? bias, Tensor? ranges"
for _signature in (
    f"attention({_INPUTS}, str form, float scale) -> (Tensor, Tensor)",
    f"attention_backward(Tensor dcontext, {_INPUTS}, Tensor context, Tensor lse, str form, "
    "float scale, bool wants_bias) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
):
    _library.define(_signature, tags=(torch.Tag.pt2_compliant_tag,))
_op = torch.ops.heed.attention.default
_backward_op = torch.ops.heed.attention_backward.default


def _made(q: Tensor, value: Tensor) -> Tuple[Tensor, Tensor]:
    """Memory for the context and the log-sum-exp of each row."""
    batch, heads, queries, _ = q.shape
    context = q.new_empty(batch, heads, queries, value.shape[3])  # a tuple would take twice the time
    if q.dtype == torch.bfloat16:
        return context, q.new_empty((batch, heads, queries), dtype=torch.float32)
    return context, q.new_empty(batch, heads, queries)


def _attention(
    q: Tensor, k: Tensor, value: Tensor, v: Optional[Tensor], bias: Optional[Tensor],
    ranges: Optional[Tensor], form: str, scale: float,
) -> Tuple[Tensor, Tensor]:
    made = _made(q, value)
    _core.fused_forward(
        form, scale, (q, k, value, v, bias, ranges), made, _stream(q), _scratch(q)
    )
    return made


def _attention_fake(
    q: Tensor, k: Tensor, value: Tensor, v: Optional[Tensor], bias: Optional[Tensor],
    ranges: Optional[Tensor], form: str, scale: float,
) -> Tuple[Tensor, Tensor]:
    return _made(q, value)


def _gradients(
    q: Tensor, k: Tensor, value: Tensor, v: Optional[Tensor], bias: Optional[Tensor],
    wants_bias: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return (
        q.new_empty(q.shape),
        k.new_empty(k.shape),
        value.new_empty(value.shape),
        q.new_empty(0) if v is None else v.new_empty(v.shape),
        q.new_empty(0) if bias is None or not wants_bias else bias.new_empty(bias.shape),
    )


def _attention_backward(
    dcontext: Tensor, q: Tensor, k: Tensor, value: Tensor, v: Optional[Tensor],
    bias: Optional[Tensor], ranges: Optional[Tensor], context: Tensor, lse: Tensor, form: str,
    scale: float, wants_bias: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    made = _gradients(q, k, value, v, bias, wants_bias)
    dq, dk, dvalue, dv, dbias = made
    _core.fused_backward(
        form, scale, (q, k, value, v, bias, ranges), (context, lse, dcontext),
        (dq, dk, dvalue, None if v is None else dv, dbias if wants_bias else None),
        _stream(q), _scratch(q),
    )
    return made


def _attention_backward_fake(
    dcontext: Tensor, q: Tensor, k: Tensor, value: Tensor, v: Optional[Tensor],
    bias: Optional[Tensor], ranges: Optional[Tensor], context: Tensor, lse: Tensor, form: str,
    scale: float, wants_bias: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _gradients(q, k, value, v, bias, wants_bias)


def _below(op: Any, keys: Any, *given: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keys & torch._C._after_autograd_keyset, *given)


def _wants_gradients(given: Tuple[Any, ...]) -> bool:
    if torch.is_grad_enabled():
        for x in given:
            if isinstance(x, Tensor) and x.requires_grad:
                return True
    return False


_internals: Any = torch._C


def _key_set(*names: str) -> Any:
    keys = [getattr(_internals.DispatchKey, name) for name in names]
    made = _internals.DispatchKeySet(keys[0])
    for key in keys[1:]:
        made = made.add(key)
    return made


_AT_REST = _key_set("BackendSelect", "ADInplaceOrView")
_PLAIN = tuple(
    _key_set(d, "ADInplaceOrView", "Autograd" + d, "Autocast" + d) for d in ("CPU", "CUDA")
)


def _is_seen(given: Tuple[Any, ...]) -> bool:
    """Whether anybody would see the op: autograd, a compiler, a tracer, a profiler, a mode, a
    transform, a kind of tensor of its own. Where nobody does, the way through PyTorch's dispatcher
    would take longer than all else of a small call."""
    if (
        torch.compiler.is_compiling()
        or _internals._dispatch_tls_local_include_set() != _AT_REST
        or _internals._len_torch_function_stack() > 0
        or _internals._autograd._profiler_enabled()
    ):
        return True
    plain, keys_of, learns = _PLAIN[given[0].is_cuda], _internals._dispatch_keys, torch.is_grad_enabled()
    for x in given[:6]:
        if x is None:
            continue
        kind = type(x)
        if kind is not Tensor and kind is not nn.Parameter:
            return True
        if (learns and x.requires_grad) or keys_of(x) != plain:
            return True
    return False


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Any, *given: Any) -> Any:
        context, lse = _below(_op, keys, *given)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(*given[:6], context, lse)
        ctx.form, ctx.scale = given[6:]
        return context, lse

    @staticmethod
    def backward(
        ctx: Any, dcontext: Optional[Tensor], dlse: None
    ) -> Tuple[Optional[Tensor], ...]:
        if dcontext is None:
            return (None,) * 9
        saved = ctx.saved_tensors
        wants_bias = saved[4] is not None and ctx.needs_input_grad[5]
        dq, dk, dvalue, dv, dbias = _backward_op(
            dcontext, *saved, ctx.form, ctx.scale, wants_bias
        )
        return (
            None, dq, dk, dvalue, None if saved[3] is None else dv, dbias if wants_bias else None,
            None, None, None,
        )


class _OnlyFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Any, *given: Any) -> Any:
        return _below(_backward_op, keys, *given)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            "heed.torch.attend: has first derivatives only; for second ones compose attention of "
            "torch's own ops (heed.torch.attend with weights=True is)"
        )


def _attention_autograd(keys: Any, *given: Any) -> Any:
    if _wants_gradients(given):
        function: Any = _Recorded
        return function.apply(keys, *given)
    return _below(_op, keys, *given)


def _attention_backward_autograd(keys: Any, *given: Any) -> Any:
    if _wants_gradients(given):
        function: Any = _OnlyFirst
        return function.apply(keys, *given)
    return _below(_backward_op, keys, *given)


for _device in ("CPU", "CUDA"):
    _library.impl("attention", _attention, _device)
    _library.impl("attention_backward", _attention_backward, _device)
_library.impl("attention", _attention_autograd, "Autograd", with_keyset=True)
_library.impl("attention_backward", _attention_backward_autograd, "Autograd", with_keyset=True)
torch.library.register_fake("heed::attention", _attention_fake, lib=_library)
torch.library.register_fake("heed::attention_backward", _attention_backward_fake, lib=_library)


# ---- scores in one of the forms that the kernel knows


_PARAMETERS: dict[str, set[str]] = {
    "additive": {"W", "U", "v"}, "concat": {"W", "U", "v"}, "tanh": {"w1", "w2"},
    "bilinear": {"W", "A", "B"}, "general": {"W", "A", "B"}, "dot": set(), "scaled_dot": set(),
    "cosine": {"gain"}, "static": {"W", "W1", "W2"}, "location": {"W"}, "factorized": {"A", "B"},
}


class Terms(NamedTuple):
    """Queries and keys as the fused kernel compares them."""

    form: str
    q: Tensor  # [B, H, Tq, n]
    k: Tensor  # [B, G, Tk, n]
    v: Optional[Tensor] = None  # additive: [H, n]
    scale: float = 1.0
    bias: Optional[Tensor] = None  # [1, H, Tq, Tk]


def _unit(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-12).sqrt()


def _by_head(x: Tensor, w: Tensor) -> Tensor:
    return x @ (w if w.dim() == 3 else w[None])


def _terms(score: str, q: Tensor, k: Tensor, params: Mapping[str, Tensor]) -> Terms:
    def want(name: str) -> Tensor:
        if name not in params:
            raise ValueError(
                f"attend: score '{score}' wants a parameter {name}; give it in params, or take "
                "heed.torch.MultiHead, which has its own"
            )
        return params[name]

    for name in params.keys() - _PARAMETERS.get(score, params.keys()):
        raise ValueError(
            f"attend: score '{score}' has no parameter {name}; it has "
            f"{', '.join(sorted(_PARAMETERS[score])) or 'none'}"
        )
    if score in ("additive", "concat"):
        # Without W and U, queries and keys are projected already.
        v = want("v")
        return Terms(
            "additive",
            _by_head(q, params["W"]) if "W" in params else q,
            _by_head(k, params["U"]) if "U" in params else k,
            v if v.dim() == 2 else v[None],
        )
    if score == "tanh":
        ones = torch.ones(q.shape[1], 1, dtype=_wide(q.dtype), device=q.device)
        return Terms("additive", _by_head(q, want("w2")), _by_head(k, want("w1")), ones)
    if score in ("bilinear", "general"):
        if "A" in params:
            return Terms("dot", _by_head(q, params["A"]), _by_head(k, want("B")))
        return Terms("dot", _by_head(q, want("W")), k)
    if score == "dot":
        return Terms("dot", q, k)
    if score == "scaled_dot":
        return Terms("dot", q, k, scale=1 / math.sqrt(q.shape[-1]))
    if score == "cosine":
        return Terms("dot", _unit(q) * want("gain"), _unit(k))
    if score == "static":
        if "W1" in params:
            rows, columns = params["W1"][:, : q.shape[2]], want("W2")[:, : k.shape[2]]
            _want_positions("static", params["W1"], max(q.shape[2], k.shape[2]))
            return Terms(
                "dot",
                rows[None].expand(q.shape[0], -1, -1, -1),
                columns[None].expand(k.shape[0], -1, -1, -1),
            )
        _want_positions("static", want("W"), max(q.shape[2], k.shape[2]))
        bias = want("W")[:, : q.shape[2], : k.shape[2]].to(_wide(q.dtype))
        return Terms("dot", q[..., :1] * 0, k[..., :1] * 0, bias=bias[None])
    if score == "location":
        _want_positions("location", want("W"), k.shape[2])
        return Terms("dot", q, want("W")[None, :, : k.shape[2]].expand(k.shape[0], -1, -1, -1))
    if score == "factorized":
        return Terms(
            "log_dot", _by_head(q, want("A")).softmax(-1), _by_head(k, want("B")).softmax(-1)
        )
    _core.score_parameters(score, {"query": 1, "key": 1}, 1, "float32")  # raises: an unknown name
    raise ValueError(f"attend: score '{score}' has no form in heed.torch")


def _want_positions(score: str, table: Tensor, count: int) -> None:
    if count > table.shape[1]:
        raise ValueError(
            f"score '{score}': made for {table.shape[1]} positions, asked for {count}; make it "
            "with more"
        )


def _composed_scores(t: Terms) -> Tensor:
    """The scores that terms stand for, by torch's own ops."""
    each = t.q.shape[1] // t.k.shape[1]
    k = t.k.repeat_interleave(each, dim=1) if each > 1 else t.k
    if t.form == "additive":
        assert t.v is not None
        hidden = torch.tanh(t.q[..., :, None, :] + k[..., None, :, :])
        scores = (hidden * t.v[:, None, None, :].to(hidden.dtype)).sum(-1)
    else:
        scores = t.q @ k.transpose(-1, -2)
        if t.form == "log_dot":
            scores = scores.log()
        scores = scores * t.scale
    return scores if t.bias is None else scores + t.bias


# ---- masks


def mask_ranges(
    mask: Mask, batch: int, queries: int, keys: int, device: torch.device,
    lengths: Optional[Tensor] = None,
) -> Optional[Tensor]:
    """The keys that each query sees, int32 [B or 1, 1, Tq, 2]; None: all of them."""
    if mask.lengths is not None:
        if lengths is not None:
            raise ValueError("attend: give lengths or a mask with padding, not both")
        lengths = torch.tensor(mask.lengths, device=device)
    if lengths is None and not (mask.is_causal or mask.is_past or mask.around):
        return None
    at = torch.arange(queries, device=device)
    begin, end = torch.zeros_like(at), torch.full_like(at, keys)
    if mask.is_causal:
        end = torch.minimum(end, at + 1)
    if mask.is_past:
        end = torch.minimum(end, at)
    if mask.around is not None:
        begin = (at - mask.around[0]).clamp(min=0)
        end = torch.minimum(end, at + mask.around[1] + 1)
    ends, begins = end[None], begin[None]
    if lengths is not None:
        if lengths.shape != (batch,):
            raise ValueError(f"attend: {tuple(lengths.shape)} lengths for {batch} sentences")
        ends = torch.minimum(ends, lengths.to(at.dtype)[:, None])
        begins = begins.expand_as(ends)
    ends = ends.clamp(min=0)
    begins = torch.minimum(begins, ends)
    return torch.stack([begins, ends], -1)[:, None].to(torch.int32).contiguous()


def _wanted_bool(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """[B or 1, H or 1, Tq, Tk] of a mask that may have no axes for batch and heads."""
    if mask.dtype != torch.bool:
        raise TypeError(f"attend: a mask that is a tensor wants bool, given {mask.dtype}")
    while mask.dim() < 4:
        mask = mask[None] if mask.dim() != 3 else mask[:, None]
    wanted = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if mask.shape[2:] != wanted[2:] or any(
        n not in (1, w) for n, w in zip(mask.shape[:2], wanted[:2])
    ):
        raise ValueError(
            f"attend: a mask of {tuple(mask.shape)} for scores of {wanted}; wants [Tq, Tk], "
            "[B or 1, Tq, Tk] or [B or 1, H or 1, Tq, Tk]"
        )
    return mask


def _within(ranges: Tensor, keys: int) -> Tensor:
    at = torch.arange(keys, device=ranges.device)
    return (at >= ranges[..., :1]) & (at < ranges[..., 1:])


# ---- scores of one's own


class _NumpyScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, score: Any) -> Tensor:
        ctx.save_for_backward(q, k)
        ctx.score = score
        made = score.forward(q.detach().cpu().numpy(), k.detach().cpu().numpy())
        return torch.as_tensor(made, dtype=q.dtype, device=q.device)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dscores: Tensor) -> Tuple[Optional[Tensor], ...]:
        q, k = ctx.saved_tensors
        dq, dk = ctx.score.backward(
            q.detach().cpu().numpy(), k.detach().cpu().numpy(), dscores.cpu().numpy()
        )
        return (
            torch.as_tensor(dq, dtype=q.dtype, device=q.device),
            torch.as_tensor(dk, dtype=k.dtype, device=k.device),
            None,
        )


def _own_scores(score: Any, q: Tensor, k: Tensor) -> Tensor:
    if not isinstance(score, nn.Module) and hasattr(score, "backward"):
        function: Any = _NumpyScore
        scores = function.apply(q, k, score)
    else:
        scores = score(q, k) if isinstance(score, nn.Module) else score.forward(q, k)
    wanted = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if not isinstance(scores, Tensor) or tuple(scores.shape) != wanted:
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"attend: the score gave {got}, wanted {wanted}")
    return scores


# ---- attention


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Score = "scaled_dot",
    *,
    params: Optional[Mapping[str, Tensor]] = None,
    mask: Union[Mask, str, Tensor, None] = None,
    lengths: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    weights: bool = False,
) -> Any:
    """Attention with gradients: q [B, H, Tq, d], k [B, G, Tk, d], v [B, G, Tk, m] give
    [B, H, Tq, m]; without heads [B, T, d] gives [B, Tq, m].

    Fused: nothing of size Tq x Tk is held, forward or backward, for all of `heed.scores()`. float32
    and float64 on a CPU, float32 and bfloat16 on CUDA. Works under torch.compile (it is a custom op
    with a fake implementation) and autocast. First derivatives only.

    `params`: the score's parameters, by name; "additive" without W and U compares q and k as they
    are: v^T tanh(q + k). `lengths` [B]: keys at and after them are not seen; a tensor, where
    `heed.Mask.padding` has numbers. A `mask` that is a tensor of bool, [Tq, Tk] or with the axes
    before, is True where a key is seen. `bias` [B or 1, H, Tq, Tk] is added to the scores. A `score` of
    your own, in torch's ops or in NumPy with a `backward`, is composed of plain ops, and so is all
    where weights=True asks for the weights [B, H, Tq, Tk], too.

    >>> w = torch.randn(1, 8)
    >>> q, k, v = torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 3)
    >>> heed.torch.attend(q, k, v, score="additive", params={"v": w}).shape
    torch.Size([2, 5, 3])
    """
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        name, x = next((n, x) for n, x in zip("qkv", (q, k, v)) if not isinstance(x, Tensor))
        raise TypeError(f"attend: {name} wants a tensor, given {type(x).__name__}")
    if not q.device == k.device == v.device:
        raise ValueError(f"attend: q is on {q.device}, k on {k.device}, v on {v.device}; all must "
                         "be on one device")
    axes = q.dim()
    if axes == 3:
        given = attend(
            q[:, None], k[:, None], v[:, None], score, params=params, mask=mask, lengths=lengths,
            bias=bias, weights=weights,
        )
        return tuple(x[:, 0] for x in given) if weights else given[:, 0]
    if not axes == k.dim() == v.dim() == 4:
        raise ValueError(
            "attend: wants q [B, H, Tq, d], k [B, G, Tk, d], v [B, G, Tk, m]; given "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    seen: Optional[Tensor] = None
    if isinstance(mask, Tensor):
        seen, mask = _wanted_bool(mask, q, k), None
    ranges: Optional[Tensor] = None
    if mask is not None or lengths is not None:
        ranges = mask_ranges(
            mask_named(mask), q.shape[0], q.shape[2], k.shape[2], q.device, lengths
        )
    if not isinstance(score, str):
        want_score(score)
    if weights or not isinstance(score, str):
        scores = (
            _composed_scores(_terms(score, q, k, params or {}))
            if isinstance(score, str)
            else _own_scores(score, q, k)
        )
        if ranges is not None:
            within = _within(ranges, k.shape[2])
            seen = within if seen is None else seen & within
        return _composed(scores, v, seen, bias, weights)
    terms = _terms(score, q, k, params or {})
    if seen is not None:
        unseen = torch.zeros_like(seen, dtype=_wide(q.dtype)).masked_fill(~seen, -math.inf)
        unseen = unseen.expand(-1, q.shape[1], -1, -1)  # the kernel's bias is each head's own
        bias = unseen if bias is None else bias + unseen
    if bias is not None:
        bias = bias.to(_wide(terms.q.dtype))
        terms = terms._replace(bias=bias if terms.bias is None else terms.bias + bias)
    kind = "cuda" if q.is_cuda else "cpu"
    if not torch.is_autocast_enabled(kind):
        return _fused(terms, v, ranges)
    numbers = torch.get_autocast_dtype(kind) if kind == "cuda" else torch.float32
    with torch.autocast(kind, enabled=False):
        cast = terms._replace(q=terms.q.to(numbers), k=terms.k.to(numbers))
        return _fused(cast, v.to(numbers), ranges)


def _fused(t: Terms, value: Tensor, ranges: Optional[Tensor]) -> Tensor:
    if not t.q.dtype == t.k.dtype == value.dtype:
        raise ValueError(
            f"attend: types differ: q is {t.q.dtype}, k {t.k.dtype}, v {value.dtype}"
        )
    wide = _wide(t.q.dtype)
    v = t.v if t.v is None or t.v.dtype == wide else t.v.to(wide)
    bias = t.bias if t.bias is None or t.bias.dtype == wide else t.bias.to(wide)
    given = (t.q, t.k, value, v, bias, ranges, t.form, float(t.scale))
    context: Tensor = (_op if _is_seen(given) else _attention)(*given)[0]
    return context


def _composed(
    scores: Tensor, value: Tensor, seen: Optional[Tensor], bias: Optional[Tensor], weights: bool
) -> Any:
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
        found = scores.softmax(-1).masked_fill(~seen, 0)  # who sees nothing gets zeros
    else:
        found = scores.softmax(-1)
    each = scores.shape[1] // value.shape[1]
    value = value.repeat_interleave(each, dim=1) if each > 1 else value
    context = found.to(value.dtype) @ value  # scores with a bias are wider
    return (context, found) if weights else context


# ---- modules


class ScoreParameters(nn.Module):
    """The parameters of one of heed's scores, with heed's first values."""

    def __init__(self, score: str, **sizes: Any) -> None:
        super().__init__()
        self.score = score
        self._names: list[str] = []
        for name, first in score_parameters(score, **sizes).items():
            self.register_parameter("p_" + name, nn.Parameter(torch.from_numpy(first.copy())))
            self._names.append(name)

    def forward(self) -> dict[str, Tensor]:
        return {name: getattr(self, "p_" + name) for name in self._names}


class AdditiveAttention(nn.Module):
    """v^T tanh(W q + U k) (Bahdanau et al., 2015), fused.

    >>> additive = heed.torch.AdditiveAttention(query=8, key=6, size=16)
    >>> additive(torch.randn(2, 5, 8), torch.randn(2, 7, 6)).shape
    torch.Size([2, 5, 6])
    """

    def __init__(self, query: int, key: Optional[int] = None, size: Optional[int] = None) -> None:
        super().__init__()
        key = query if key is None else key
        seed = int(torch.randint(2**62, ()))
        self.parameters_of = ScoreParameters(
            "additive", query=query, key=key, size=size or query, seed=seed
        )

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Optional[Tensor] = None,
        *,
        mask: Union[Mask, str, Tensor, None] = None,
        lengths: Optional[Tensor] = None,
        weights: bool = False,
    ) -> Any:
        """q [B, Tq, query], k [B, Tk, key], v [B, Tk, m] (none: the keys): [B, Tq, m]."""
        return attend(
            q, k, k if v is None else v, "additive", params=self.parameters_of(), mask=mask,
            lengths=lengths, weights=weights,
        )


class MultiHead(nn.Module):
    """Several heads side by side (Vaswani et al., 2017), with any score: a name, or one of yours.

    >>> heads = heed.torch.MultiHead(16, heads=4, score="additive")
    >>> heads(torch.randn(2, 5, 16), mask="causal").shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        model: int,
        heads: int = 1,
        *,
        key_heads: Optional[int] = None,
        score: Score = "scaled_dot",
        size: int = 0,
        rank: int = 0,
        positions: int = 0,
    ) -> None:
        super().__init__()
        groups = key_heads or heads
        if model % heads or heads % groups:
            raise ValueError(
                f"MultiHead: {heads} heads of keys for {groups} want a model size that they divide, "
                f"given {model}"
            )
        self.heads, self.key_heads, self.head_size = heads, groups, model // heads
        self.query = nn.Linear(model, model)
        self.key = nn.Linear(model, groups * self.head_size)
        self.value = nn.Linear(model, groups * self.head_size)
        self.output = nn.Linear(model, model)
        self.score: Score = score
        self.score_parameters: Optional[ScoreParameters] = None
        if isinstance(score, str):
            self.score_parameters = ScoreParameters(
                score, query=self.head_size, key=self.head_size, heads=heads, key_heads=groups,
                size=size, rank=rank, positions=positions, seed=int(torch.randint(2**62, ())),
            )

    def forward(
        self,
        x: Tensor,
        memory: Optional[Tensor] = None,
        *,
        mask: Union[Mask, str, Tensor, None] = None,
        lengths: Optional[Tensor] = None,
        weights: bool = False,
    ) -> Any:
        """x [B, Tq, model] attends to memory [B, Tk, model], or to itself."""
        memory = x if memory is None else memory
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.key(memory).unflatten(-1, (self.key_heads, -1)).transpose(1, 2)
        v = self.value(memory).unflatten(-1, (self.key_heads, -1)).transpose(1, 2)
        params = None if self.score_parameters is None else self.score_parameters()
        found = attend(
            q, k, v, self.score, params=params, mask=mask, lengths=lengths, weights=weights
        )
        context = found[0] if weights else found
        y = self.output(context.transpose(1, 2).flatten(2).to(self.output.weight.dtype))
        return (y, found[1]) if weights else y


__all__ = ["AdditiveAttention", "MultiHead", "Score", "ScoreParameters", "Terms", "attend"]
