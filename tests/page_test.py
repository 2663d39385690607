"""The page in a browser: against `heed serve` and as the file of `heed view --html`.

Arguments: the program, the grammar that writes a corpus, its words. Or, to look at models that are
there already: the program, --models RNN TRANSFORMER [--sentences FILE] [--measure].
Wants Playwright (PyPI) and Chromium; without them it says so and ends with 77, which is a skip.
With axe-playwright-python its rules are checked, too.
"""
import json, math, os, pathlib, re, shutil, socket, subprocess, sys, tempfile, time

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    print("skipped: Playwright is not installed (pip install playwright)")
    sys.exit(77)
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if not BROWSER:
    print("skipped: no Chromium")
    sys.exit(77)
try:
    from axe_playwright_python.base import AXE_FILE_PATH
    AXE = pathlib.Path(AXE_FILE_PATH).read_text()
except ImportError:
    AXE = None

HEED = os.path.abspath(sys.argv[1])
GIVEN = "--models" in sys.argv
MEASURE = "--measure" in sys.argv
failed = []


def check(holds, *words):
    if not holds:
        print("wrong:", *words)
        failed.append(words)


def option(name, count=1):
    at = sys.argv.index(name) + 1
    return sys.argv[at:at + count]


def train(folder, *flags):
    subprocess.run([HEED, "train", "--source", "corpus/train.en", "--target", "corpus/train.fr",
                    "--batch-tokens", "400", "--warmup", "10", "--seed", "1", "--model", folder, *flags],
                   check=True, stderr=subprocess.DEVNULL)


class Server:
    def __init__(self, *models):
        flags = [f for m in models for f in ("--model", m if "=" in m else "en-fr=" + m)]
        self.process = subprocess.Popen([HEED, "serve", *flags, "--preload", "--port", "0"], stderr=subprocess.PIPE)
        while True:
            line = self.process.stderr.readline().decode()
            if found := re.search(r"listening at (http://[^/]*:\d+/)", line):
                break
            if not line:
                raise SystemExit("the server did not start")
        self.url = found.group(1)
        # What it goes on to say is read, so that it never waits for it.
        import threading
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def end(self):
        self.process.terminate()
        self.process.wait(30)


class Window:
    """A page that was opened, whose complaints are failures."""

    def __init__(self, browser, url, width=1280, dark=False, still=True, answer=None):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True,
                                           color_scheme="dark" if dark else "light", reduced_motion="reduce" if still else "no-preference")
        self.context.grant_permissions(["clipboard-read", "clipboard-write"]) if url.startswith("http") else None
        self.page = self.context.new_page()
        self.url, self.width = url, width
        self.page.on("console", lambda m: check(m.type not in ("error", "warning"), url, width, "console:", m.text))
        self.page.on("pageerror", lambda e: check(False, url, "error:", e))
        self.page.on("request", lambda r: check(r.url.startswith(url.split("#")[0].rsplit("/", 1)[0]) or r.url.startswith(("blob:", "data:")), "asked elsewhere:", r.url))
        if answer:
            self.page.route("**/v1/translate", lambda route: route.fulfill(
                content_type="text/event-stream", body="event: translation\ndata: " + json.dumps(answer) + "\n\n"))
        self.page.goto(url)
        self.settle()

    def settle(self):
        self.page.wait_for_selector("#views:not([hidden])")
        self.until("!document.body.classList.contains('waiting')")
        self.page.wait_for_timeout(350)

    def until(self, condition):
        """Looks again and again from here: a page under a policy evaluates no strings by itself."""
        for _ in range(300):
            if self.js(condition):
                return
            self.page.wait_for_timeout(50)
        check(False, self.url, "waited in vain for", condition)

    def js(self, code, *args):
        return self.page.evaluate(code, *args)

    def words(self, line="target"):
        return [t for t in self.js(f"[...document.querySelectorAll('.panel:not([hidden]) .ribbons .{line} .token')].map(t => t.dataset.label)")]

    def fits(self, what):
        wide = self.js("document.documentElement.scrollWidth")
        check(wide <= self.width, what, f"{self.width} px scroll sideways: {wide}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


# ---- what is checked on any page


def check_accessible(window, what):
    """Names, contrast, focus: by axe where it is, and by hand."""
    page = window.page
    unnamed = window.js("""[...document.querySelectorAll('button, select, input, textarea, [role=application], [role=group]')]
      .filter(e => e.checkVisibility() && !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim() || e.getAttribute('aria-labelledby')))
      .map(e => e.outerHTML.slice(0, 120))""")
    check(not unnamed, what, "without a name:", unnamed)
    poor = window.js("""(() => {
      const light = c => { const v = c.map(x => (x /= 255) <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4); return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
      const parts = c => c.match(/[\\d.]+/g).map(Number);
      const ground = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
      const out = [];
      for (const e of document.querySelectorAll('body *')) {
        if (!e.checkVisibility() || e.closest('.ahead, [hidden], svg, select, option, math') || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
        const a = light(parts(getComputedStyle(e).color).slice(0, 3)), b = light(ground(e));
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5) out.push([e.className || e.tagName, e.textContent.trim().slice(0, 20), ratio.toFixed(2)]);
      }
      return out.slice(0, 5);
    })()""")
    check(not poor, what, "contrast below 4.5:", poor)
    if AXE:
        page.evaluate(AXE)
        found = page.evaluate("axe.run(document)")
        for v in found["violations"]:
            check(False, what, "axe:", v["id"], v["help"], [n["html"][:100] for n in v["nodes"][:2]])


def focus_order(window, what):
    """Every control that is shown can be reached by Tab, in the order of the page, and shows it."""
    seen = []
    window.js("document.body.tabIndex = -1, document.body.focus()")
    for _ in range(120):
        window.page.keyboard.press("Tab")
        at = window.js("(() => { const e = document.activeElement; return e === document.body ? null : [e.id || e.name || e.className || e.tagName, e.getBoundingClientRect().width > 0, getComputedStyle(e).outlineStyle]; })()")
        if at is None:
            break
        seen.append(at)
    names = [s[0] for s in seen]
    check(len(names) > 8, what, "few can be reached by Tab:", names)
    check(all(s[1] for s in seen), what, "focus where nothing is:", [s for s in seen if not s[1]])
    check(all(s[2] != "none" for s in seen), what, "focus is not seen:", [s for s in seen if s[2] == "none"])


def select(window, what):
    """One selection, seen in the lines, the map and the numbers."""
    page = window.page
    token = page.locator(".panel:not([hidden]) .ribbons .target .token").nth(1)
    token.click()
    page.wait_for_timeout(60)
    check("row=1" in page.url, what, "the address does not keep the row:", page.url)
    said = page.locator(".said").first.inner_text()
    check("reads" in said, what, "the numbers do not tell:", said)
    check(token.get_attribute("aria-pressed") == "true", what, "the word is not pressed")
    page.keyboard.press("Escape")
    page.locator(".map").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    page.wait_for_timeout(60)
    # Where columns run from right to left, the arrow to the right goes back.
    column = 0 if "Hebrew" in what else 1
    check("row=1" in page.url and f"column={column}" in page.url, what, "arrows on the map:", page.url)
    check(": " in page.locator(".said").first.inner_text(), what, "a cell's number")
    check("reads" in page.locator(".map").first.get_attribute("aria-label"), what, "the map does not tell its cell")
    page.keyboard.press("Escape")


def check_tree(window, what):
    """The winner is the straight line on top, its score the largest of those that ended."""
    tree = window.js("""[...document.querySelectorAll('#tree .place')].map(p => ({
      top: p.offsetTop, best: p.classList.contains('best'), ended: p.classList.contains('finished'),
      score: Number(p.querySelector('.score')?.textContent.replace('−', '-') ?? NaN) }))""")
    check(all(p["top"] == 0 for p in tree if p["best"]), what, "the winner is not on top:", tree)
    ends = [(p["score"], p["best"]) for p in tree if p["ended"] and p["score"] == p["score"]]
    check(ends and max(ends)[0] == [s for s, best in ends if best][0], what, "a loser scores more than the winner:", ends)


def in_sight(svg, what):
    """Every word of a picture lies inside it."""
    wide, high = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
    places = [tuple(map(float, xy)) for xy in re.findall(r'<text x="(\S+)" y="(\S+)"', svg)]
    check(places and all(0 <= x <= wide and 0 <= y <= high for x, y in places), what, "words outside of the picture:", wide, high, places)


def take(window, what, live):
    page = window.page
    for figure in page.locator("#figure option").evaluate_all("all => all.map(o => o.value)")[::-1]:
        page.select_option("#figure", figure)
        with page.expect_download() as got:
            page.click("#take-svg")
        data = pathlib.Path(got.value.path()).read_text()
        check(data.startswith("<svg") and data.count("<text") > 4, what, f"a picture of {figure}:", data[:80])
    for kind, begins in (("svg", b"<svg"), ("png", b"\x89PNG"), ("tsv", b"\t"), ("json", b"{")):
        with page.expect_download() as got:
            page.click(f"#take-{kind}")
        data = pathlib.Path(got.value.path()).read_bytes()
        check(data.startswith(begins), what, f"{kind} begins with {data[:20]}")
        if kind == "svg":
            import xml.etree.ElementTree as xml
            texts = [t.text for t in xml.fromstring(data).iter("{http://www.w3.org/2000/svg}text")]
            check(set(window.words()) <= set(texts), what, "the SVG lacks words")
            in_sight(data.decode(), what)
        if kind == "tsv":
            rows = [l.split("\t") for l in data.decode().splitlines()]
            check(len({len(r) for r in rows}) == 1 and len(rows) == len(window.words()) + 1, what, "the table's shape")
    if live:
        with page.expect_download() as got:
            page.click("#take-file")
        return pathlib.Path(got.value.path()).read_text()


# ---- live


def live(browser, server, transformer):
    for width, dark in ((360, False), (1280, True), (2560, False), (1280, False), (360, True), (2560, True)):
        with Window(browser, server.url, width, dark) as w:
            what = f"live, {width} px{', dark' if dark else ''}:"
            check(len(w.words()) > 1, what, "no words")
            w.fits(what)
            select(w, what)
            check_accessible(w, what)
            if width == 1280 and not dark:
                focus_order(w, what)
    with Window(browser, server.url) as w:
        page, what = w.page, "live:"
        # Typing: words while they are written, then all of it.
        page.fill("#text", "the dog eats .")
        w.until("[...document.querySelectorAll('.ribbons .source .token')].some(t => t.dataset.label === 'dog')")
        w.settle()
        check("text=the+dog+eats" in page.url, what, "the address does not keep the text:", page.url)
        # The scrubber.
        steps = int(page.get_attribute("#step", "max"))
        page.focus("#step")
        page.keyboard.press("Home")
        page.wait_for_timeout(60)
        check("step=0" in page.url and "Step 1 of" in page.inner_text("#step-said"), what, "the first step:", page.url)
        check(page.locator(".ribbons .target .token.ahead").count() >= steps - 1, what, "what is not written yet is not grey")
        page.click("#play")
        w.until("location.hash.includes('step=2')")
        check(page.inner_text("#play") == "Pause", what, "playing cannot be stopped")
        page.click("#play")
        page.click("#all")
        check("step=" not in page.url, what, "the whole is not shown again:", page.url)
        # Leading it elsewhere: by a candidate, by a word of one's own, by a word of the tree; and back.
        before = w.words()
        page.locator(".ribbons .target .token").first.click()
        page.wait_for_timeout(80)
        other = page.locator("button.choice").first
        wanted = other.locator(".candidate").inner_text()
        other.focus()
        page.keyboard.press("Enter")
        w.settle()
        check(w.js("document.activeElement.matches('#candidates button')"), what, "the keyboard has lost its place among the candidates")
        check(w.words()[0] == wanted or wanted == "</s>", what, "led by a candidate:", wanted, w.words())
        check(page.locator(".token.forced").count() == 1 or wanted == "</s>", what, "what was forced is not marked")
        page.click("#back")
        w.settle()
        check(w.words() == before, what, "and back:", before, w.words())
        page.locator(".ribbons .target .token").nth(1).click()
        page.fill("#other", "</s>")
        page.press("#other", "Enter")
        w.settle()
        check(w.words() == [before[0], "</s>"], what, "a typed end:", before, w.words())
        page.click("#back")
        w.settle()
        page.locator(".ribbons .target .token").first.click()
        page.wait_for_timeout(80)
        page.fill("#other", "chat")
        page.press("#other", "Enter")
        w.settle()
        check(w.words()[0] == "chat", what, "led by a typed word:", w.words())
        link = page.url
        page.click("#back")
        w.settle()
        node = page.locator(".place:not(.best) > button.node").first
        to = node.get_attribute("title")
        node.click()
        w.settle()
        check("prefix=" in page.url and " ".join(w.words()).startswith(re.search("“(.*)”", to)[1]), what, "led by the tree:", to, w.words())
        check_tree(w, what)
        # A link restores all of it.
        with Window(browser, link) as again:
            check(again.words()[0] == "chat" and again.page.input_value("#text") == "the dog eats .", what, "a link:", again.words())
        # Choices.
        page.click("#back") if page.is_visible("#back") else None
        w.settle()
        page.check("#numbers")
        page.wait_for_timeout(60)
        check(w.js("document.querySelector('.map').geometry.cell") >= 30, what, "no room for numbers")
        page.uncheck("#ends")
        page.wait_for_timeout(60)
        check("</s>" not in w.words(), what, "</s> is still there")
        page.check("#scale"), page.check("#ends")
        page.fill("#gold", "0-0 1p1")
        page.wait_for_timeout(60)
        check(page.is_visible("#gold-key"), what, "links have no key")
        # Why.
        page.wait_for_selector(".chain li")
        numbers = page.inner_text("#chain")
        check("Query and key" in numbers and "Softmax" in numbers and "mixed value" in numbers, what, "why:", numbers[:200])
        check("tanh" in w.js("document.querySelector('#chain math').textContent"), what, "the formula is not that of additive scores")
        page.locator(".ribbons .source .token").nth(1).click()
        page.wait_for_timeout(250)
        read = w.js("document.querySelector('.panel').matrix.weights.map(row => row[1])")
        check(page.inner_text("#chain").startswith(f"How much {w.words()[read.index(max(read))]} reads {w.words('source')[1]}"), what, "a word read by others:", page.inner_text("#chain")[:60], read)
        page.keyboard.press("Escape")
        # Comparing: another model, another head, another translation.
        page.check("#compare")
        w.settle()
        check(page.locator(".panel:not([hidden])").count() == 2, what, "one panel")
        page.locator(".panel [name=model]").nth(1).select_option("1")
        w.settle()
        check("model2=1" in page.url, what, "the second model:", page.url)
        page.locator(".panel [name=translation]").nth(1).select_option("own")
        page.locator(".own input").nth(1).fill("le chat .")
        page.locator(".own input").nth(1).press("Enter")
        w.settle()
        check("forced2=le+chat" in page.url, what, "a translation of one's own:", page.url)
        check(page.locator(".panel:not([hidden]) .map").count() == 2, what, "one map for two")
        shown = [panel.inner_text() for panel in page.locator(".panel .target").all()]
        with page.expect_download() as got:
            page.click("#take-file")
        compared = (pathlib.Path(got.value.path()).read_text(), shown)
        page.uncheck("#compare")
        w.settle()
        made = take(w, what, live=True)
        page.click("#take-link")
        check(w.js("navigator.clipboard.readText()") == page.url, what, "the link on the clipboard")
    # A Transformer: heads, overlays, arcs.
    with Window(browser, server.url + "#model=1") as w:
        page, what = w.page, "Transformer:"
        check(page.locator("#all-heads button").count() >= 2, what, "no small heads")
        w.until("document.querySelector('#chain math') !== null")
        check("√" in w.js("document.querySelector('#chain math').textContent"), what, "the formula is not that of scaled products")
        # Words, and the pieces that they are made of.
        words = w.words()
        page.uncheck("#words")
        page.wait_for_timeout(60)
        check(len(w.words()) > len(words) if w.js("document.querySelector('.ribbons .token').dataset.label").startswith("▁") else w.words() == words, what, "pieces:", words, w.words())
        page.check("#words")
        page.wait_for_timeout(60)
        check(w.words() == words, what, "and back to words:", w.words())
        # Two heads of the same sentence, side by side.
        page.check("#compare")
        w.settle()
        page.locator(".panel [name=layer]").nth(1).select_option("0")
        page.wait_for_timeout(60)
        page.locator(".panel [name=head]").nth(1).select_option(index=3)  # after mean, largest, 1
        page.wait_for_timeout(60)
        check("head2=1" in page.url and "layer2=0" in page.url, what, "a head of the second side:", page.url)
        page.uncheck("#compare")
        page.wait_for_timeout(60)
        page.locator("#all-heads button").nth(1).click()
        page.wait_for_timeout(60)
        check("head=1" in page.url, what, "a press on a small head:", page.url)
        page.locator("#all-heads input").nth(0).check()
        page.locator("#all-heads input").nth(1).check()
        page.wait_for_timeout(60)
        check("overlay=0.0+0.1" in page.url, what, "two heads laid over:", page.url)
        for kind in ("encoder", "decoder"):
            page.locator(".panel [name=kind]").first.select_option(kind)
            page.wait_for_timeout(120)
            check(page.is_visible(".panel:not([hidden]) .arcs"), what, "no arcs of the", kind)
            check(page.locator(".map").first.is_visible(), what, "no map of the", kind)
            check_accessible(w, f"{what} {kind}:")
            page.select_option("#figure", "lines")
            with page.expect_download() as got:
                page.click("#take-svg")
            in_sight(pathlib.Path(got.value.path()).read_text(), f"{what} {kind}:")
    return made, compared


def still_and_moving(browser, server):
    with Window(browser, server.url, still=True) as w:
        check(w.js("document.documentElement.classList.contains('still')"), "reduced motion is not heeded")


# What a server might answer: scripts of other directions, long sentences, markup in words.
def answer(source, target, heads=1, layers=1):
    S, T = len(source) + 1, len(target) + 1

    def row(i, h, layer):
        """Around a word near the diagonal, wider in some heads, with many weak ones."""
        e = [math.exp(-abs(j - i * S / T - (h + 3 * layer) % 7 + 3) / (0.6 + 0.5 * ((h + layer) % 4))) + 0.05 * ((i * 7 + j * 13 + h * 5 + layer) % 11) / 11 for j in range(S)]
        return [round(x / sum(e), 4) for x in e]

    weights = [[[row(i, h, layer) for i in range(T)] for h in range(heads)] for layer in range(layers)]
    side = lambda words: {"text": " ".join(words), "pieces": words, "piece_words": list(range(len(words))), "words": [{"text": w} for w in words]}
    nodes, parent = [], -1
    for i, w in enumerate([*target, "</s>"]):
        nodes.append({"piece": w, "parent": parent, "log_probability": -0.1 * i, "score": -0.1, "finished": w == "</s>", "best": True})
        nodes.append({"piece": "?", "parent": parent, "log_probability": -9, "score": -2 - i, "finished": False, "best": False})
        parent = len(nodes) - 2
    sentence = {"source": side(source), "target": side(target), "weights": weights[0][0], "layers": [{"layer": l, "heads": w} for l, w in enumerate(weights)],
                "score": -0.1, "log_probability": -1.0, "tree": nodes,
                "candidates": [{"piece": w, "candidates": [{"piece": w, "probability": 0.6}, {"piece": "<b>x", "probability": 0.1}]} for w in [*target, "</s>"]]}
    return {"source": "en", "target": "fr", "translations": [{"text": " ".join(target), "sentences": [sentence]}]}


HEBREW, CHINESE = "שלום לכל החתולים השחורים".split(), "那 只 小 黑猫 不 喝 水 。".split()
EVIL = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\u202eabc", "a&b"]
LONG = [f"word{i}" for i in range(120)]


def strange(browser, server):
    for name, source, target, heads in (("Hebrew", HEBREW, HEBREW[::-1], 1), ("Chinese", CHINESE, CHINESE, 1), ("markup", EVIL, EVIL, 1), ("120 tokens", LONG, LONG, 2)):
        for width in (360, 1280, 2560):
            with Window(browser, server.url, width, answer=answer(source, target, heads)) as w:
                what = f"{name}, {width} px:"
                w.fits(what)
                check(len(w.words()) == len(target) + 1, what, "words:", len(w.words()))
                check(w.js("document.querySelectorAll('script').length") == 2 and not w.js("document.querySelectorAll('main img').length"), what, "markup came to life")
                if name == "markup":
                    check("·abc" in w.words(), what, "an override is left:", w.words())
                if name == "Hebrew":
                    x = w.js("[...document.querySelectorAll('.panel:not([hidden]) .source .token')].map(t => t.getBoundingClientRect().left)")
                    check(width == 360 or x[0] > x[1], what, "does not run from right to left:", x)
                    check(w.js("document.querySelector('.map').geometry.column_at(0)") == len(source), what, "columns run the wrong way")
                if name == "120 tokens":
                    tall = w.js("document.documentElement.scrollHeight")
                    tree = w.js("[document.getElementById('tree').clientWidth, document.getElementById('tree').clientHeight]")
                    check(tree[0] < 4000 and tree[1] < 3000, what, "the tree is", tree)
                    check(tall < 9000, what, "the page is", tall, "px tall")
                    w.js("location.hash = '#row=100&column=105'")
                    w.page.wait_for_timeout(300)
                    hidden = w.js("""(() => {
                      const inside = (a, b) => a.top >= b.top - 1 && a.bottom <= b.bottom + 1, box = e => e.getBoundingClientRect(), figure = box(document.querySelector('.ribbons'));
                      const map = document.querySelector('.map'), scroll = map.parentElement, { cell, label, top } = map.geometry, x = 105 * cell - scroll.scrollLeft, y = 100 * cell - scroll.scrollTop;
                      return [inside(box(document.querySelectorAll('.target .token')[100]), figure), y >= 0 && y + cell <= scroll.clientHeight - top + 1, x >= 0 && x + cell <= scroll.clientWidth - label + 1];
                    })()""")
                    check(all(hidden), what, "what is chosen is out of sight (word, row, column):", hidden)
                if width == 1280:
                    check_accessible(w, what)
                    select(w, what)


def long_self_attention(browser, server):
    """Arcs of a long text use the width: its past beside words at the left; and nothing beside the views stays empty."""
    reply = answer(LONG[:30], LONG[:28], 2)
    rows = lambda n, weight: [{"layer": 0, "heads": [[[weight(i, j) for j in range(n)] for i in range(n)]] * 2}]
    reply["translations"][0]["sentences"][0] |= {"encoder_self": rows(31, lambda i, j: 0.5 * (abs(i - j) == 1)), "decoder_self": rows(29, lambda i, j: (j <= i) / (i + 1))}
    with Window(browser, server.url + "#kind=decoder", 360, answer=reply) as w:
        line, wide = w.js("[document.querySelector('.arcs .line').getBoundingClientRect().right, document.querySelector('.arcs canvas').getBoundingClientRect().width]")
        check(line < wide / 2, "a past of 29 words on 360 px: words end at", line, "of", wide)
        w.fits("a past of 29 words:")
    folded = []
    for width in (360, 1280):  # words from which nothing forks
        nodes = [{"piece": f"w{i}", "parent": i - 1, "log_probability": -1.0, "score": -1.0, "finished": False, "best": True} for i in range(5)]
        nodes += [{"piece": f"x{i}", "parent": 4, "log_probability": -2.0, "score": -2.0, "finished": False, "best": False} for i in range(20)]
        reply["translations"][0]["sentences"][0]["tree"] = nodes
        with Window(browser, server.url, width, answer=reply) as w:
            folded.append(w.page.locator("#tree > .fold").all_inner_texts())
    check(folded == [["⋯3"], []], "a run of words is folded on a phone, not on a desk:", folded)
    with Window(browser, server.url + "#kind=encoder", answer=reply) as w:
        left = w.js("['heads', 'beam-tree', 'views'].map(id => document.getElementById(id).getBoundingClientRect().left)")
        check(left[0] == left[2] < left[1] and w.js("document.getElementById('heads').offsetTop === document.getElementById('beam-tree').offsetTop"), "heads and the beam of a long source are not beside each other:", left)


def far_ribbons(browser, server):
    """Ribbons that go far are seen on their way, on screen as in print: neither threads nor as thick as at their ends."""
    with Window(browser, server.url) as w:
        found = w.js("""async () => {
          const { raster } = await import('./web/raster.js'), { paint } = await import('./web/scene.js');
          const [screen, print] = [0, 1].map(() => Object.assign(document.createElement('canvas'), { width: 530, height: 100 }));
          const ribbon = { at: Float32Array.of(1, 10, 30, 500, 520), alpha: Float32Array.of(0.9), fill: Uint8Array.of(0) };
          raster(screen, ribbon, { width: 530, height: 100, down: true, paper: '#ffffff', fills: ['#000000'] });
          const context = print.getContext('2d');
          paint(context, [{ rect: [0, 0, 530, 100], fill: '#ffffff' }, { ribbons: [[10, 0, 30, 0, 520, 100, 500, 100]], fill: '#000000', alpha: 0.9, down: true }]);
          return [screen, print].map((canvas) => {
            const { data } = canvas.getContext('2d').getImageData(0, 0, 530, 100);
            const ink = (inside) => data.reduce((sum, v, i) => sum + (i % 4 === 0 && inside((i / 4) % 530, Math.floor(i / 4 / 530)) ? (255 - v) / 255 / 0.9 : 0), 0);
            return [ink((x, y) => y === 0), ink((x, y) => y === 99), ink((x) => x === 265)];
          });
        }""")
        for name, (top, foot, way) in zip(("screen", "print"), found):
            check(19 < top < 24 and 19 < foot < 24 and 5 < way < 8, f"a ribbon of 20 px on {name} is {top} and {foot} px wide at its ends, {way} px high on its way")


# Answers of the server event by event, as they would come from a slow one.
SLOWLY = """(delay) => {
  const real = window.fetch;
  window.fetch = async (path, how) => {
    const response = await real(path, how);
    if (path !== 'v1/translate') return response;
    const parts = (await response.text()).split('\\n\\n').filter(Boolean), wait = () => new Promise(done => setTimeout(done, delay));
    const body = new ReadableStream({ async start(put) {
      for (const part of parts) put.enqueue(new TextEncoder().encode(part + '\\n\\n')), await wait();
      put.close();
    } });
    return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } });
  };
}"""


def grows(browser, server):
    """Words and the tree while the search goes on: each step adds to both, and nothing moves."""
    with Window(browser, server.url) as w:
        w.js(SLOWLY, 120)
        w.js("""() => {
          window.seen = [], window.jumps = 0;
          new PerformanceObserver(list => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.jumps += e.value; }).observe({ type: 'layout-shift', buffered: false });
          new MutationObserver(() => window.seen.push({ waiting: document.body.classList.contains('waiting'),
            tops: [...document.querySelectorAll('#tree .best')].map(p => p.offsetTop), best: document.querySelectorAll('#tree .best').length,
            words: document.querySelectorAll('.panel .target .token').length,
            places: [...document.querySelectorAll('.panel .target .token')].map(t => [t.dataset.label, Math.round(t.getBoundingClientRect().left)]), nodes: document.querySelectorAll('#tree .node').length })).observe(document.getElementById('tree'), { childList: true });
        }""")
        w.page.fill("#text", "the small dogs eat some bread .")
        w.page.wait_for_timeout(500)
        w.settle()
        seen = [s for s in w.js("window.seen") if s["waiting"]]
        lengths = [s["best"] for s in seen]
        check(len(set(lengths)) >= 3 and lengths == sorted(lengths), "the tree does not grow:", lengths)
        check(all(top == 0 for s in seen for top in s["tops"]), "the winner so far is not on top:", seen)
        check(len({s["words"] for s in seen}) >= 3, "words do not appear one by one:", [s["words"] for s in seen])
        for a, b in zip(seen, seen[1:]):
            same = [x == y for x, y in zip(a["places"], b["places"]) if x[0] == y[0]]
            check(all(same) or [x[0] for x in a["places"]] != [y[0] for y in b["places"][:len(a["places"])]], "words move while others come:", a["places"], b["places"])
        check(w.js("window.jumps") < 0.01, "the layout shifts while the tree grows:", w.js("window.jumps"))
        print(f"the tree while it is searched: {lengths} words of the winner so far, layout shift {w.js('window.jumps'):.4f}")


def unanswered(browser, server):
    """A server that refuses is asked once, and what it says is shown; what is typed next is asked again."""
    with Window(browser, server.url) as w:
        asked = []
        w.page.route("**/v1/translate", lambda route: (asked.append(1), route.fulfill(content_type="application/json", body='{"error": "no more today"}')))
        w.page.fill("#text", "the dogs eat .")
        w.page.wait_for_timeout(500)
        check(len(asked) == 1 and w.page.inner_text("#said") == "no more today", "a server that refuses was asked", len(asked), "times:", w.page.inner_text("#said"))
        w.page.unroute("**/v1/translate")
        w.page.fill("#text", "the dogs eat . ")
        w.until("[...document.querySelectorAll('.ribbons .source .token')].some(t => t.dataset.label === 'dogs')")
        w.settle()
        check(w.page.inner_text("#said") == "", "what was said stays:", w.page.inner_text("#said"))
        # A text with nothing to translate, and lines that end as few do.
        w.page.fill("#text", "\U0001F600")
        w.until("document.querySelector('#said').textContent === '\U0001F600'")
        w.until("document.querySelector('#views').hidden")
        w.page.fill("#text", "the dogs eat .\u2028the small cat sleeps .")
        w.until("[...document.querySelectorAll('.ribbons .source .token')].some(t => t.dataset.label === 'dogs')")
        w.settle()
        check(w.page.inner_text("#said") == "", "of a text by lines:", w.page.inner_text("#said"))


def nothing_jumps(browser, server):
    """While words come in, nothing that is there moves."""
    with Window(browser, server.url) as w:
        w.js("""() => { window.jumps = 0; new PerformanceObserver(list => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.jumps += e.value; }).observe({ type: 'layout-shift', buffered: false }); }""")
        w.page.fill("#text", "the small dogs eat some bread .")
        w.page.wait_for_timeout(900)
        shift = w.js("window.jumps")
        check(shift < 0.1, "the layout shifts while words stream:", shift)
        print(f"layout shift while a sentence is typed and written: {shift:.4f}")


# ---- the file


def offline(browser, models, made, compared):
    text = "the small cat sleeps .\n\nthe dog eats .\n"
    for name, model in (("rnn", models[0]), ("transformer", models[1])):
        subprocess.run([HEED, "view", "--model", model, "--html", "page.html", "--why"], input=text.encode(), check=True, stdout=subprocess.DEVNULL)
        url = "file://" + os.path.abspath("page.html")
        for width, dark in ((360, False), (1280, True), (2560, False)):
            with Window(browser, url, width, dark) as w:
                what = f"file of {name}, {width} px:"
                w.fits(what)
                check(not w.page.is_visible("#ask") and not w.page.is_visible("#take-file"), what, "asks for a server")
                select(w, what)
                check_accessible(w, what)
                if width == 1280:
                    check(w.page.locator(".chain li").count() >= 4 or name != "rnn", what, "no chain")
                    check([o for o in w.js("[...document.getElementById('sentence').options].map(o => o.text.slice(0, 2))")] == ["1.", "3."], what, "lines are counted wrongly")
                    take(w, what, live=False)
    if len(models) > 1:
        subprocess.run([HEED, "view", "--model", models[1], "--layer", "0", "--head", "1", "--html", "head.html"], input=text.encode(), check=True, stdout=subprocess.DEVNULL)
        with Window(browser, "file://" + os.path.abspath("head.html")) as w:
            check(w.page.locator("[name=layer]").first.input_value() == "0" and w.page.locator("[name=head]").first.input_value() == "1", "--layer and --head are ignored")
    pathlib.Path("made.html").write_text(made)
    with Window(browser, "file://" + os.path.abspath("made.html")) as w:
        check(w.words(), "the offline file of the live page shows nothing")
        check(w.page.locator(".chain li").count() >= 4, "the offline file of the live page has no chain")
    text, shown = compared
    pathlib.Path("compared.html").write_text(text)
    with Window(browser, "file://" + os.path.abspath("compared.html")) as w:
        check([panel.inner_text() for panel in w.page.locator(".panel .target").all()] == shown, "the file of a comparison shows others:", shown)
        readings = w.page.locator(".panel [name=translation]").first
        check(readings.locator("option").count() == 2, "readings to choose from:", readings.inner_text())


# ---- several languages


def two_pairs(browser, models):
    server = Server("en-fr=" + models[0], "fr-en=" + models[1])
    try:
        with Window(browser, server.url + "#row=1&step=2") as w:
            check(w.page.locator("#pair option").all_inner_texts() == ["English → French", "French → English"], "languages to choose from:", w.page.inner_text("#ask"))
            check(w.page.inner_text("#ask").count("English → French") == 1, "the languages are named twice:", w.page.inner_text("#ask"))
            w.page.select_option("#pair", "fr-en")
            w.settle()
            check("pair=fr-en" in w.page.url and "row=" not in w.page.url, "another pair of languages:", w.page.url)
            w.page.wait_for_selector("#all-heads button")  # of the second model
    finally:
        server.end()


# ---- why


# The softmax of a model's scores beside its weights: how far it is off, how far weights are from equal
# ones, how large scores are, how many rows there are, how many keys.
SOFTMAX = """async (ask) => {
  const { score_of } = await import('./web/why.js');
  const answer = await (await fetch('v1/translate', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ source: 'en', target: 'fr', weights: 'all', why: true, ...ask }) })).json();
  const { why, layers } = answer.translations[0].sentences[0], terms = why.layers[0][0], rows = layers[0].heads[0];
  let off = 0, flat = 0, high = 0;
  rows.forEach((row, i) => {
    const e = terms.values.map((_, j) => score_of(terms, i, j)), most = Math.max(...e), hot = e.map((x) => Math.exp((x - most) / why.temperature)), sum = hot.reduce((a, b) => a + b);
    high = Math.max(high, ...e.map(Math.abs));
    row.forEach((weight, j) => (off = Math.max(off, Math.abs((hot[j + why.before] ?? 0) / sum - weight)), flat = Math.max(flat, Math.abs(weight - 1 / row.length))));
  });
  return [off, flat, high, rows.length, terms.values.length];
}"""


def every_score(browser):
    """The numbers of the chain are those of the model, of every score: their softmax is its weights."""
    formulas = {"additive": "tanh", "tanh": "tanh", "bilinear": "W", "dot": "q", "scaled_dot": "\u221a", "cosine": "cos", "static": "W", "location": "W", "factorized": "log"}
    for score in (*formulas, "none"):
        train(f"score-{score}", "--preset", "rnn-small", "--tokens", "words", "--size", "16", "--rate", "2e-2", "--steps", "60", "--score", score,
              *(["--positions", "64"] if score == "static" else []))
    server = Server(*(f"score-{s}" for s in formulas), "score-none")
    try:
        with Window(browser, f"{server.url}#model={len(formulas)}&text=the+small+cat+sleeps+.&forced=le+petit+chat+dort+.") as w:
            check("no attention" in w.page.inner_text(".said"), "a model without attention:", w.page.inner_text(".said"))
            check(not any(w.page.is_visible(i) for i in ("#why", "#legend", ".map")), "a model without attention has weights")
            w.page.check("#compare")
            w.settle()
            w.page.locator(".panel [name=model]").nth(1).select_option("0")
            w.settle()
            check(w.page.is_visible("#legend") and w.page.locator(".map:visible").count() == 1, "beside one without attention, a model has no map")
        for number, (score, sign) in enumerate(formulas.items()):
            with Window(browser, f"{server.url}#model={number}&text=the+small+cat+sleeps+.&forced=le+petit+chat+dort+.") as w:
                w.until("document.querySelector('#chain math') !== null")
                shown = w.js("document.querySelector('#chain').innerText")
                check(sign in w.js("document.querySelector('#chain math').textContent"), score, "has another formula:", shown[:200])
                off, flat, high, rows, _ = w.js(SOFTMAX, {"text": "the small cat sleeps .", "model": number, "forced": "le petit chat dort ."})
                # The model's numbers are of 24 bits, and so is a score that is their sum.
                check(off < 2**-21 * (1 + high) and flat > 0.01 and rows == 6, score, f"its softmax is off by {off}, weights differ by {flat} from equal ones, {rows} rows")
                print(f"why, {score}: the softmax of its scores is off by {off:.1e} at most, of weights {flat:.2f} from equal ones")
    finally:
        server.end()


def without_an_end(browser, transformer):
    """A model that reads no end, and one that reads a beginning in its place: only what is read is shown."""
    subprocess.run([HEED, "export", "--model", transformer, "--to", "ctranslate2", "--out", "ct2"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    config = pathlib.Path("ct2/config.json")
    for name in ("bare", "begun"):
        config.write_text(json.dumps({**json.loads(config.read_text()), "add_source_bos": name == "begun"}))
        subprocess.run([HEED, "import", "ct2", "--model", name, "--no-source-end"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = Server("bare", "begun")
    try:
        for number, name in enumerate(("bare", "begun")):
            with Window(browser, f"{server.url}#model={number}&words=0&text=the+small+cat+sleeps+.") as w:
                w.until("document.querySelector('#chain math') !== null")
                pieces = w.words("source")
                check("</s>" not in pieces and w.words()[-1] == "</s>", name, "shows an end that is not read:", pieces, w.words())
                row = w.js("[...document.querySelectorAll('.chain .bars')].at(-1).innerText.split('\\n').filter((_, i) => i % 2 === 0)")
                bare = lambda words: [p.replace("▁", "") for p in words]
                check(bare(row) == ["<s>"] * (name == "begun") + bare(pieces), name, "weighs others:", row)
                check(w.js("document.querySelector('.map').geometry.columns") == len(pieces), name, "the map's columns")
                off, _, high, rows, keys = w.js(SOFTMAX, {"text": "the small cat sleeps .", "model": number})
                check(off < 2**-21 * (1 + high) and rows > 0 and keys == len(row), name, f"its softmax is off by {off}, {rows} rows, {keys} keys")
    finally:
        server.end()


# ---- steering


def steering(browser, server, model, sentences):
    """Every alternative of every word: what the page would ask for is what `heed translate --prefix` gives."""
    asked = []
    with Window(browser, server.url) as w:
        for text in sentences:
            asked += w.js("""async (text) => {
              const { beginning, before_step } = await import('./web/steps.js'), { reading_of } = await import('./web/reading.js');
              const ask = async (more) => (await (await fetch('v1/translate', { method: 'POST', headers: { 'Content-Type': 'application/json' },
                body: JSON.stringify({ text, source: 'en', target: 'fr', ...more }) })).json()).translations[0];
              const reading = reading_of((await ask({ candidates: true })).sentences[0]);
              const out = [];
              for (let t = 0; t < reading.candidates.length; ++t)
                for (const { piece } of reading.candidates[t].candidates) {
                  if (piece === reading.end) continue;
                  const prefix = beginning(reading, t, piece);
                  out.push([text, prefix, (await ask({ prefix })).text]);
                }
              return out;
            }""", text)
    pathlib.Path("steer.en").write_text("".join(a[0] + "\n" for a in asked))
    pathlib.Path("steer.prefix").write_text("".join(a[1] + "\n" for a in asked))
    wanted = subprocess.run([HEED, "translate", "--model", model, "--prefix", "steer.prefix"], input=pathlib.Path("steer.en").read_bytes(),
                            check=True, stdout=subprocess.PIPE).stdout.decode().splitlines()
    wrong = [(a, b) for a, b in zip(asked, wanted) if a[2] != b]
    check(len(asked) > 20 and not wrong and len(wanted) == len(asked), "steering differs from --prefix:", len(wrong), "of", len(asked), wrong[:2])
    print(f"steering: {len(asked)} alternatives of {len(sentences)} sentences as `heed translate --prefix` gives them")


# ---- figures


def measure(browser, server):
    first, whole = [], []
    with Window(browser, server.url, still=False) as w:
        for text in ("the small cat sleeps .", "he hit me with a pie .", "the black dogs do not eat any bread .", "she reads a long letter .") * 3:
            times = w.js("""(text) => new Promise((done) => {
              const box = document.getElementById('text'), line = document.querySelector('.panel .target'), before = line.textContent;
              box.value = ''; box.dispatchEvent(new Event('input'));
              setTimeout(() => {
                box.value = text; box.dispatchEvent(new Event('input'));
                const begin = performance.now(), out = {};
                const look = () => {
                  const source = [...document.querySelectorAll('.panel .source .token')].map(t => t.dataset.label).filter(t => t !== '</s>').join(' ');
                  if (source === text && line.childElementCount > 0) out.first ??= performance.now() - begin;
                  if (out.first && !document.body.classList.contains('waiting')) return done({ ...out, whole: performance.now() - begin });
                  requestAnimationFrame(look);
                };
                look();
              }, 300);
            })""", text)
            first.append(times["first"]), whole.append(times["whole"])
    middle = lambda v: sorted(v)[len(v) // 2]
    print(f"first words after typing stops: median {middle(first):.0f} ms, most {max(first):.0f} ms; the whole: median {middle(whole):.0f} ms, most {max(whole):.0f} ms")
    check(middle(first) <= 150 and middle(whole) <= 400, "words come late: 150 and 400 ms are wanted")
    # Ribbons of 8 heads move from those of one layer to those of another and back, 3 seconds long; frames
    # are those that the browser's trace says were drawn. Beside them a page with nothing but a dot, which
    # is what this browser can do at most.
    turns = """() => new Promise((done) => {
      let turn = 0;
      const turns = setInterval(() => {
        if (++turn > 12) return clearInterval(turns), done();
        location.hash = '#overlay=' + [0,1,2,3,4,5,6,7].map(h => (turn % 2 ? '1.' : '0.') + h).join('+');
      }, 250);
    })"""
    dot = """() => {
      document.body.replaceChildren('.');
      const step = () => (document.body.firstChild.data = document.body.firstChild.data === '.' ? ',' : '.', requestAnimationFrame(step));
      step();
    }"""

    def frames(page):
        browser.start_tracing(page=page, categories=["devtools.timeline.frame", "disabled-by-default-devtools.timeline.frame"])
        page.evaluate(turns)
        drawn = sorted(e["ts"] / 1000 for e in json.loads(browser.stop_tracing())["traceEvents"] if e["name"] == "DrawFrame")
        between = [b - a for a, b in zip(drawn, drawn[1:])]
        rate = 1000 * len(between) / sum(between)
        return rate, (f"{rate:.1f} frames a second, median {middle(between):.1f} ms, "
                      f"95 % within {sorted(between)[int(.95 * len(between))]:.1f} ms, {sum(b > 25 for b in between)} of {len(between)} late")

    for width in (360, 1280, 2560):
        empty = browser.new_page(viewport={"width": width, "height": 900})
        empty.evaluate(dot)
        most, said = frames(empty)
        print(f"a dot at {width} px, by the trace: {said}")
        empty.close()
        with Window(browser, server.url, width, still=False, answer=answer([f"w{i}" for i in range(39)], [f"t{i}" for i in range(39)], 8, 2)) as w:
            w.page.evaluate("location.hash = '#overlay=' + [0,1,2,3,4,5,6,7].map(h => '0.' + h).join('+')")
            w.page.wait_for_timeout(500)
            rate, said = frames(w.page)
            print(f"ribbons of 40 x 40 tokens and 8 heads at {width} px, by the trace: {said}")
            check(rate > min(60, most) - 0.5, "ribbons are late:", rate, "frames a second, a dot has", most)  # a dot's own rates differ by as much


with tempfile.TemporaryDirectory() as folder:
    if GIVEN:
        models = [os.path.abspath(m) for m in option("--models", 2)]
        lines = pathlib.Path(option("--sentences")[0]).read_text().splitlines()[:20] if "--sentences" in sys.argv else ["the small cat sleeps ."]
        os.chdir(folder)
    else:
        grammar, words = map(os.path.abspath, sys.argv[2:4])
        os.chdir(folder)
        subprocess.run([grammar, "corpus", "400", "1", words], check=True, stdout=subprocess.DEVNULL)
        # It must write sentences of some words, which is enough to step through and to lead elsewhere.
        train("rnn", "--preset", "rnn-small", "--tokens", "words", "--size", "48", "--rate", "1e-2", "--steps", "600")
        train("transformer", "--preset", "transformer-tiny", "--tokens", "bpe", "--vocabulary", "80", "--size", "16", "--inner", "16", "--heads", "2", "--encoder-layers", "1", "--decoder-layers", "1", "--steps", "20")
        models = ["rnn", "transformer"]
        lines = pathlib.Path("corpus/test.en").read_text().splitlines()[:2]
    server = Server(*models)
    try:
        with sync_playwright() as p:
            browser = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
            if MEASURE:
                measure(browser, server)
            else:
                made, compared = live(browser, server, models[1])
                still_and_moving(browser, server)
                strange(browser, server)
                long_self_attention(browser, server)
                far_ribbons(browser, server)
                unanswered(browser, server)
                nothing_jumps(browser, server)
                grows(browser, server)
                offline(browser, models, made, compared)
                two_pairs(browser, models)
                without_an_end(browser, models[1])
                if not GIVEN:
                    every_score(browser)
            steering(browser, server, models[0], lines)
            browser.close()
    finally:
        server.end()
    os.chdir("/")
print("wrong: " + str(len(failed)) if failed else "the page is as wanted")
sys.exit(bool(failed))
