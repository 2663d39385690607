"""heed from Python on an NVIDIA GPU: first what agrees, then what it costs, beside PyTorch's own.

    PYTHONPATH=build/python python3 bench/python_gpu.py [part...]

Parts, all unless some are named: check, streams, arrays, model, time, overhead, peer. Times are
medians of 20 runs by the device's events; `peer` compiles for some minutes. Exits with 1 where
something does not agree.
"""

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

import heed
import heed.torch

LARGE = (8, 1024, 256)  # batch, queries and keys, size
failed: list[str] = []


def row(what: str, **figures: Any) -> None:
    print(json.dumps({"what": what, **figures}), flush=True)


def want(holds: bool, what: str) -> None:
    if not holds:
        failed.append(what)
        row("DOES NOT HOLD", said=what)


def rms(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt())


def randn(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device="cuda").to(kind)


def additive(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return heed.torch.attend(q, k, v, "additive", params={"v": w})


def by_sum(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return torch.softmax((torch.tanh(q.unsqueeze(-2) + k.unsqueeze(-3)) * w).sum(-1), -1) @ v


def by_product(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return torch.softmax((torch.tanh(q.unsqueeze(-2) + k.unsqueeze(-3)) @ w.mT)[..., 0], -1) @ v


def with_gradients(f: Callable[..., Tensor], inputs: Sequence[Tensor], pull: Tensor) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    made = f(*leaves)
    return [made.detach(), *torch.autograd.grad(made, leaves, pull.to(made.dtype), materialize_grads=True)]


# ---- what agrees


def check() -> None:
    """Root mean squares of errors against f64, as parts of the result's, and beside those of the
    same formula of torch's ops in the same type."""
    torch.manual_seed(1)
    for kind in (torch.float32, torch.bfloat16):
        for score in heed.scores():
            q, k, v = (randn(2, 4, t, 32, kind=kind) for t in (33, 47, 47))
            drawn = heed.score_parameters(score, query=32, heads=4, positions=64)
            names = list(drawn)
            params = [torch.from_numpy(drawn[n]).cuda().to(kind) for n in names]

            def of(weights: bool) -> Callable[..., Tensor]:
                def attend(q: Tensor, k: Tensor, v: Tensor, *p: Tensor) -> Tensor:
                    made = heed.torch.attend(q, k, v, score, params=dict(zip(names, p)),
                                             mask="causal", weights=weights)
                    return made[0] if weights else made

                return attend

            pull = randn(2, 4, 33, 32)
            exact = with_gradients(of(True), [x.double() for x in (q, k, v, *params)], pull)
            ours = with_gradients(of(False), [q, k, v, *params], pull)
            theirs = with_gradients(of(True), [q, k, v, *params], pull)
            agreement(f"{score}, {kind}", exact, ours, theirs)
    batch, length, size = LARGE
    q, k, v, w = randn(1, length, size), randn(1, length, size), randn(1, length, size), randn(1, size)
    pull = randn(1, length, size)
    agreement(
        f"additive, float32, {length} x {length} x {size}",
        with_gradients(by_sum, [x.double() for x in (q, k, v, w)], pull),
        with_gradients(additive, [q, k, v, w], pull), with_gradients(by_sum, [q, k, v, w], pull),
    )


def agreement(
    what: str, exact: Sequence[Tensor], ours: Sequence[Tensor], theirs: Sequence[Tensor]
) -> None:
    errors, ratios = [], []
    for e, o, t in zip(exact, ours, theirs):
        size, mine, plain = rms(e), rms(o - e), rms(t - e)
        errors.append(float(f"{mine / max(size, 1e-30):.1e}"))
        # Of what is zero in f64, or few numbers, a ratio says nothing.
        told = plain > 0 and size > 1e-12 and e.numel() >= 64
        ratios.append(round(mine / plain, 2) if told else 0.0)
    row("agrees", of=what, errors=errors, of_composed=ratios)
    want(all(np.isfinite(errors)), f"{what}: finite")
    want(max(ratios) <= 2, f"{what}: at most twice the composed error")


def streams() -> None:
    """Captured graphs, without and after warming up, side streams, threads, compile, autocast."""
    shape = (2, 64, 32)
    q, k, v, w = randn(*shape), randn(*shape), randn(*shape), randn(1, 32)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # on a stream that heed has not seen
        captured = additive(q, k, v, w)
    q.mul_(2)
    expected = additive(q, k, v, w)
    graph.replay()
    torch.cuda.synchronize()
    want(torch.equal(captured, expected), "a captured graph gives the same bits")

    leaves = [x.detach().requires_grad_() for x in (q, k, v, w)]
    pull = randn(*shape)
    step = torch.cuda.CUDAGraph()
    with torch.cuda.graph(step):
        grads = torch.autograd.grad(additive(*leaves), leaves, pull)
    step.replay()
    torch.cuda.synchronize()
    plain = torch.autograd.grad(additive(*leaves), leaves, pull)
    want(all(torch.equal(a, b) for a, b in zip(grads, plain)), "captured gradients")

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        beside = additive(q, k, v, w)
    side.synchronize()
    want(torch.equal(beside, expected), "a stream of its own")

    made: list[bool] = []

    def work() -> None:
        for _ in range(200):
            one = additive(q, k, v, w)
        made.append(torch.equal(one, expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    want(made == [True] * 4, f"four threads on one stream: {made}")

    module = heed.torch.MultiHead(64, 4, score="additive").cuda()
    x = randn(2, 33, 64)
    y = module(x, mask="causal")
    compiled = torch.compile(module, fullgraph=True)(x, mask="causal")
    want(rms(y.detach() - compiled.detach()) <= 1e-6, "torch.compile")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        low = module(x, mask="causal")
    want(rms(low.detach().float() - y.detach()) <= 0.02 * rms(y.detach()) and low.dtype == torch.bfloat16, "autocast")
    inputs, bias, pull = [randn(3, 2, 9, 8) for _ in range(3)], randn(1, 2, 9, 9), randn(3, 2, 9, 8)

    def biased(weights: bool) -> Callable[..., Tensor]:
        def attend(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
            made = heed.torch.attend(q, k, v, bias=b, weights=weights)
            return made[0] if weights else made

        return attend

    agreement("scaled_dot with a bias",
              with_gradients(biased(True), [x.double() for x in (*inputs, bias)], pull),
              with_gradients(biased(False), [*inputs, bias], pull),
              with_gradients(biased(True), [*inputs, bias], pull))
    try:
        heed.torch.attend(q.half(), k.half(), v.half())
        want(False, "float16 is refused")
    except TypeError:
        pass
    try:
        additive(q, k, v, w.cpu())
        want(False, "two devices are refused")
    except (ValueError, RuntimeError):
        pass
    row("streams", done=True)


def arrays() -> None:
    """CuPy's and JAX's arrays by DLPack."""
    for name in ("cupy", "jax"):
        try:
            library = __import__(name)
        except ImportError:
            row("arrays", skipped=name)
            continue
        given = [np.random.default_rng(i).standard_normal((3, 5, 8)).astype(np.float32)
                 for i in range(3)]
        expected = heed.attend(*(x.astype(np.float64) for x in given))
        if name == "cupy":
            with library.cuda.Stream(non_blocking=True):
                found = heed.attend(*(library.asarray(x) for x in given))
                kind, found = type(found), found.get()
            same = kind is library.ndarray
        else:
            on_gpu = library.devices("gpu")[0]
            found = heed.attend(*(library.device_put(x, on_gpu) for x in given))
            same = isinstance(found, library.Array)
            found = np.asarray(found)
        error = float(np.abs(found - expected).max())
        row("arrays", of=name, error=error, same_library=same)
        want(same and error < 1e-5, f"{name}'s arrays")


def model() -> None:
    """A translator that is trained and used on the GPU."""
    words = {"one": "un", "two": "deux", "three": "trois", "four": "quatre", "five": "cinq"}
    rng = np.random.default_rng(1)
    lines = [[str(w) for w in rng.choice(list(words), rng.integers(1, 7))] for _ in range(2000)]
    source = [" ".join(x) for x in lines]
    target = [" ".join(words[w] for w in x) for x in lines]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "m")
        done = heed.train(source, target, path, preset="rnn-small", tokens="words", steps=400,
                          rate=4e-3, warmup=50, average=0.99, batch_tokens=1024, anyway=True,
                          device="cuda")
        on_gpu = heed.Translator(path, device="cuda")
        texts = [r.text for r in on_gpu.translate(source[:200])]
        on_cpu = [r.text for r in heed.Translator(path, device="cpu").translate(source[:200])]
        attention = on_gpu.translate("one two three").attention
        right = sum(a == b for a, b in zip(texts, target)) / 200
        equal = sum(a == b for a, b in zip(texts, on_cpu)) / 200
        row("model", steps=done.steps, right=right, as_on_cpu=equal, attention=attention.shape)
        want(right > 0.9 and equal > 0.99, "a translator on the GPU")


# ---- what it costs


def median_ms(f: Callable[[], Any], times: int = 20) -> float:
    for _ in range(5):
        f()
    torch.cuda.synchronize()
    # The device is kept busy: what the host does meanwhile is measured by itself, in overhead().
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(times)]
    torch.cuda._sleep(10_000_000)
    for begin, end in events:
        begin.record()
        f()
        end.record()
    torch.cuda.synchronize()
    return round(sorted(a.elapsed_time(b) for a, b in events)[times // 2], 3)


def megabytes(f: Callable[[], Any]) -> int:
    f()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    made = f()
    torch.cuda.synchronize()
    del made
    return (torch.cuda.max_memory_allocated() - before) >> 20


def large(kind: torch.dtype = torch.float32) -> Tuple[list[Tensor], Tensor]:
    inputs = [randn(*LARGE, kind=kind) for _ in range(3)] + [randn(1, LARGE[2])]
    return [x.requires_grad_() for x in inputs], randn(*LARGE, kind=kind)


def time_of(what: str, f: Callable[..., Tensor], inputs: list[Tensor], pull: Tensor) -> None:
    def forward() -> Tensor:
        with torch.no_grad():
            return f(*inputs)

    def both() -> Any:
        return torch.autograd.grad(f(*inputs), inputs, pull)

    row(what, forward_ms=median_ms(forward), both_ms=median_ms(both),
        forward_mb=megabytes(forward), both_mb=megabytes(both))


def timed() -> None:
    for kind in (torch.float32, torch.bfloat16):
        inputs, pull = large(kind)
        time_of(f"heed, {kind}", additive, inputs, pull)
    inputs, pull = large()
    both = lambda: torch.autograd.grad(additive(*inputs), inputs, pull)  # noqa: E731
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(10):
            both()
        torch.cuda.synchronize()
    for event in sorted(profile.key_averages(), key=lambda e: -e.device_time_total):
        if event.device_time_total > 100:
            row("kernel", name=event.key[:60], ms=round(event.device_time_total / 1e4, 4))
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        for _ in range(10):
            additive(*inputs)
    row("in a graph", forward_ms=round(median_ms(graph.replay) / 10, 4))


def microseconds(calls: Sequence[Callable[[], Any]], times: int = 300) -> list[float]:
    """Of each, the best of 15 rounds in turn."""
    best = [float("inf")] * len(calls)
    for _ in range(15):
        for i, call in enumerate(calls):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(times):
                call()
            best[i] = min(best[i], (time.perf_counter() - begin) / times * 1e6)
    torch.cuda.synchronize()
    return [round(x, 2) for x in best]


@torch.library.custom_op("bench::empty", mutates_args=())
def empty(
    q: Tensor, k: Tensor, value: Tensor, v: Optional[Tensor], bias: Optional[Tensor],
    ranges: Optional[Tensor], form: str, scale: float,
) -> Tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:3], value.shape[3]), q.new_empty(q.shape[:3])


@torch.library.custom_op("bench::empty_backward", mutates_args=())
def empty_backward(
    dcontext: Tensor, q: Tensor, k: Tensor, value: Tensor, v: Optional[Tensor],
    bias: Optional[Tensor], ranges: Optional[Tensor], context: Tensor, lse: Tensor, form: str,
    scale: float, wants_bias: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dv = q.new_empty(0) if v is None else torch.empty_like(v)
    return tuple(torch.empty_like(x) for x in (q, k, value)) + (dv, q.new_empty(0))  # type: ignore


def _setup(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[:6], *output)


def _back(ctx: Any, dcontext: Tensor, dlse: Optional[Tensor]) -> Tuple[Optional[Tensor], ...]:
    found = torch.ops.bench.empty_backward(dcontext, *ctx.saved_tensors, "additive", 1.0, False)
    return (*found[:4], None, None, None, None)


empty.register_autograd(_back, setup_context=_setup)


def overhead() -> None:
    """Of a call, on the CPU's side: beside an op of the same signature that does nothing."""
    x, w, pull = randn(1, 1, 32, 32), randn(1, 32), randn(1, 1, 32, 32)
    leaves = [t.detach().requires_grad_() for t in (x, x, x, w)]

    def nothing(q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        made: Tensor = torch.ops.bench.empty(q, k, v, w, None, None, "additive", 1.0)[0]
        return made

    def both(f: Callable[..., Tensor]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(f(*leaves), leaves, pull)

    y = x[0]
    plain, ours, three, op, plain_both, ours_both = microseconds([
        lambda: nothing(x, x, x, w),
        lambda: additive(x, x, x, w),
        lambda: additive(y, y, y, w),
        lambda: torch.ops.heed.attention(x, x, x, w, None, None, "additive", 1.0),
        both(nothing),
        both(additive),
    ])
    row("overhead, forward, us", empty=plain, op=op, attend=ours, attend_3d=three,
        more=round(ours - plain, 2))
    row("overhead, with gradients, us", empty=plain_both, attend=ours_both,
        more=round(ours_both - plain_both, 2))
    want(ours - plain <= 20, f"at most 20 us more than an empty op: {ours - plain:.1f}")


def peer() -> None:
    """PyTorch's own, compiled: two ways to write it, and two of its modes."""
    torch.backends.cuda.matmul.allow_tf32 = True
    torch._inductor.config.max_autotune_gemm_backends = "ATEN"  # which it takes in any case
    inputs, pull = large()
    for f in (by_sum, by_product):
        for mode in ("default", "max-autotune-no-cudagraphs", "max-autotune"):
            torch._dynamo.reset()
            begin = time.perf_counter()
            try:
                time_of(f"PyTorch {f.__name__}, {mode}", torch.compile(f, mode=mode), inputs, pull)
            except Exception as error:  # the peer's own trouble
                row(f"PyTorch {f.__name__}, {mode}", error=str(error)[:200])
            row("compiled and timed", seconds=round(time.perf_counter() - begin))


def main() -> int:
    parts: dict[str, Callable[[], None]] = {
        "check": check, "streams": streams, "arrays": arrays, "model": model, "time": timed,
        "overhead": overhead, "peer": peer,
    }
    if not torch.cuda.is_available():
        print("python_gpu: no GPU that PyTorch sees")
        return 3
    row("machine", gpu=torch.cuda.get_device_name(), torch=torch.__version__, heed=heed.__version__)
    for name in sys.argv[1:] or parts:
        try:
            parts[name]()
        except Exception as error:
            want(False, f"{name}: {type(error).__name__}: {error}")
            if "--raise" in sys.argv:
                raise
    print("failed:", failed if failed else "nothing")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
