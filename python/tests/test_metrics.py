import unittest

import heed.metrics

# From sacreBLEU 2.6.0 itself.
HYPOTHESES = ["The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."]
REFERENCES = [
    ["The dog bit the man.", "It was not unexpected.", "The man bit him first."],
    ["The dog had bit the man.", "No one was surprised.", "The man had bitten the dog."],
]


class Metrics(unittest.TestCase):
    def test_sacrebleus_numbers(self):
        bleu = heed.metrics.bleu(HYPOTHESES, REFERENCES)
        self.assertAlmostEqual(bleu.score, 48.530827009929865, places=12)
        self.assertEqual(
            bleu.signature, "nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
        )
        self.assertIn("BLEU", str(bleu))
        self.assertIn("48.53", str(bleu))
        self.assertEqual(float(bleu), bleu.score)
        self.assertEqual(len(bleu.lines), 3)
        one = heed.metrics.bleu(HYPOTHESES, REFERENCES[0])
        self.assertEqual(one.score, heed.metrics.bleu(HYPOTHESES, [REFERENCES[0]]).score)
        lazy = heed.metrics.bleu(iter(HYPOTHESES), (iter(r) for r in REFERENCES))
        self.assertEqual(lazy, bleu)
        self.assertGreater(heed.metrics.chrf(HYPOTHESES, REFERENCES, word_order=2).score, 0)
        self.assertGreater(heed.metrics.ter(HYPOTHESES, REFERENCES).score, 0)

    def test_bootstrap(self):
        found = heed.metrics.bleu(HYPOTHESES, REFERENCES, bootstrap=50)
        mean, half = found.confidence
        self.assertTrue(0 < half and 0 < mean < 100)

    def test_mistakes(self):
        for wrong, kind, said in (
            (lambda: heed.metrics.bleu("a", ["a"]), TypeError, "hypotheses wants a list"),
            (lambda: heed.metrics.bleu(["a"], "a"), TypeError, "references wants a list"),
            (lambda: heed.metrics.bleu(None, ["a"]), TypeError, "given NoneType"),
            (lambda: heed.metrics.bleu([b"a"], ["a"]), TypeError, "given bytes"),
            (lambda: heed.metrics.bleu(["a"], [b"a"]), TypeError, "given bytes"),
            (lambda: heed.metrics.bleu(["a"], ["a"], bootstrap=-1), ValueError, "bootstrap"),
            (lambda: heed.metrics.chrf(["a"], ["a"], word_order=2**40), ValueError, "word_order"),
            (lambda: heed.metrics.bleu(["a"], ["a", "b"]), ValueError, "1 hypotheses, 2"),
            (lambda: heed.metrics.bleu(["a"], ["a"], tokenize="x"), ValueError, "x"),
            (lambda: heed.metrics.bleu(["a"], ["a"], smooth="x"), ValueError, "smoothing 'x'"),
        ):
            with self.subTest(said), self.assertRaisesRegex(kind, said):
                wrong()


if __name__ == "__main__":
    unittest.main()
