import gc
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import heed
import toy


class Translating(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.translator = heed.Translator(toy.model(), device="cpu", threads=2)
        cls.lines = [e for e, _ in toy.pairs()][:60]
        cls.french = [f for _, f in toy.pairs()][:60]

    def test_a_string_gives_one_a_list_a_list_an_iterator_an_iterator(self):
        one = self.translator.translate(self.lines[0])
        self.assertEqual(one.text, self.french[0])
        self.assertEqual(one.source, self.lines[0])
        many = self.translator.translate(self.lines)
        self.assertIsInstance(many, list)
        self.assertEqual([r.text for r in many], self.french)
        lazy = self.translator.translate(iter(self.lines), chunk=7)
        self.assertNotIsInstance(lazy, list)
        self.assertEqual([r.text for r in lazy], self.french)
        with tempfile.NamedTemporaryFile("w+") as file:  # lines of a file bring their ends along
            file.write("\r\n".join(self.lines[:5]) + "\n")
            file.seek(0)
            self.assertEqual([r.text for r in self.translator.translate(file)], self.french[:5])

    def test_an_iterator_reads_no_more_than_a_chunk_ahead(self):
        read = 0

        def lines():
            nonlocal read
            for line in self.lines:
                read += 1
                yield line

        results = self.translator.translate(lines(), chunk=8)
        for i, _ in enumerate(results):
            self.assertLessEqual(read, (i // 8 + 1) * 8)
        self.assertEqual(read, len(self.lines))

    def test_pieces_scores_and_the_best_of_several(self):
        r = self.translator.translate("the black cat sleeps .", beam=4, best=3)
        self.assertEqual(r.pieces, ["le", "chat", "noir", "dort", "."])
        self.assertEqual(r.source_pieces, ["the", "black", "cat", "sleeps", "."])
        self.assertEqual(len(r.hypotheses), 3)
        scores = [h.score for h in r.hypotheses]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(r.score, scores[0])
        self.assertLess(r.log_probability, 0)
        given = self.translator.score([r.source], [r.text])[0]
        self.assertAlmostEqual(given.log_probability, r.log_probability, places=4)

    def test_prefixes(self):
        r = self.translator.translate("the cat sleeps .", prefix="le chien")
        self.assertTrue(r.text.startswith("le chien"), r.text)
        both = self.translator.translate(["the cat sleeps ."] * 2, prefix=["le cheval", ""])
        self.assertTrue(both[0].text.startswith("le cheval"))
        self.assertEqual(both[1].text, "le chat dort .")
        with self.assertRaisesRegex(ValueError, "1 prefixes"):
            self.translator.translate(["a", "b"], prefix=["le"])

    def test_alignments_are_words_and_ranges_of_characters(self):
        r = self.translator.translate("the black cat sleeps .")
        links = r.alignment
        self.assertIn(("cat", "chat"), links.words)
        for (s, t), ((a, b), (c, d)) in zip(links, links.spans):
            self.assertEqual(r.source[a:b], r.source.split()[s])
            self.assertEqual(r.text[c:d], r.text.split()[t])
        self.assertEqual(str(links).split()[0], "%d-%d" % links[0])
        # Asked for beforehand, the search's own weights: the same links.
        self.assertEqual(
            self.translator.translate(r.source, alignment=True).alignment, links
        )

    def test_characters_not_bytes(self):
        alignment = heed.Alignment([(1, 0)], "ä bc", "éé x")
        self.assertEqual(alignment.spans, [((2, 4), (0, 2))])
        self.assertEqual(alignment.words, [("bc", "éé")])

    def test_attention_is_a_view_that_is_written_through(self):
        r = self.translator.translate("the black cat sleeps .")
        a = r.attention
        self.assertEqual(a.shape, (1, 1, 6, 6))  # layer, head, pieces and the end
        np.testing.assert_allclose(a.sum(-1), 1, rtol=1e-5)
        self.assertTrue(np.shares_memory(a, r.attention))
        self.assertFalse(a.flags.owndata)
        a[0, 0, 2, 1] = 7
        self.assertEqual(r.attention[0, 0, 2, 1], 7)
        self.assertEqual(r.hypotheses[0].attention[0, 0, 2, 1], 7)
        w = r.weights
        w[0, 0] = 5
        self.assertEqual(r.weights[0, 0], 5)
        del r  # the view keeps its memory
        gc.collect()
        self.assertEqual(a[0, 0, 2, 1], 7)

    def test_it_is_what_the_program_writes(self):
        program = os.environ.get("HEED_PROGRAM")
        if not program:
            self.skipTest("HEED_PROGRAM does not name the program")
        said = subprocess.run(
            [program, "translate", "--model", toy.model(), "--alignment", "pharaoh", "--device",
             "cpu"],
            input="\n".join(self.lines) + "\n", capture_output=True, text=True, check=True,
        ).stdout
        ours = self.translator.translate(self.lines, alignment=True)
        self.assertEqual(said, "".join(f"{r.text}\t{r.alignment}\n" for r in ours))

    def test_a_model_searches_as_its_makers_do(self):
        makers = {"beam": 2, "normalize": 0, "max_ratio": 0, "max_extra": 3}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "imported")
            shutil.copytree(toy.model(), path)
            with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
                del config["checksum"]  # of itself: format 1 has none
                json.dump({**config, "heed": 1, "search": makers}, file)
            model = heed.Translator(path, device="cpu", threads=1)
            self.assertEqual(model.search_defaults, makers)
            self.assertEqual(self.translator.search_defaults, {})
            line = "the black cat sees the white dog ."
            found = model.translate(line, tree=True)
            self.assertEqual(len(found.pieces), 3)
            self.assertEqual(found.score, found.log_probability)  # normalize 0
            ended = model.score([line], [found.text])[0]
            self.assertEqual(ended.score, ended.log_probability)
            self.assertEqual(len(model.translate_text(line).text.split()), 3)
            parents = [parent for _, parent, _, _, _ in found.tree.nodes]
            self.assertEqual(max(parents.count(p) for p in parents), 2)  # a beam of 2
            # What is given holds; what follows from it, too.
            whole = model.translate(line, max_ratio=2, normalize=1)
            self.assertEqual(whole.text, self.translator.translate(line).text)
            self.assertNotEqual(whole.score, whole.log_probability)
            self.assertEqual(len(model.translate(line, best=4).hypotheses), 4)
            program = os.environ.get("HEED_PROGRAM")
            if program:
                said = subprocess.run(
                    [program, "translate", "--model", path, "--scores", "--best", "4", "--device",
                     "cpu"],
                    input="\n".join(self.lines[:9]) + "\n", capture_output=True, text=True,
                    check=True,
                ).stdout.splitlines()
                ours = [f"{h.text}\t{h.log_probability:.6f}"
                        for r in model.translate(self.lines[:9], best=4) for h in r.hypotheses]
                self.assertEqual([s for s in said if s != "\t-inf"], ours)

    def test_a_beam_that_is_not_given_is_as_wide_as_the_best_are_many(self):
        self.assertEqual(len(self.translator.translate(self.lines[0], best=7).hypotheses), 7)

    def test_empty_lines_and_nothing(self):
        self.assertEqual(self.translator.translate([]), [])
        r = self.translator.translate("")
        self.assertEqual((r.text, r.pieces, list(r.alignment)), ("", [], []))

    def test_sampling_depends_on_the_seed_and_the_line_alone(self):
        def draw(seed):
            found = self.translator.translate(self.lines, sample=True, beam=1, seed=seed,
                                              temperature=3)
            return [r.text for r in found]

        self.assertEqual(draw(1), draw(1))
        self.assertNotEqual(draw(1), draw(2))

    def test_whole_texts(self):
        r = self.translator.translate_text("the cat sleeps .\n\nthe dog sees me .\n")
        self.assertEqual(r.text, "le chat dort .\n\nle chien me voit .\n")
        (a, b), (c, d), score = r.parts[1]
        self.assertEqual("the cat sleeps .\n\nthe dog sees me .\n"[a:b].strip(), "the dog sees me .")
        self.assertEqual(r.text[c:d].strip(), "le chien me voit .")
        html = self.translator.translate_text("<p>the cat sleeps .</p>", format="html").text
        self.assertEqual(html, "<p>le chat dort .</p>")

    def test_pictures(self):
        r = self.translator.translate("the cat sleeps .", tree=True)
        self.assertIn("<iframe", r._repr_html_())
        self.assertIn("<svg", r.tree._repr_svg_())
        self.assertEqual(sum(ends for _, _, _, ends, _ in r.tree.nodes) > 0, True)
        with tempfile.TemporaryDirectory() as folder:
            begin = {"svg": b"<svg", "png": b"\x89PNG", "html": b"<!doctype html"}
            for kind, head in begin.items():
                path = os.path.join(folder, "x." + kind)
                r.save(path, words=kind == "svg")
                with open(path, "rb") as file:
                    self.assertTrue(file.read(20).lower().startswith(head.lower()), kind)
            r.tree.save(os.path.join(folder, "tree.svg"))
            with self.assertRaisesRegex(ValueError, "ends in .html or .svg or .png"):
                r.save(os.path.join(folder, "x.gif"))
            self.assertEqual(len(os.listdir(folder)), 4)
        self.assertIn("chat", r.draw())
        with self.assertRaisesRegex(ValueError, "tree=True"):
            self.translator.translate("the cat sleeps .").tree

    def test_mistakes_are_pythons_with_heeds_sentence(self):
        for wrong, kind, said in (
            (lambda: heed.Translator("/nowhere"), FileNotFoundError, "/nowhere: there is no such"),
            (lambda: heed.Translator(3), TypeError, "expected str"),
            (lambda: heed.Translator(toy.model(), device="gpu"), ValueError, "unknown device 'gpu'"),
            (lambda: heed.Translator(toy.model(), compute="f16"), ValueError, "f16"),
            (lambda: heed.Translator(toy.model(), threads=-1), ValueError, "threads"),
            (lambda: heed.Translator(toy.model(), threads="2"), TypeError, "threads"),
            (lambda: heed.LanguageModel(toy.model()), ValueError, "translator"),
            (lambda: self.translator.translate(3), TypeError, "given int"),
            (lambda: self.translator.translate(b"a"), TypeError, "given bytes"),
            (lambda: self.translator.translate(["a", 3]), TypeError, "given int"),
            (lambda: self.translator.translate("a", beam="5"), TypeError, "beam"),
            (lambda: self.translator.translate("a", beam=0), ValueError, "beam"),
            (lambda: self.translator.translate("a", beam=5, best=9), ValueError, "best=9"),
            (lambda: self.translator.translate("a", extract="pth"), ValueError, "path"),
            (lambda: self.translator.translate("a", head=7).weights, ValueError, "head 7"),
            (lambda: self.translator.score(["a"], []), ValueError, "1 sources, 0 targets"),
            (lambda: self.translator.score(None, []), TypeError, "sources wants a list"),
            (lambda: self.translator.translate("a", beam=2**70), ValueError, "below 2"),
            (lambda: self.translator.translate("a", beam=True), TypeError, "given True"),
            (lambda: self.translator.translate("a", layer=-3), ValueError, "layer wants"),
            (lambda: self.translator.translate("a", max_length=0), ValueError, "max_length"),
            (lambda: self.translator.translate(["a"], chunk=2.5), TypeError, "chunk"),
            (lambda: self.translator.translate(["a"], prefix=3), TypeError, "prefix wants"),
            (lambda: self.translator.translate(["a"], prefix=["b", "c"]), ValueError,
             "2 prefixes for 1 lines"),
            (lambda: self.translator.translate("a \udc80"), ValueError, "surrogate, at 2"),
            (lambda: self.translator.translate_text("a", beam="x"), TypeError, "beam"),
            (lambda: self.translator.translate_text("a", beam=0), ValueError, "beam"),
        ):
            with self.subTest(said), self.assertRaisesRegex(kind, said):
                wrong()
        with self.assertRaises(TypeError):
            self.translator.translate("a", baem=5)

    def test_many_threads(self):
        expected = dict(zip(self.lines, self.french))
        wrong = []

        def work(lines):
            for r in self.translator.translate(iter(lines), chunk=3):
                if r.text != expected[r.source]:
                    wrong.append(r)

        threads = [threading.Thread(target=work, args=(self.lines[i::4],)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_other_threads_run_meanwhile(self):
        counted, over = [0], threading.Event()

        def count():
            while not over.is_set():
                counted[0] += 1
                time.sleep(0.001)

        counter = threading.Thread(target=count)
        counter.start()
        self.translator.translate(self.lines * 20, beam=10)
        over.set()
        counter.join()
        self.assertGreater(counted[0], 5)

    def test_memory_does_not_grow(self):
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def calls(n):
            for i in range(n):
                r = self.translator.translate(self.lines[i % 60], beam=2, tree=True)
                r.attention, r.alignment, r.hypotheses
                try:
                    self.translator.translate("a", beam=0)
                except ValueError:
                    pass
            gc.collect()

        calls(200)
        before = resident()
        calls(int(os.environ.get("HEED_LEAK_CALLS", "600")))
        self.assertLess(resident() - before, 4 << 20)

    def test_processes(self):
        # A pickled translator is opened again; in a forked process it says what to do, and that
        # process ends.
        again = pickle.loads(pickle.dumps(self.translator))
        self.assertEqual(again.translate(self.lines[0]).text, self.french[0])
        code = f"""
import os, sys
import heed
t = heed.Translator({toy.model()!r}, device="cpu")
t.translate("the cat sleeps .")
if os.fork() == 0:
    try:
        t.translate("the cat sleeps .")
    except ValueError as error:
        print(error, flush=True)
    print(heed.Translator({toy.model()!r}, device="cpu").translate("he sings .").text, flush=True)
    sys.exit(3)
print("ended", os.waitstatus_to_exitcode(os.wait()[1]))
"""
        out = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True,
                             text=True, timeout=60)
        self.assertRegex(out.stdout, r"before the process was forked.*spawn'\nil chante \.\nended 3\n")


class Interrupting(unittest.TestCase):
    """Ctrl-C, on a machine that has four times as much to do as it has cores."""

    def interrupted(self, prepared, call, after=""):
        code = f"""
import os, signal, subprocess, sys, threading, time
sys.path.insert(0, {os.path.dirname(os.path.abspath(toy.__file__))!r})
import numpy as np
import heed, toy
{prepared}
spin = "import time; end = time.time() + 30\\nwhile time.time() < end: pass"
busy = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(4 * os.cpu_count())]
sent = []
def interrupt():
    time.sleep(1)
    sent.append(time.time())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    {call}
    print("it was not interrupted")
except KeyboardInterrupt:
    print(time.time() - sent[0])
finally:
    for process in busy:
        process.kill()
{after}
"""
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                             timeout=120)
        self.assertEqual(out.returncode, 0, out.stderr)
        took, *rest = out.stdout.splitlines()
        self.assertLess(float(took), 0.5)
        return rest

    def test_translating(self):
        rest = self.interrupted(
            f"t = heed.Translator({toy.model()!r}, device='cpu')\n"
            "lines = ['the black cat sees the white dog .'] * 2_000_000",
            "t.translate(lines, beam=20)",
            "print(t.translate('the cat sleeps .').text)",
        )
        self.assertEqual(rest, ["le chat dort ."])

    def test_scoring(self):
        rest = self.interrupted(
            f"t = heed.Translator({toy.model()!r}, device='cpu')\n"
            "lines = ['the black cat sees the white dog .'] * 1_000_000",
            "t.score(lines, lines)",
            "print(len(t.score(lines[:3], lines[:3])))",
        )
        self.assertEqual(rest, ["3"])

    def test_attention_of_large_arrays(self):
        rest = self.interrupted(
            "q = np.ones((1, 30, 30_000, 64), np.float32)",
            "heed.attend(q, q, q)",
            "print(round(float(heed.attend(q[0, 0, :9], q[0, 0, :9], q[0, 0, :9])[0, 0]), 4))",
        )
        self.assertEqual(rest, ["1.0"])

    def test_metrics(self):
        self.interrupted("lines = ['a cat on a mat .', 'no dog .'] * 20_000",
                         "heed.metrics.ter(lines, lines[::-1], bootstrap=1_000_000)")


if __name__ == "__main__":
    unittest.main()
