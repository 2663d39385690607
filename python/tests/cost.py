"""What translating from Python costs beside the program, in seconds of CPU time, on one thread.

    HEED_PROGRAM=build/release/heed PYTHONPATH=build/python \\
        python3 python/tests/cost.py build/demo/model build/demo/data/test.en

Best of five, in turn. Then one call beside four threads that share the model and the lines.
"""

import os
import resource
import subprocess
import sys
import threading
import time

import heed

model, path = sys.argv[1:3]
with open(path, encoding="utf-8") as file:
    lines = (file.read().splitlines() * 2)[:2000]


def by_python(translator):
    begin = time.process_time()
    texts = [r.text for r in translator.translate(lines)]
    return time.process_time() - begin, texts


def by_the_program():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run(
        [os.environ["HEED_PROGRAM"], "translate", "--model", model, "--threads", "1", "--device",
         "cpu"],
        input="\n".join(lines) + "\n", capture_output=True, text=True, check=True,
    ).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said.splitlines()


def by_threads(translator, count):
    begin, cpu = time.perf_counter(), time.process_time()
    parts = [threading.Thread(target=translator.translate, args=(lines[i::count],))
             for i in range(count)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    return time.perf_counter() - begin, time.process_time() - cpu


one = heed.Translator(model, device="cpu", threads=1)
by_python(one)  # warm
python, program = [], []
for _ in range(5):
    seconds, texts = by_python(one)
    python.append(seconds)
    seconds, said = by_the_program()
    program.append(seconds)
    assert texts == said, "the two translate differently"
print(f"{len(lines)} lines: Python {min(python):.3f} s, the program {min(program):.3f} s, "
      f"ratio {min(python) / min(program):.3f}")
shared = heed.Translator(model, device="cpu")
by_threads(shared, 1)
alone, four = (min(by_threads(shared, n) for _ in range(3)) for n in (1, 4))
print(f"one thread of Python's: {alone[0]:.2f} s (CPU {alone[1]:.2f}); four: {four[0]:.2f} s "
      f"(CPU {four[1]:.2f})")
