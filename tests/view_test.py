"""Reads the pictures and the page with parsers that are not ours. $1: heed_tests."""
import html.parser, json, os, pathlib, re, struct, subprocess, sys, tempfile, zlib
import xml.etree.ElementTree as xml

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "</script><script>alert(1)</script><!-- & \"' . .[31m \ufffd"  # as to_label() leaves it


def check_svg(folder):
    for path in sorted(folder.glob("*.svg")):
        root = xml.parse(path).getroot()
        assert root.tag == SVG + "svg", path
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "style", "rect", "text", "title", "g", "path", "circle"}, (path, tags)
    wild = xml.parse(folder / "wild.svg").getroot()
    assert any(EVIL in (title.text or "") for title in wild.iter(SVG + "title"))
    assert len(list(xml.parse(folder / "large.svg").getroot().iter(SVG + "title"))) == 100 * 100


def read_png(path):
    """Width, height and a function from a dot to its colour; every chunk's sum checked."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", path
    at, chunks = 8, {}
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + body)
        chunks[name], at = body, at + 12 + size
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    rows, palette = zlib.decompress(chunks[b"IDAT"]), chunks[b"PLTE"]
    assert (depth, kind, len(rows)) == (8, 3, height * (width + 1))
    assert all(rows[y * (width + 1)] == 0 for y in range(height))

    def color(x, y):
        index = rows[y * (width + 1) + 1 + x]
        return tuple(palette[3 * index : 3 * index + 3])

    return width, height, color


def check_png(folder):
    # Three rows and columns of 24 dots; margins of 16, words of 4 and 5 letters of 12, a gap of 8,
    # the title's 48.
    width, height, color = read_png(folder / "small.png")
    x0, y0 = 16 + 4 * 12 + 8, 16 + 48 + 5 * 12 + 8
    # The legend, 16 below: five shades, each with its number after 8 and 12 to the next; "weight".
    scale = (0, 0.05, 0.25, 0.5, 1)
    left = [16 + sum(24 + 8 + 12 * len(str(v)) + 12 for v in scale[:n]) for n in range(6)]
    wide = left[5] - 16 + 6 * 12
    assert height == y0 + 3 * 24 + 16 + 24 + 16 and width == 16 + wide + 16, (width, height)
    for step, x in zip(scale, left):
        got = color(x + 11, y0 + 3 * 24 + 16 + 11)
        wanted = [a + (b - a) * step ** 0.5 for a, b in ((247, 8), (251, 48), (255, 107))]
        assert max(abs(g - w) for g, w in zip(got, wanted)) < 1, (step, got, wanted)
    assert color(0, 0) == (255, 255, 255)
    for (row, column), weight in {(0, 0): 0.9, (0, 2): 0.04, (1, 2): 0.7, (2, 1): 0.85}.items():
        got = color(x0 + 24 * column + 11, y0 + 24 * row + 11)
        wanted = [a + (b - a) * weight ** 0.5 for a, b in ((247, 8), (251, 48), (255, 107))]
        assert max(abs(g - w) for g, w in zip(got, wanted)) < 1, (row, column, got, wanted)
    ink = sum(color(x, y) == (31, 35, 40) for x in range(width) for y in range(height))
    assert ink > 1000, ink
    # Sure links have a frame, predicted ones a disc with a rim.
    width, height, color = read_png(folder / "marked.png")
    gold, ink, white = (209, 89, 10), (31, 35, 40), (255, 255, 255)
    for row, column, sure, predicted in ((0, 0, True, True), (2, 1, True, False), (1, 1, False, True), (0, 1, False, False)):
        x, y = x0 + 24 * column, y0 + 24 * row
        edge = [color(x + i, y + 1) for i in range(23)]
        assert all(c == gold for c in edge) == sure, (row, column)
        assert (color(x + 11, y + 11) == white and color(x + 11, y + 16) == ink) == predicted, (row, column)
    edge = [color(x0 + 48 + i, y0 + 24 + 1) == gold for i in range(23)]
    assert any(edge) and not all(edge), "a possible link's frame is broken"
    width, height, _ = read_png(folder / "large.png")
    assert width > 2400 and height > 2400
    read_png(folder / "wild.png")


class Reader(html.parser.HTMLParser):
    """Which elements are open, the text of scripts, the title."""

    VOID = {"meta", "input", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.scripts, self.title, self.ids = [], [], "", []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append([dict(attributes), ""])
        self.ids += [value for name, value in attributes if name == "id"]
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attributes)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        if self.open == ["html", "head", "title"]:
            self.title += data


def check_page(folder):
    reader = Reader()
    reader.feed((folder / "page.html").read_text())
    reader.close()
    assert not reader.open, reader.open
    assert len(reader.scripts) == 2, len(reader.scripts)
    assert reader.scripts[1][0] == {"type": "module"}
    assert len(set(reader.ids)) == len(reader.ids)
    assert reader.title == "Attention of " + EVIL, reader.title
    data = json.loads(reader.scripts[0][1])
    assert data["start"]["head"] == -1 and data["start"]["shift"] is None
    sentences = data["sentences"]
    assert [len(s["source"]["pieces"]) for s in sentences] == [3, 5, 100, 0]
    assert sentences[1]["target"]["pieces"][0] == EVIL and sentences[1]["note"] == EVIL
    assert sentences[0]["layers"][0]["heads"][0][0] == [0.9, 0.06, 0.04]
    assert sentences[0]["layers"][1]["name"] == "last"
    assert sentences[0]["tree"][7] == {"piece": ".", "parent": 6, "log_probability": -1, "score": -1, "finished": True, "best": True}
    for sentence in sentences:
        for layer in sentence["layers"]:
            for head in layer["heads"]:
                if sentence["source"]["pieces"]:
                    assert len(head) == len(sentence["target"]["pieces"]), len(head)
                    assert {len(row) for row in head} == {len(sentence["source"]["pieces"])}


def check_modules():
    """What each module imports is there, nothing goes in a circle, all of it is small."""
    web = pathlib.Path(__file__).parent.parent / "heed" / "view" / "web"
    texts = {p.name: p.read_text() for p in web.glob("*.js")}
    order = re.findall(r'File\{"(\w+\.js)"', (web.parent / "page_files.cpp").read_text())
    assert sorted(order) == sorted(texts), set(order) ^ set(texts)
    for name, text in texts.items():
        exported = lambda of: set(re.findall(r"^export (?:async )?(?:function\*? |const |let |class )(\w+|\$)", texts[of], re.M))
        imports = re.findall(r'^import \{ (.*) \} from "\./(\w+\.js)";$', text, re.M)
        assert len(imports) == len(re.findall(r"^import ", text, re.M)), f"{name}: an import of another form"
        for names, file in imports:
            assert order.index(file) < order.index(name), f"{name} imports {file}, which comes later"
            missing = set(names.split(", ")) - exported(file)
            assert not missing, f"{name}: {file} does not export {missing}"
            body = text.replace(f"import {{ {names} }}", "")
            unused = [n for n in names.split(", ") if not re.search(rf"(?<![\w.]){re.escape(n)}(?!\w)", body)]
            assert not unused, f"{name}: imports {unused} for nothing"
        assert len(re.findall(r"^export ", text, re.M)) == len(exported(name)), f"{name}: an export of another form"
        for bad in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http:", "https:"):
            assert bad not in text.replace("http://www.w3.org/", ""), f"{name}: {bad}"
    size = sum(p.stat().st_size for p in web.iterdir())
    assert size < 150_000, size


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else name)
    subprocess.run([sys.argv[1], "--gtest_filter=View.*", "--gtest_brief=1"], check=True,
                   env={**os.environ, "HEED_VIEW_FOLDER": str(folder)})
    for check in (check_svg, check_png, check_page):
        check(folder)
check_modules()
