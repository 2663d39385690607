import unittest

import numpy as np

import heed
import toy


class Language(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if toy.language_model() is None:
            raise unittest.SkipTest("HEED_PROGRAM does not name the program, which trains the model")
        cls.model = heed.LanguageModel(toy.language_model(), device="cpu")

    def test_scores(self):
        self.assertTrue(self.model.of_lines)
        good, bad = self.model.score(["the cat sleeps .", ". . cat the"])
        self.assertLess(good.perplexity_by_piece, bad.perplexity_by_piece)
        whole = self.model.score("the cat sleeps .\n. . cat the\n")
        self.assertAlmostEqual(whole.log_probability, good.log_probability + bad.log_probability, 4)
        self.assertEqual((good.pieces, good.words), (5, 5))  # with the end

    def test_reads(self):
        r = self.model.read("the cat sleeps .")
        self.assertEqual(r.predicted, ["the", "cat", "sleeps", ".", "</s>"])
        self.assertEqual(r.log_probability.shape, (5,))
        self.assertEqual(len(r.attention), 2)
        np.testing.assert_allclose(r.attention[0].sum(-1), 1, rtol=1e-5)
        self.assertFalse(r.attention[0].flags.owndata)

    def test_generates(self):
        a, b = (self.model.generate("the cat", length=6, seed=s, count=2) for s in (5, 5))
        self.assertEqual([g.text for g in a], [g.text for g in b])
        self.assertEqual(len(a), 2)
        self.assertTrue(a[0].text.startswith("the cat"))
        self.assertTrue(self.model.generate("the", sample=False, beam=2, length=4)[0].text)
        with self.assertRaisesRegex(ValueError, "length"):
            self.model.generate("the", length=0)
        with self.assertRaisesRegex(TypeError, "length"):
            self.model.generate("the", length=2.5)
        with self.assertRaisesRegex(TypeError, "given int"):
            self.model.score([3])
        with self.assertRaisesRegex(TypeError, "given int"):
            self.model.score(3)
        with self.assertRaises(FileNotFoundError):
            heed.LanguageModel("/nowhere")


class Embedding(unittest.TestCase):
    def test_vectors_of_words(self):
        embedder = heed.Embedder(toy.model(), device="cpu")
        one = embedder.embed("the cat sleeps .")
        self.assertEqual(one.words, ["the", "cat", "sleeps", "."])
        self.assertEqual(one.vectors.shape[0], 4)
        self.assertEqual(one.vectors.dtype, np.float32)
        self.assertFalse(one.vectors.flags.owndata)
        table = embedder.embed(["the cat", "the cat sleeps ."], layer=0)
        np.testing.assert_array_equal(table[0].vectors, table[1].vectors[:2])
        lazy = list(embedder.embed(iter(["the cat"] * 3)))
        self.assertEqual(len(lazy), 3)
        with self.assertRaises(ValueError):
            embedder.embed("the cat", layer=99)
        for wrong in (b"the cat", 3, [3]):
            with self.assertRaisesRegex(TypeError, f"given {type(wrong).__name__}|given int"):
                embedder.embed(wrong)


if __name__ == "__main__":
    unittest.main()
