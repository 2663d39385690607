import unittest

import numpy as np

import heed
from heed import _core

rng = np.random.default_rng(1)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class OnlyDlpack:
    """An array of a library that heed does not know."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **kwargs):
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Fused(unittest.TestCase):
    """The kernel as other frameworks' ops have it: every array is the caller's."""

    def setUp(self):
        self.inputs = dict(
            q=rng.normal(size=(2, 4, 3, 5)), k=rng.normal(size=(2, 2, 6, 5)),
            value=rng.normal(size=(2, 2, 6, 4)), v=rng.normal(size=(4, 5)),
            bias=rng.normal(size=(1, 4, 3, 6)),
            ranges=np.array([[[[0, 6], [1, 4], [2, 2]]]], np.int32),
        )

    def forward(self, **changed):
        made = dict(context=np.full((2, 4, 3, 4), np.nan), lse=np.full((2, 4, 3), np.nan))
        _core.fused_forward("additive", 1.0, (*{**self.inputs, **changed}.values(),),
                            (*made.values(),), 0, None)
        return made

    def test_gradients_by_differences(self):
        made = self.forward()
        np.testing.assert_array_equal(made["context"][:, :, 2], 0)  # who sees nothing gets zeros
        pull = rng.normal(size=(2, 4, 3, 4))
        names = dict(q="dq", k="dk", value="dvalue", v="dv", bias="dbias")
        grads = {d: np.full_like(self.inputs[x], np.nan) for x, d in names.items()}
        _core.fused_backward("additive", 1.0, (*self.inputs.values(),), (*made.values(), pull),
                             (*grads.values(),), 0, None)
        for name, gradient in names.items():
            way = rng.normal(size=self.inputs[name].shape)
            step = 1e-6
            up, down = (
                (self.forward(**{name: self.inputs[name] + s * way})["context"] * pull).sum()
                for s in (step, -step)
            )
            self.assertAlmostEqual((grads[gradient] * way).sum(), (up - down) / (2 * step), 5, name)

    def test_memory_that_does_not_fit_is_refused(self):
        with self.assertRaisesRegex(ValueError, "context wants"):
            _core.fused_forward("additive", 1.0, (*self.inputs.values(),),
                                (np.zeros((2, 4, 3, 3)), np.zeros((2, 4, 3))), 0, None)


class Attend(unittest.TestCase):
    def setUp(self):
        self.q, self.k = rng.normal(size=(2, 3, 5, 8)), rng.normal(size=(2, 3, 7, 8))
        self.v = rng.normal(size=(2, 3, 7, 4))

    def test_scaled_dot(self):
        weights = softmax(self.q @ self.k.swapaxes(-1, -2) / np.sqrt(8))
        context, found = heed.attend(self.q, self.k, self.v, weights=True)
        np.testing.assert_allclose(found, weights, rtol=1e-12)
        np.testing.assert_allclose(context, weights @ self.v, rtol=1e-12)

    def test_additive_by_its_formula(self):
        p = heed.score_parameters("additive", query=8, heads=3, size=6, dtype=np.float64)
        hidden = np.tanh((self.q @ p["W"])[..., :, None, :] + (self.k @ p["U"])[..., None, :, :])
        scores = (hidden * p["v"][:, None, None]).sum(-1)
        found = heed.attend(self.q, self.k, self.v, "additive", params=p)
        np.testing.assert_allclose(found, softmax(scores) @ self.v, rtol=1e-10)

    def test_every_score_and_every_way_to_weigh(self):
        for score in heed.scores():
            p = heed.score_parameters(score, query=8, heads=3, positions=9, dtype=np.float64)
            for weigh in heed.weighings():
                with self.subTest(score=score, weigh=weigh):
                    _, w = heed.attend(self.q, self.k, self.v, score, params=p, weigh=weigh,
                                       weights=True)
                    np.testing.assert_allclose(w.sum(-1), 1, rtol=1e-9)

    def test_masks(self):
        mask = heed.Mask.padding([7, 3]) & heed.Mask.causal()
        _, w = heed.attend(self.q, self.k, self.v, mask=mask, weights=True)
        i, j = np.arange(5)[:, None], np.arange(7)
        np.testing.assert_array_equal(w[0] > 0, np.broadcast_to(j <= i, (3, 5, 7)))
        np.testing.assert_array_equal(w[1] > 0, np.broadcast_to((j <= i) & (j < 3), (3, 5, 7)))
        _, by_array = heed.attend(self.q, self.k, self.v, mask=j <= i, weights=True)
        _, causal = heed.attend(self.q, self.k, self.v, mask="causal", weights=True)
        np.testing.assert_allclose(by_array, causal, rtol=1e-12)

    def test_axes_may_be_left_out_and_strides_be_any(self):
        whole = heed.attend(self.q, self.k, self.v)
        np.testing.assert_array_equal(
            heed.attend(self.q[:, 0], self.k[:, 0], self.v[:, 0]), whole[:, 0]
        )
        np.testing.assert_array_equal(
            heed.attend(self.q[1, 2], self.k[1, 2], self.v[1, 2]), whole[1, 2]
        )
        fortran = [np.asfortranarray(x) for x in (self.q, self.k, self.v)]
        np.testing.assert_array_equal(heed.attend(*fortran), whole)
        backwards = heed.attend(self.q[:, :, ::-1], self.k, self.v)
        np.testing.assert_array_equal(backwards, whole[:, :, ::-1])

    def test_float32_and_grouped_heads(self):
        q, k, v = (x.astype(np.float32) for x in (self.q, self.k[:, :1], self.v[:, :1]))
        found = heed.attend(q, k, v)
        self.assertEqual(found.dtype, np.float32)
        for h in range(3):
            np.testing.assert_allclose(found[:, h], heed.attend(q[:, h], k[:, 0], v[:, 0]), rtol=1e-5)

    def test_anything_with_dlpack(self):
        expected = heed.attend(self.q, self.k, self.v)
        found = heed.attend(OnlyDlpack(self.q), OnlyDlpack(self.k), OnlyDlpack(self.v))
        np.testing.assert_array_equal(found, expected)

    def test_a_score_of_ones_own(self):
        class Euclidean:
            def forward(self, q, k):
                return -((q[..., :, None, :] - k[..., None, :, :]) ** 2).sum(-1)

        w = softmax(Euclidean().forward(self.q, self.k))
        np.testing.assert_allclose(
            heed.attend(self.q, self.k, self.v, Euclidean()), w @ self.v, rtol=1e-10
        )
        np.testing.assert_allclose(
            heed.attend(self.q[:, 0], self.k[:, 0], self.v[:, 0], Euclidean()),
            (w @ self.v)[:, 0], rtol=1e-10,
        )

    def test_memory_of_any_kind(self):
        q, k, v = (x[0, 0].astype(np.float32) for x in (self.q, self.k, self.v))
        expected = heed.attend(q, k, v)
        odd = np.frombuffer(b"x" + q.tobytes(), np.uint8)[1:].view(np.float32).reshape(q.shape)
        self.assertFalse(odd.flags.aligned)
        np.testing.assert_array_equal(heed.attend(odd, k, v), expected)
        rows = np.zeros(len(q), [("n", "i1"), ("row", "f4", 8)])
        rows["row"] = q
        np.testing.assert_array_equal(heed.attend(rows["row"], k, v), expected)
        fixed = q.copy()
        fixed.flags.writeable = False
        np.testing.assert_array_equal(heed.attend(fixed, k, v), expected)
        same = np.broadcast_to(q, (4, *q.shape))
        found = heed.attend(same, np.broadcast_to(k, (4, *k.shape)), np.broadcast_to(v, (4, *v.shape)))
        np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))
        for nothing in (q[:0], q):
            self.assertEqual(heed.attend(nothing, k[:0], v[:0]).shape, (len(nothing), 4))
        np.testing.assert_array_equal(heed.attend(q, k, v, mask=np.zeros((5, 7), bool)), 0)

    def test_mistakes(self):
        class Wrong:
            def forward(self, q, k):
                return q

        for wrong, kind, said in (
            (lambda: heed.attend(self.q, self.k[..., :4], self.v), ValueError, "queries of size 8"),
            (lambda: heed.attend(self.q, self.k, self.v[:, :, :3]), ValueError, "belong together"),
            (lambda: heed.attend(self.q, self.k, self.v, "cosin"), ValueError, "did you mean"),
            (lambda: heed.attend(self.q, self.k, self.v, "additive"), ValueError, "parameter W"),
            (lambda: heed.attend(self.q.astype(int), self.k, self.v), TypeError, "int64"),
            (lambda: heed.attend(self.q.astype(np.float32), self.k, self.v), ValueError, "f32"),
            (lambda: heed.attend([1.0], self.k, self.v), TypeError, "given list"),
            (lambda: heed.attend(self.q, self.k, self.v, mask="causl"), ValueError, "causl"),
            (lambda: heed.attend(self.q, self.k, self.v, mask=heed.Mask.padding([1])), ValueError,
             "1"),
            (lambda: heed.attend(self.q, self.k, self.v, temperature=0), ValueError, "temperature"),
            (lambda: heed.Mask.padding([1]) & heed.Mask.padding([2]), ValueError, "different"),
            (lambda: heed.attend(np.ma.array(self.q), self.k, self.v), TypeError, "masked array"),
            (lambda: heed.attend(*[x.astype(np.int32) for x in (self.q, self.k, self.v)]),
             TypeError, "int32"),
            (lambda: heed.attend(self.q, self.k, self.v, mask=[[True]]), TypeError, "given list"),
            (lambda: heed.attend(self.q, self.k, self.v, mask=np.ones((5, 7))), TypeError, "bool"),
            (lambda: heed.attend(self.q, self.k, self.v, None), TypeError, "given None"),
            (lambda: heed.attend(self.q, self.k, self.v, Wrong), TypeError, "the class Wrong"),
            (lambda: heed.attend(self.q, self.k, self.v, Wrong()), ValueError, "score_bias wants"),
            (lambda: heed.attend(self.q, self.k, self.v, "dot", params={"W": self.q}), ValueError,
             "no parameter W"),
            (lambda: heed.attend(self.q, self.k, self.v, params=[1]), TypeError, "dict"),
            (lambda: heed.attend(self.q, self.k, self.v, temperature="1"), TypeError, "given '1'"),
            (lambda: heed.attend(np.array(1.0), self.k, self.v), ValueError, "0 axes"),
            (lambda: heed.attend(self.q[None], self.k[None], self.v[None]), ValueError, "given"),
            (lambda: heed.score_parameters("additive", query=0), ValueError, "query"),
        ):
            with self.subTest(said), self.assertRaisesRegex(kind, said):
                wrong()


if __name__ == "__main__":
    unittest.main()
