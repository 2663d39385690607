import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings

import heed
import toy

SMALL = dict(preset="rnn-small", size=32, embedding=16, tokens="words", batch_tokens=300,
             anyway=True, device="cpu")


def corpus(part):
    return [e for e, _ in toy.pairs()[part]], [f for _, f in toy.pairs()[part]]


class Training(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = kept.name
        self.model = os.path.join(kept.name, "m")
        self.english, self.french = corpus(slice(200))
        self.unseen = corpus(slice(200, 220))

    def parameters(self, folder):
        with open(os.path.join(folder, "model.safetensors"), "rb") as file:
            return file.read()

    def test_callbacks_iterables_and_validation(self):
        logged, validated, told = [], [], []
        done = heed.train(
            (e for e in self.english), iter(self.french), self.model, steps=20,
            validate_every=10, valid_source=self.unseen[0][:9], valid_target=self.unseen[1][:9],
            on_log=logged.append, on_validation=validated.append, on_message=told.append, **SMALL,
        )
        self.assertEqual((done.steps, done.end), (20, "limit"))
        self.assertEqual(logged[-1].step, 20)
        self.assertEqual([p.step for p in validated], [10, 20])
        self.assertIsNotNone(validated[0].bleu)
        self.assertGreater(validated[0].valid_loss, 0)
        self.assertTrue(any("vocabulary" in line for line in told))
        self.assertTrue(heed.Translator(self.model, device="cpu").translate("the cat").text is not None)

    def test_files_and_iterables_and_the_program_train_the_same(self):
        paths = [os.path.join(self.folder, name) for name in ("en", "fr")]
        for path, lines in zip(paths, (self.english, self.french)):
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in lines)
        heed.train(self.english, self.french, self.model, steps=6, **SMALL)
        other = os.path.join(self.folder, "of-files")
        heed.train(paths[0], paths[1], other, steps=6, **SMALL)
        self.assertEqual(self.parameters(self.model), self.parameters(other))
        program = os.environ.get("HEED_PROGRAM")
        if not program:
            self.skipTest("HEED_PROGRAM does not name the program")
        third = os.path.join(self.folder, "of-the-program")
        subprocess.run(
            [program, "train", "--source", paths[0], "--target", paths[1], "--model", third,
             "--preset", "rnn-small", "--size", "32", "--embedding", "16", "--tokens", "words",
             "--batch-tokens", "300", "--steps", "6", "--anyway", "--device", "cpu"],
            check=True, capture_output=True,
        )
        self.assertEqual(self.parameters(self.model), self.parameters(third))

    def test_ctrl_c_saves_and_resume_goes_on_as_if_nothing_had_happened(self):
        def interrupt(progress):
            os.kill(os.getpid(), signal.SIGINT)

        whole = os.path.join(self.folder, "whole")
        heed.train(self.english, self.french, whole, steps=60, validate_every=20,
                   valid_source=self.unseen[0][:5], valid_target=self.unseen[1][:5], **SMALL)
        with self.assertRaises(KeyboardInterrupt):
            heed.train(self.english, self.french, self.model, steps=60, validate_every=20,
                       valid_source=self.unseen[0][:5], valid_target=self.unseen[1][:5],
                       on_log=interrupt, **SMALL)
        done = heed.train(self.english, self.french, self.model, resume=True,
                          valid_source=self.unseen[0][:5], valid_target=self.unseen[1][:5],
                          anyway=True, device="cpu")
        self.assertEqual(done.steps, 60)
        self.assertEqual(self.parameters(self.model), self.parameters(whole))

    def test_ctrl_c_ends_a_validation_and_the_reading_of_a_corpus(self):
        def interrupted(code, after):
            """Seconds from the signal, `after` seconds from the beginning of the call, to its end."""
            out = subprocess.run([sys.executable, "-c", f"""
import os, signal, sys, threading, time
sys.path.insert(0, {os.path.dirname(os.path.abspath(toy.__file__))!r})
import heed, toy
english, french = (list(side) * 200 for side in zip(*toy.pairs()))
sent = []
def interrupt():
    time.sleep({after})
    sent.append(time.time())
    os.kill(os.getpid(), signal.SIGINT)
def begin():
    threading.Thread(target=interrupt).start()
try:
    {code}
    print("it was not interrupted")
except KeyboardInterrupt:
    print(time.time() - sent[0])
"""], capture_output=True, text=True, timeout=120)
            self.assertEqual(out.returncode, 0, out.stderr)
            return float(out.stdout)

        settings = (f"{self.model!r}, **{SMALL!r}, steps=5, validate_every=5, "
                    "valid_source=english, valid_target=french")
        # The 5 steps take some hundredths of a second, the validation half a minute.
        code = (f"heed.train(english[:200], french[:200], {settings}, "
                "on_message=lambda text: 'read' in text and begin())")
        self.assertLess(interrupted(code, after=2), 0.5)
        self.assertTrue(os.path.exists(os.path.join(self.model, "checkpoint", "last.safetensors")))
        # A corpus of which a vocabulary is learnt: nothing was made yet.
        self.model = os.path.join(self.folder, "other")
        code = (f"heed.train(english * 20, french * 20, {self.model!r}, tokens='unigram', "
                "vocabulary=300, anyway=True, device='cpu', preset='rnn-small', epochs=1, "
                "on_message=lambda text: 'vocabulary' in text and begin())")
        self.assertLess(interrupted(code, after=0.3), 0.5)
        self.assertFalse(os.path.exists(self.model))

    def test_a_guided_model_learns_how_likely_its_links_must_be(self):
        links = os.path.join(toy.folder(), "links")
        with open(links, "w") as file:
            for english, french in zip(self.english, self.french):
                short = min(len(english.split()), len(french.split()))
                file.write(" ".join(f"{i}-{i}" for i in range(short)) + "\n")
        heed.train(self.english, self.french, self.model, alignment=links, guided=0.3,
                   **{**SMALL, "steps": 60})
        with open(os.path.join(self.model, "config.json")) as file:
            learnt = json.load(file)["alignment"]["threshold"]
        translator = heed.Translator(self.model)

        def found(**how):
            return [list(r.alignment) for r in translator.score(self.english, self.french, **how)]

        self.assertEqual(found(), found(threshold=learnt))
        self.assertNotEqual(found(), found(threshold=1.0))

    def test_an_alignment_is_learnt_and_teaches(self):
        told = []
        heed.train(self.english, self.french, self.model, guided="auto", on_message=told.append,
                   **{**SMALL, "steps": 4})
        self.assertTrue(any(t.startswith("aligned 200 pairs") for t in told), told)
        with open(os.path.join(self.model, "config.json")) as file:
            config = json.load(file)
        self.assertEqual((config["training"]["guided"], config["training"]["guided_auto"]),
                         (0.3, True))
        self.assertIn("threshold", config["alignment"])
        self.assertEqual([f for f in os.listdir(self.model) if ".tmp-" in f], [])
        other = self.model + "-2"
        heed.train(self.english, self.french, other, guided="auto", **{**SMALL, "steps": 2})
        heed.train(self.english, self.french, other, resume=True, steps=4)
        self.assertEqual(self.parameters(other), self.parameters(self.model))
        with self.assertRaisesRegex(ValueError, "alignment"):
            heed.train(self.english, self.french, self.model + "-3", guided=0.3, **SMALL)

    def test_what_a_callback_raises_ends_it(self):
        class Enough(Exception):
            pass

        def enough(progress):
            raise Enough

        with self.assertRaises(Enough):
            heed.train(self.english, self.french, self.model, steps=10, on_log=enough, **SMALL)

    def test_mistakes(self):
        def train(source=self.english, target=self.french, **settings):
            heed.train(source, target, self.model, **{**SMALL, "steps": 2, **settings})

        for wrong, kind, said in (
            (lambda: train(sise=3), TypeError, "did you mean 'size'"),
            (lambda: train(size="big"), TypeError, "size wants a whole number"),
            (lambda: train(tokens=3), TypeError, "tokens"),
            (lambda: train(preset=3), TypeError, "preset wants a string"),
            (lambda: train(on_log=3), TypeError, "on_log wants a function"),
            (lambda: train(vocabulary=2**70), ValueError, "64 bits"),
            (lambda: train(source=[]), ValueError, "^target has 200 lines and source 0"),
            (lambda: train(preset="rn"), ValueError, "unknown preset 'rn'"),
            (lambda: train(score="aditive"), ValueError, "additive"),
            (lambda: train(source="/nowhere"), FileNotFoundError, "/nowhere"),
            (lambda: train(source=3), TypeError, "iterable of strings"),
            (lambda: train(source=[1, 2]), TypeError, "given int"),
            (lambda: train(source=["a\nb"]), ValueError, "newline"),
            (lambda: train(target=self.french[:5]), ValueError, "lines"),
            (lambda: train(valid_source=["a"]), ValueError, "belong together"),
            (lambda: train(resume=True), ValueError, "nothing to resume"),
        ):
            with self.subTest(said), self.assertRaisesRegex(kind, said):
                wrong()
            self.assertFalse(os.path.exists(self.model), said)
        train()
        with self.assertRaisesRegex(ValueError, "resume=True goes on"):
            train()

    def test_doubts_are_warnings(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            heed.train(self.english, self.english, self.model, steps=2, **SMALL)
        self.assertTrue(any(issubclass(w.category, heed.CorpusWarning) for w in caught))


if __name__ == "__main__":
    unittest.main()
