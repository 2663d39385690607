"""What is said is so: examples in docstrings, the page, the programs in examples/python, types."""

import ast
import doctest
import glob
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import heed
import toy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TORCH = importlib.util.find_spec("torch") is not None


class Docstrings(unittest.TestCase):
    def examples_of(self, module):
        with tempfile.TemporaryDirectory() as folder:
            known = {
                "heed": heed, "np": np, "model": toy.model(), "folder": os.path.join(folder, "m"),
                "translator": heed.Translator(toy.model(), device="cpu"),
            }
            if toy.language_model():
                known["language_model"] = toy.language_model()
                known["lm"] = heed.LanguageModel(toy.language_model(), device="cpu")
            if module.__name__ == "heed.torch":
                known["torch"] = sys.modules["torch"]
            tried = 0
            for test in doctest.DocTestFinder().find(module, extraglobs=known):
                needs_lm = any("language_model" in e.source or "lm." in e.source for e in test.examples)
                if needs_lm and "lm" not in known:
                    continue
                tried += len(test.examples)
                said = []
                found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
                    test, out=said.append)
                self.assertEqual(found.failed, 0, "".join(said))
            return tried

    def test_examples_run(self):
        tried = self.examples_of(heed)
        for name in "attention language metrics training translator".split():
            tried += self.examples_of(importlib.import_module("heed." + name))
        self.assertGreater(tried, 20)

    @unittest.skipUnless(TORCH, "PyTorch is not installed")
    def test_examples_for_pytorch_run(self):
        self.assertGreater(self.examples_of(importlib.import_module("heed.torch")), 8)

    def test_everything_that_is_shown_says_what_it_is(self):
        for name in heed.__all__:
            thing = getattr(heed, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                self.assertTrue(thing.__doc__ or name == "Error", name)


class Page(unittest.TestCase):
    def test_the_pages_examples_run_one_after_the_other(self):
        with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as file:
            blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        self.assertGreater(len(blocks), 8)
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(toy.model(), os.path.join(folder, "m"))
            if toy.language_model():
                os.symlink(toy.language_model(), os.path.join(folder, "lm"))
            english, french = zip(*toy.pairs())
            for name, lines in (("text.en", english[:30]), ("train.en", english),
                                ("train.fr", french)):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.writelines(line + "\n" for line in lines)
            before = os.getcwd()
            os.chdir(folder)
            try:
                names = {}
                for block in blocks:
                    if not TORCH and "torch" in block or "heed.LanguageModel" in block and not \
                            toy.language_model():
                        continue
                    exec(compile(block, "docs/python.md", "exec"), names)  # noqa: S102
            finally:
                os.chdir(before)


class Examples(unittest.TestCase):
    def test_they_run(self):
        programs = sorted(glob.glob(os.path.join(ROOT, "examples", "python", "*.py")))
        self.assertGreaterEqual(len(programs), 5)
        for path in programs:
            with open(path, encoding="utf-8") as file:
                source = file.read()
            if "import torch" in source and not TORCH:
                continue
            with self.subTest(os.path.basename(path)), tempfile.TemporaryDirectory() as folder:
                out = subprocess.run(
                    [sys.executable, path, "--quick"] + (["--model", toy.model()]
                                                         if "--model" in source else []),
                    capture_output=True, text=True, cwd=folder,
                )
                self.assertEqual(out.returncode, 0, out.stderr)
                self.assertTrue(out.stdout)


class Stubs(unittest.TestCase):
    def test_the_stub_of_the_module_has_every_name_and_no_other(self):
        from heed import _core

        with open(os.path.join(ROOT, "python", "heed", "_core.pyi"), encoding="utf-8") as file:
            tree = ast.parse(file.read())
        said = set()
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                said.add(node.name)
                if isinstance(node, ast.ClassDef):
                    inner = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                    there = {n for n in vars(getattr(_core, node.name)) if not n.startswith("_")}
                    self.assertEqual({n for n in inner if not n.startswith("_")}, there, node.name)
            elif isinstance(node, ast.AnnAssign):
                said.add(node.target.id)
        there = {name for name in dir(_core) if not name.startswith("_")}
        self.assertEqual(said, there)

    def test_mypy_strict(self):
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        files = [os.path.join(ROOT, "python", "heed")]
        files += glob.glob(os.path.join(ROOT, "examples", "python", "*.py"))
        if not TORCH:
            files = [os.path.join(files[0], f) for f in os.listdir(files[0])
                     if f.endswith(".py") and f != "torch.py"]
        out = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", toy.folder(), *files],
            capture_output=True, text=True, cwd=os.path.join(ROOT, "python"),
        )
        self.assertEqual(out.returncode, 0, out.stdout + out.stderr)


if __name__ == "__main__":
    unittest.main()
