"""Runs the tests of the Python package: `python3 python/tests/run.py [build/python] [test...]`.

The package is the one in the folder that is named first, or an installed one. What a test needs and
has not is said at the end: PyTorch, mypy, the program (HEED_PROGRAM).
"""

import os
import sys
import unittest

here = os.path.dirname(os.path.abspath(__file__))
arguments = sys.argv[1:]
if arguments and os.path.isdir(arguments[0]):
    built = os.path.abspath(arguments.pop(0))
    sys.path.insert(0, built)
    # For what tests start in turn.
    os.environ["PYTHONPATH"] = built + os.pathsep + os.environ.get("PYTHONPATH", "")
sys.path.insert(0, here)

import heed  # noqa: E402: from there

print(f"heed {heed.__version__} of {os.path.dirname(heed.__file__)}, Python {sys.version.split()[0]}")
loader = unittest.TestLoader()
suite = loader.loadTestsFromNames(arguments) if arguments else loader.discover(here)
result = unittest.TextTestRunner(verbosity=1).run(suite)
for test, why in result.skipped:
    print(f"skipped: {test}: {why}")
sys.exit(not result.wasSuccessful())
