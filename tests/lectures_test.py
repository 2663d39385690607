"""Walks docs/lectures.md: every row has something to run, and all of it works.

A `heed ...` command is run in a folder with a small corpus; training is cut to two steps of a tiny model. An
`examples/...` program and a `Suite.Test` are run as they are. Studies that train for many seconds have tests of
their own (tests/studies_test.cpp), so here they are only looked for.

Arguments: the build's folder, the program, the test programs.
"""
import os, pathlib, re, subprocess, sys, tempfile

build, heed, *test_programs = [pathlib.Path(a).resolve() for a in sys.argv[1:]]
root = pathlib.Path(__file__).resolve().parent.parent
page = (root / "docs/lectures.md").read_text()
TINY = " --size 24 --batch-tokens 300 --steps 2 --warmup 2"


def shell(command, folder):
    environment = dict(os.environ, PATH=f"{heed.parent}:{os.environ['PATH']}", FILES=files)
    return subprocess.run(command, shell=True, cwd=folder, env=environment, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True)


def tests_of(program):
    out = subprocess.run([program, "--gtest_list_tests"], text=True, capture_output=True).stdout
    suite = ""
    for line in out.splitlines():
        if not line.startswith(" "): suite = line.split()[0]
        else: yield suite + line.split()[0]


known_tests = {name: program for program in test_programs for name in tests_of(program)}
files = re.search(r'FILES="(.*)"', page).group(1)
rows = [re.split(r"\s*\|\s*", line.strip())[1:-1] for line in page.splitlines()
        if line.startswith("|") and not line.startswith(("|---", "| what"))]
troubles, done = [], {}


def run(item, folder):
    """What is wrong with the item, or nothing."""
    if item.startswith("examples/"):
        return shell(str(build / item), folder)
    if re.fullmatch(r"\w+\.\w+", item):
        if item not in known_tests: return "there is no such test"
        result = shell(f"{known_tests[item]} --gtest_filter={item}", folder)
        return result if "[  PASSED  ] 1 test" in result.stdout or result.returncode else "did not run"
    if item.startswith("heed study ") and item != "heed study dictionary":
        name = item.split()[2]
        if not re.search(rf"^{name}\s", shell("heed study --list", folder).stdout, re.M):
            return "there is no such study"
        return None
    if not item.startswith("heed "): return "neither a command nor an example nor a test"
    if item.startswith("heed train"): item += TINY + " --samples 0"
    if item.startswith("heed train") and "transformer" in item: item += " --inner 24"
    if item.startswith("heed lm train"): item += TINY
    return shell(item, folder)


with tempfile.TemporaryDirectory() as folder:
    corpus = subprocess.run([build / "examples/grammar", folder, "200", "1", root / "data/grammar"],
                            capture_output=True, text=True)
    assert corpus.returncode == 0, corpus.stderr
    for side in ("en", "fr"):  # a few lines are enough to translate
        path = pathlib.Path(folder) / f"test.{side}"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    for what, _, cell, seen in rows:
        link = re.fullmatch(r"\[\w+\]\((\w+\.md)(?:#([\w-]+))?\)", seen)
        if what and not link: troubles.append(f"{what}: no view that shows it")
        if link:
            headings = re.findall(r"^#+ (.*)$", (root / "docs" / link[1]).read_text(), re.M)
            if link[2] and link[2] not in [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]:
                troubles.append(f"{what}: {link[1]} has no heading for #{link[2]}")
        items = re.findall(r"`([^`]+)`", cell)
        if not items: troubles.append(f"{what}: nothing to run")
        for item in items:
            if item in done: continue
            result = done[item] = run(item, folder)
            if result is None: continue
            if isinstance(result, str): troubles.append(f"{item}: {result}")
            elif result.returncode:
                troubles.append(f"{item}: exit code {result.returncode}: {(result.stdout + result.stderr)[-300:]}")
if len(rows) < 20: troubles.append(f"only {len(rows)} rows were found in docs/lectures.md")
print("\n".join(troubles) or f"{len(rows)} rows, {len(done)} commands, examples and tests: all work")
sys.exit(bool(troubles))
