import importlib.util
import unittest

import numpy as np

import heed

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch

import heed.torch

torch.manual_seed(1)


def tensors(*shapes, kind=torch.float64):
    return [torch.randn(*shape, dtype=kind, requires_grad=True) for shape in shapes]


def additive(q, k, v, w):
    """The formula in torch's own ops."""
    scores = (torch.tanh(q[..., :, None, :] + k[..., None, :, :]) * w[:, None, None, :]).sum(-1)
    return scores.softmax(-1) @ v


def plain_additive(q, k, v, w, pull):
    """The context and the gradients in the kernel's arithmetic, by plain ops: tanh(q + k) = 1 - 2 r,
    r = 1 / (1 + e^(2q) e^(2k)), of which four share a division (docs/decisions/python.md)."""
    y = 1 + torch.exp(2 * q)[..., :, None, :] * torch.exp(2 * k)[..., None, :, :]
    y = y.unflatten(-1, (4, -1))
    y01, y23 = y[..., 0, :] * y[..., 1, :], y[..., 2, :] * y[..., 3, :]
    one = 1 / (y01 * y23)
    r01, r23 = one * y23, one * y01
    r = torch.stack([r01 * y[..., 1, :], r01 * y[..., 0, :], r23 * y[..., 3, :], r23 * y[..., 2, :]],
                    -2).flatten(-2)
    weights = (w.sum(-1)[:, None, None] - 2 * (r * w[:, None, None, :]).sum(-1)).softmax(-1)
    context = weights @ v
    ds = weights * (pull @ v.mT - (pull * context).sum(-1, keepdim=True))
    a = ds[..., None] * r
    u = 4 * (a - a * r)
    return (context, w[:, None] * u.sum(-2), w[:, None] * u.sum(-3), weights.mT @ pull,
            (ds[..., None] - 2 * a).sum((0, 2, 3)))


class Torch(unittest.TestCase):
    def test_additive_agrees_with_the_formula(self):
        for seed in range(3):
            torch.manual_seed(seed)
            exact = tensors((4, 2, 33, 16), (4, 2, 47, 16), (4, 2, 47, 8), (2, 16))
            reference = additive(*exact)
            inputs = [x.detach().float().requires_grad_() for x in exact]
            ours = heed.torch.attend(*inputs[:3], "additive", params={"v": inputs[3]})
            error = (ours - reference).abs().max()
            self.assertLessEqual(error, 2 * (additive(*inputs) - reference).abs().max())

    def test_gradients_in_float32_are_as_exact_as_plain_loops_of_the_same_arithmetic(self):
        def rms(x):
            return x.double().square().mean().sqrt()

        for seed in range(3):
            for scale in (0.1, 1, 3):
                torch.manual_seed(seed)
                inputs = [x.float() for x in tensors((2, 2, 33, 32), (2, 2, 47, 32), (2, 2, 47, 8),
                                                     (2, 32))]
                inputs = [scale * x for x in inputs[:2]] + inputs[2:]
                inputs = [x.detach().requires_grad_() for x in inputs]
                exact = [x.detach().double().requires_grad_() for x in inputs]
                reference = additive(*exact)
                pull = torch.randn_like(reference).float()
                wanted = reference, *torch.autograd.grad(reference, exact, pull.double())
                ours = heed.torch.attend(*inputs[:3], "additive", params={"v": inputs[3]})
                found = ours, *torch.autograd.grad(ours, inputs, pull)
                plain = plain_additive(*(x.detach() for x in inputs), pull)
                for w, f, p in zip(wanted, found, plain):
                    self.assertLessEqual(rms(f - w), 2 * rms(p - w))
                    self.assertLess(rms(f - w), 1e-5 * rms(w))

    def test_float32_errs_at_most_twice_as_much_as_the_composed_form(self):
        # Of 60 draws together: of one alone some result's may be three times as large.
        for size in (32, 64):
            squares = np.zeros((2, 5))  # of errors: ours and the composed form's, of each result
            for seed in range(60):
                torch.manual_seed(seed)
                exact = tensors((1, 1, 65, size), (1, 1, 77, size), (1, 1, 77, 16), (1, size))
                inputs = [x.detach().float().requires_grad_() for x in exact]
                pull = torch.randn(1, 1, 65, 16)

                def fused(q, k, v, w):
                    return heed.torch.attend(q, k, v, "additive", params={"v": w})

                def found(attention, given):
                    made = attention(*given)
                    return made, *torch.autograd.grad(made, given, pull.to(made.dtype))

                wanted = found(additive, [x.detach().float().double().requires_grad_() for x in exact])
                for i, attention in enumerate((fused, additive)):
                    errors = (f - w for f, w in zip(found(attention, inputs), wanted))
                    squares[i] += [e.square().sum().item() for e in errors]
            with self.subTest(size):
                self.assertTrue((squares[0] <= 4 * squares[1]).all(), squares[0] / squares[1])

    def test_gradients_of_every_score(self):
        q, k, v = tensors((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3))
        for score in heed.scores():
            p = heed.score_parameters(score, query=4, heads=2, positions=6, dtype=np.float64)
            params = {n: torch.from_numpy(a).requires_grad_() for n, a in p.items()}
            with self.subTest(score):
                def of(q, k, v, *values):
                    return heed.torch.attend(q, k, v, score, params=dict(zip(params, values)),
                                             mask="causal")

                self.assertTrue(torch.autograd.gradcheck(of, (q, k, v, *params.values())))
                composed, w = heed.torch.attend(q, k, v, score, params=params, weights=True)
                torch.testing.assert_close(
                    heed.torch.attend(q, k, v, score, params=params), composed
                )
                torch.testing.assert_close(w.sum(-1), torch.ones(2, 2, 3, dtype=torch.float64))

    def test_the_bias_and_grouped_heads_have_gradients(self):
        q, k, v, b = tensors((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), (1, 4, 3, 5))
        self.assertTrue(torch.autograd.gradcheck(
            lambda q, k, v, b: heed.torch.attend(q, k, v, bias=b), (q, k, v, b)))

    def test_masks(self):
        q, k, v = tensors((2, 2, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3))
        for mask in (heed.Mask.causal(), heed.Mask.past(), heed.Mask.window(1, 2),
                     heed.Mask.padding([7, 3]), heed.Mask.padding([2, 5]) & heed.Mask.window(2, 0)):
            with self.subTest(mask):
                expected = heed.attend(*(x.detach().numpy() for x in (q, k, v)), mask=mask)
                found = heed.torch.attend(q, k, v, mask=mask)
                np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12)
        seen = torch.ones(5, 7, dtype=torch.bool).tril()
        causal, w = heed.torch.attend(q, k, v, mask="causal", weights=True)
        for mask in (seen, seen[None], seen.expand(2, 5, 7), seen.expand(2, 2, 5, 7)):
            torch.testing.assert_close(heed.torch.attend(q, k, v, mask=mask), causal)
            torch.testing.assert_close(heed.torch.attend(q, k, v, mask=mask, weights=True)[1], w)
        torch.testing.assert_close(heed.attend(*(x.detach() for x in (q, k, v)), mask=seen),
                                   causal.detach())
        nothing = torch.zeros(5, 7, dtype=torch.bool)
        for weights in (False, True):  # who sees nothing gets zeros
            found = heed.torch.attend(q, k, v, mask=nothing, weights=weights)
            self.assertEqual((found[0] if weights else found).abs().max(), 0)
        lengths = heed.torch.attend(q, k, v, lengths=torch.tensor([7, 3]))
        torch.testing.assert_close(lengths, heed.torch.attend(q, k, v, mask=heed.Mask.padding([7, 3])))

    def test_tensors_come_and_go_without_a_copy(self):
        q, k, v = (x.detach() for x in tensors((3, 4), (5, 4), (5, 2)))
        found = heed.attend(q, k, v)
        self.assertIsInstance(found, torch.Tensor)
        torch.testing.assert_close(found, (q @ k.T / 2).softmax(-1) @ v)

    def test_no_second_derivatives(self):
        q, k, v = tensors((1, 1, 2, 3), (1, 1, 2, 3), (1, 1, 2, 3))
        first, = torch.autograd.grad(heed.torch.attend(q, k, v).sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "first derivatives only"):
            first.sum().backward()

    def test_the_op_is_a_custom_op(self):
        q, k, v, w = tensors((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3), (2, 4))
        torch.library.opcheck(torch.ops.heed.attention.default,
                              (q, k, v, w, None, None, "additive", 1.0))

    def test_the_op_is_seen_by_whoever_looks(self):
        q, k, v = (x.detach() for x in tensors((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)))
        seen = []

        class Mode(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, op, kinds, given=(), named=None):
                seen.append(str(op))
                return op(*given, **(named or {}))

        plain = heed.torch.attend(q, k, v)  # past the dispatcher
        with Mode():
            self.assertTrue(torch.equal(heed.torch.attend(q, k, v), plain))
        self.assertIn("heed.attention.default", seen)
        with torch.profiler.profile() as profile:
            heed.torch.attend(q, k, v)
        self.assertIn("heed::attention", {e.key for e in profile.key_averages()})
        # What only the dispatcher knows how to read: numbers whose sign is still to be turned.
        turned = torch.view_as_complex(torch.randn(2, 2, 3, 4, 2).double()).conj().imag
        self.assertTrue(turned.is_neg())
        torch.testing.assert_close(heed.torch.attend(turned, k, v),
                                   heed.torch.attend(turned.clone(), k, v))
        meta = heed.torch.attend(q.to("meta"), k.to("meta"), v.to("meta"))
        self.assertEqual((meta.device.type, meta.shape), ("meta", plain.shape))

    def test_compiled(self):
        module = heed.torch.MultiHead(16, 4, score="additive")
        x = torch.randn(2, 5, 16)
        plain = module(x, mask="causal")
        # Traced whole, forward and backward, as inductor gets it, without its C++ compiler.
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        found = compiled(x, mask="causal")
        torch.testing.assert_close(found, plain)
        grads = torch.autograd.grad(found.sum(), list(module.parameters()))
        wanted = torch.autograd.grad(plain.sum(), list(module.parameters()))
        for a, b in zip(grads, wanted):
            torch.testing.assert_close(a, b)

    def test_autocast(self):
        module = heed.torch.MultiHead(16, 4)
        x = torch.randn(2, 5, 16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = module(x)
        torch.testing.assert_close(found.float(), module(x), rtol=0.05, atol=0.05)
        found.float().sum().backward()
        self.assertEqual(module.query.weight.grad.dtype, torch.float32)

    def test_modules_learn(self):
        torch.manual_seed(3)
        module = heed.torch.AdditiveAttention(query=8, size=16)
        adam = torch.optim.Adam(module.parameters(), lr=0.02)
        k = torch.randn(16, 6, 8)
        v = torch.randn(16, 6, 4)
        q = k[:, 2:3]  # to find what is alike
        losses = []
        for _ in range(60):
            loss = (module(q, k, v) - v[:, 2:3]).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0] / 2)

    def test_scores_of_ones_own(self):
        class InTorch(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.gain = torch.nn.Parameter(torch.ones(()).double())

            def forward(self, q, k):
                return -self.gain * torch.cdist(q, k).square()

        class InNumpy:
            def forward(self, q, k):
                return -((q[..., :, None, :] - k[..., None, :, :]) ** 2).sum(-1)

            def backward(self, q, k, dscores):
                d = -2 * (q[..., :, None, :] - k[..., None, :, :]) * dscores[..., None]
                return d.sum(-2), -d.sum(-3)

        q, k, v = tensors((2, 1, 3, 4), (2, 1, 5, 4), (2, 1, 5, 3))
        a = heed.torch.attend(q, k, v, InTorch(), mask="causal")
        b = heed.torch.attend(q, k, v, InNumpy(), mask="causal")
        torch.testing.assert_close(a, b)
        self.assertTrue(torch.autograd.gradcheck(
            lambda q, k, v: heed.torch.attend(q, k, v, InNumpy()), (q, k, v)))
        own = InTorch()
        heads = heed.torch.MultiHead(8, 2, score=own).double()
        heads(torch.randn(2, 3, 8).double()).sum().backward()
        self.assertIsNotNone(own.gain.grad)  # it is a part of the module, and learns

        class Wrong:
            def forward(self, q, k):
                return q

        with self.assertRaisesRegex(ValueError, "the score gave"):
            heed.torch.attend(q, k, v, Wrong())

    def test_mistakes(self):
        q, k, v = tensors((2, 1, 3, 4), (2, 1, 5, 4), (2, 1, 5, 3))
        for wrong, kind, said in (
            (lambda: heed.torch.attend(q, k[..., :2], v), ValueError, "sizes do not fit"),
            (lambda: heed.torch.attend(q, k.float(), v), ValueError, "types differ"),
            (lambda: heed.torch.attend(q.half(), k.half(), v.half()), TypeError, "float16"),
            (lambda: heed.torch.attend(q.bfloat16(), k.bfloat16(), v.bfloat16()), ValueError,
             "no kernel for bf16 on cpu"),
            (lambda: heed.torch.attend(q.to("meta"), k, v), ValueError, "one device"),
            (lambda: heed.torch.attend(q, k, 3), TypeError, "given int"),
            (lambda: heed.torch.attend(q, k, v, "additive"), ValueError, "parameter v"),
            (lambda: heed.torch.attend(q, k, v, "cosin"), ValueError, "did you mean"),
            (lambda: heed.torch.attend(q, k, v, lengths=torch.tensor([1])), ValueError, "lengths"),
            (lambda: heed.torch.MultiHead(10, 3), ValueError, "given 10"),
            (lambda: heed.torch.attend(q, k, v, mask=torch.ones(3, 5)), TypeError, "wants bool"),
            (lambda: heed.torch.attend(q, k, v, mask=torch.ones(3, 4).bool()), ValueError, "3, 4"),
            (lambda: heed.torch.attend(q, k, v, "dot", params={"W": q}), ValueError, "no parameter"),
            (lambda: heed.torch.attend(q, k, v, None), TypeError, "given None"),
        ):
            with self.subTest(said), self.assertRaisesRegex(kind, said):
                wrong()


if __name__ == "__main__":
    unittest.main()
