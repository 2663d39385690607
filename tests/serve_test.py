"""heed serve as its clients see it. Arguments: the program, the grammar that writes a corpus, its words."""
import concurrent.futures, gzip, http.client, json, math, os, re, shlex, signal, socket, struct, subprocess, sys, tempfile, threading, time
import urllib.parse

HEED, GRAMMAR, WORDS = map(os.path.abspath, sys.argv[1:4])
HERE = os.path.dirname(os.path.abspath(__file__))
failed = []


def check(holds, *words):
    if not holds:
        print("wrong:", *words)
        failed.append(words)


def same(got, wanted, what):
    check(got == wanted, f"{what}: got {got!r}, wanted {wanted!r}")


def until(condition, what, seconds=120):
    """Machines are slow at times: what is waited for may come late, but must come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            check(False, "waited in vain:", what)
            return
        time.sleep(0.05)


class Server:
    def __init__(self, *flags, model="en-fr=m"):
        self.err = open("err", "w+")
        self.process = subprocess.Popen([HEED, "serve", "--model", model, "--port", "0", *flags],
                                        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.lines = []
        self.port = None
        while self.port is None:
            line = self.process.stderr.readline().decode()
            if not line:
                raise SystemExit(f"the server did not start: {self.lines}")
            self.lines.append(line)
            found = re.search(r"listening at http://[^/]*:(\d+)/", line)
            self.port = int(found.group(1)) if found else None
        self.reader = threading.Thread(target=lambda: self.lines.extend(
            l.decode(errors="replace") for l in self.process.stderr), daemon=True)
        self.reader.start()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(self, method, path, body=None, headers=None, connection=None):
        c = connection or self.connect()
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        text = r.read()
        if not connection:
            c.close()
        return r.status, text, dict((k.lower(), v) for k, v in r.getheaders())

    def json(self, path, value, status=200, **more):
        got, text, headers = self.ask("POST", path, json.dumps(value), {"Content-Type": "application/json"}, **more)
        check(got == status, f"{path} {value}: {got} {text!r}, wanted {status}")
        return json.loads(text)

    def get(self, path, status=200):
        got, text, headers = self.ask("GET", path)
        check(got == status, f"GET {path}: {got} {text!r}, wanted {status}")
        return text

    def raw(self, data, half_close=False, wait=30):
        """What comes back for these bytes, until the server closes (or is silent for long)."""
        s = socket.create_connection(("127.0.0.1", self.port))
        s.settimeout(wait)
        s.sendall(data)
        if half_close:
            s.shutdown(socket.SHUT_WR)
        out = b""
        try:
            while part := s.recv(65536):
                out += part
        except (socket.timeout, ConnectionResetError):
            pass
        s.close()
        return out

    def end(self, signal_number=signal.SIGTERM):
        self.process.send_signal(signal_number)
        code = self.process.wait(120)
        self.reader.join()
        same(code, 0, f"exit code after signal {signal_number}: {self.lines[-3:]}")


def train(folder, steps, seed):
    subprocess.run([HEED, "train", "--source", "corpus/train.en", "--target", "corpus/train.fr", "--tokens", "words",
                    "--preset", "rnn-small", "--size", "24", "--batch-tokens", "400", "--warmup", "10",
                    "--steps", str(steps), "--seed", str(seed), "--model", folder],
                   check=True, stderr=subprocess.DEVNULL)


def translated(folder, texts, language="en"):
    """What `heed translate --text` gives, one text at a time."""
    return [subprocess.run([HEED, "translate", "--text", "--language", language, "--model", folder], input=t.encode(), check=True,
                           stdout=subprocess.PIPE).stdout.decode() for t in texts]


def routes(server, texts, wanted):
    # ---- /translate
    one = server.json("/translate", {"q": texts[0], "source": "en", "target": "fr"})
    same(one, {"translatedText": wanted[0]}, "/translate")
    many = server.json("/translate", {"q": texts, "source": "en", "target": "fr", "api_key": None, "else": 1})
    same(many, {"translatedText": wanted}, "/translate, a list")
    status, text, headers = server.ask("POST", "/translate", json.dumps({"q": [texts[0]], "source": "auto", "target": "fr"}),
                                       {"Content-Type": "application/problem+json; charset=utf-8"})
    same(status, 200, "+json")
    check(re.fullmatch(rb'\{"detectedLanguage":\[\{"confidence":[0-9.]+,"language":"en"\}\],"translatedText":\[".*"\]\}\n', text),
          "keys in order, no spaces, a newline:", text)
    same(headers["content-type"], "application/json", "content type")
    for name, value in {"allow-origin": "*", "allow-headers": "Authorization, Content-Type", "expose-headers": "Authorization",
                        "allow-methods": "GET, POST", "allow-credentials": "true", "max-age": "1728000"}.items():
        same(headers.get("access-control-" + name), value, "CORS " + name)
    got = server.json("/translate", {"q": texts[0], "source": "en", "target": "fr", "alternatives": 3})
    check(isinstance(got["alternatives"], list) and got["translatedText"] not in got["alternatives"]
          and len(set(got["alternatives"])) == len(got["alternatives"]) > 0, "alternatives:", got)
    got = server.json("/translate", {"q": texts[:2], "source": "en", "target": "fr", "alternatives": 2})
    check(len(got["alternatives"]) == 2 and all(isinstance(a, list) for a in got["alternatives"]), "alternatives of a list:", got)
    got = server.json("/translate", {"q": "<p>" + texts[0] + "</p>", "source": "en", "target": "fr", "format": "html", "alternatives": 1})
    same(got["alternatives"], [], "alternatives of HTML")
    check(got["translatedText"].startswith("<p>") and got["translatedText"].endswith("</p>"), "HTML:", got)
    same(server.json("/translate", {"q": texts[0], "source": "en", "target": "en"})["translatedText"], texts[0], "to itself")
    same(server.json("/translate", {"q": "😀 🎉", "source": "auto", "target": "fr"})["detectedLanguage"],
         {"confidence": 0, "language": "en"}, "emoji")
    # Other bodies.
    fields = {"q": texts[0], "source": "en", "target": "fr"}
    form = urllib.parse.urlencode(fields)
    types = {"Content-Type": "application/x-www-form-urlencoded"}
    for path, body, headers in [("/translate", form, types), ("/translate?" + form, None, {}),
                                ("/translate", form + "&q=another", types),
                                ("/translate", multipart(fields), {"Content-Type": "multipart/form-data; boundary=xyz"})]:
        status, text, _ = server.ask("POST", path, body, headers)
        same((status, json.loads(text)), (200, {"translatedText": wanted[0]}), f"{path} {headers}")
    # What is refused, in LibreTranslate's words and order.
    good = {"q": "the cat", "source": "en", "target": "fr"}
    for change, words in [({"q": ""}, "Invalid request: missing q parameter"),
                          ({"q": []}, "Invalid request: missing q parameter"),
                          ({"q": ["a", 1]}, None), ({"q": 5}, None), ({"q": {"a": 1}}, None), ({"source": ["en"]}, None),
                          ({"source": None}, "Invalid request: missing source parameter"),
                          ({"target": ""}, "Invalid request: missing target parameter"),
                          ({"alternatives": "abc"}, "Invalid request: alternatives parameter is not a number"),
                          ({"alternatives": None}, "Invalid request: alternatives parameter is not a number"),
                          ({"alternatives": 10**30}, None),
                          ({"alternatives": 11}, "Invalid request: alternatives parameter must be <= 10"),
                          ({"source": "ZZ"}, "zz is not supported"), ({"target": "xx_YY"}, "xx-yy is not supported"),
                          ({"format": "xml"}, "xml format is not supported"), ({"format": 3}, None),
                          ({"source": "fr", "target": "en"},
                           "English (en) is not available as a target language from French (fr)")]:
        got = server.json("/translate", {**good, **change}, 400)
        check(list(got) == ["error"] and (words is None or got["error"] == words), change, got)
    for body, words in [("{", "The browser (or proxy) sent a request that this server could not understand."),
                        ('{"q": "\xff"}'.encode("latin-1"), "The browser (or proxy) sent a request that this server could not understand."),
                        ("[1]", "Invalid JSON format"), ('"q"', "Invalid JSON format")]:
        status, text, _ = server.ask("POST", "/translate", body, {"Content-Type": "application/json"})
        same((status, json.loads(text)), (400, {"error": words}), body)
    status, text, _ = server.ask("POST", "/translate", json.dumps(good), {"Content-Type": "text/plain"})
    same((status, json.loads(text)["error"]), (400, "Invalid request: missing q parameter"), "JSON of another type")
    # Codes of languages.
    for code in ["EN", "en-US", "en_GB"]:
        same(server.json("/translate", {**good, "source": code}), server.json("/translate", good), code)
    # Weblate's trial.
    same(server.json("/translate", {"q": ["test"], "source": "en", "target": "de"}), {"translatedText": ["test"]}, "Weblate")
    server.json("/translate", {"q": ["tests"], "source": "en", "target": "de"}, 400)

    # ---- the others
    same(server.json("/detect", {"q": "This is a sentence that is written in English."})[0]["language"], "en", "/detect")
    same(server.json("/detect", {"q": ["Ceci est une phrase que l'on a écrite en français.", "Oui."]})[0]["language"], "fr", "/detect")
    same(server.json("/detect", {"q": "123 😀"}), [{"confidence": 0, "language": "en"}], "/detect, nothing")
    server.json("/detect", {}, 400)
    same(json.loads(server.get("/languages")),
         [{"code": "en", "name": "English", "targets": ["en", "fr"]}, {"code": "fr", "name": "French", "targets": ["fr"]}], "/languages")
    same(server.get("/health"), b'{"status":"ok"}\n', "/health")
    settings = json.loads(server.get("/frontend/settings"))
    same(settings["charLimit"], -1, "charLimit")
    same(settings["language"]["source"], {"code": "auto", "name": "Auto Detect"}, "settings")
    same(sorted(settings), ["apiKeys", "charLimit", "filesTranslation", "frontendTimeout", "keyRequired", "language",
                            "suggestions", "supportedFilesFormat"], "settings")
    same(server.json("/suggest", {"q": "a", "s": "b", "source": "en", "target": "fr"}, 403),
         {"error": "Suggestions are disabled on this server."}, "/suggest")
    status, text, headers = server.ask("GET", "/")
    check(b'src="web/page.js"' in text and b"@" not in text.replace(b"@media", b""), "the page:", text[:200])
    policy = headers["content-security-policy"]
    check("default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy, "its policy:", policy)
    for name in set(re.findall(rb'(?:src|href)="(web/[^"]+)"', text)) | {b"web/dom.js"}:
        status, content, headers = server.ask("GET", "/" + name.decode())
        check(status == 200 and len(content) > 100, "a file of the page:", name, status)
        check(headers["content-type"].split(";")[0] == ("text/css" if name.endswith(b"css") else "text/javascript"), "its type:", headers)
    server.get("/web/page.html", 404), server.get("/web/none.js", 404)
    check(b'id="data">null</script>' in server.get("/view.html"), "the page as a file")
    check(json.loads(server.get("/spec"))["openapi"].startswith("3."), "/spec")
    for path in ["/nothing", "/translate/", "/languages/x", "/download_file/", "/..%2f"]:
        check("error" in json.loads(server.get(path, 404)), path)
    check("error" in json.loads(server.get("/translate", 405)), "405")
    status, text, headers = server.ask("OPTIONS", "/translate")
    same((status, text, headers.get("access-control-allow-origin")), (200, b"", "*"), "OPTIONS")
    status, text, headers = server.ask("HEAD", "/languages")
    check(status == 200 and text == b"" and int(headers["content-length"]) > 20, "HEAD", headers)
    # A GET with a body, as LibreTranslate's own client sends it, and the connection goes on.
    c = server.connect()
    same(server.ask("GET", "/languages", "a=b", types, c)[0], 200, "GET with a body")
    same(server.ask("GET", "/health", "{}", {"Content-Type": "application/json"}, c)[0], 200, "and again")
    c.close()
    metrics = server.get("/metrics").decode()
    for line in ['heed_http_requests_total{code="200",route="/translate"} ', "heed_http_request_duration_seconds_bucket{",
                 'heed_decoder_steps_total{model="en-fr"} ', "process_resident_memory_bytes ", "heed_queue_requests 0",
                 'heed_tokens_total{side="target"} ']:
        check(line in metrics, "/metrics has no", line)
    for line in metrics.splitlines():
        check(re.fullmatch(r'# (HELP|TYPE) \S+ .*|\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [-+.e0-9]+(inf)?', line), "/metrics:", line)


def multipart(fields, file=None):
    out = b""
    for name, value in fields.items():
        out += f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    if file:
        out += f'--xyz\r\nContent-Disposition: form-data; name="file"; filename="{file[0]}"\r\n\r\n'.encode() + file[1] + b"\r\n"
    return out + b"--xyz--\r\n"


def send_file(server, name, content, status=200, **fields):
    got, text, _ = server.ask("POST", "/translate_file", multipart({"source": "en", "target": "fr", **fields}, (name, content)),
                              {"Content-Type": "multipart/form-data; boundary=xyz"})
    same(got, status, f"/translate_file {name}: {text!r}")
    if status != 200:
        return json.loads(text)["error"]
    url = urllib.parse.urlparse(json.loads(text)["translatedFileUrl"])
    same(url.netloc, f"127.0.0.1:{server.port}", "the file's address")
    got, text, headers = server.ask("GET", url.path)
    same(got, 200, "/download_file")
    stem, dot, ext = name.rpartition(".")
    same(urllib.parse.unquote(headers["content-disposition"]), f"attachment; filename*=UTF-8''{stem}_fr.{ext}", "the file's name")
    return text.decode()


def files(server, texts, wanted):
    same(send_file(server, "été 1.txt", "\n".join(texts[:3]).encode()), "\n".join(wanted[:3]), "a .txt")
    check("<b>" in send_file(server, "a.html", f"<b>{texts[0]}</b>".encode()), "an .html")
    srt = f"1\r\n00:00:01,000 --> 00:00:02,000\r\n{texts[0]}\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,500 X1:40\r\n- {texts[1]}\r\n- {texts[2]}\r\n"
    same(send_file(server, "a.srt", srt.encode()),
         f"1\r\n00:00:01,000 --> 00:00:02,000\r\n{wanted[0]}\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,500 X1:40\r\n- {wanted[1]}\r\n- {wanted[2]}\r\n", "an .srt")
    po = (f'# head\nmsgid ""\nmsgstr ""\n"Language: fr\\n"\n\n#: a.c:1\n#, c-format\nmsgid "{texts[0]}"\nmsgstr ""\n\n'
          f'msgid "done"\nmsgstr "fait"\n\nmsgctxt "x"\nmsgid "{texts[1]}"\nmsgid_plural "{texts[2]}"\nmsgstr[0] ""\nmsgstr[1] ""\n')
    same(send_file(server, "a.po", po.encode()),
         f'# head\nmsgid ""\nmsgstr ""\n"Language: fr\\n"\n\n#: a.c:1\n#, c-format, fuzzy\nmsgid "{texts[0]}"\nmsgstr "{wanted[0]}"\n\n'
         f'msgid "done"\nmsgstr "fait"\n\n#, fuzzy\nmsgctxt "x"\nmsgid "{texts[1]}"\nmsgid_plural "{texts[2]}"\nmsgstr[0] "{wanted[1]}"\nmsgstr[1] "{wanted[2]}"\n', "a .po")
    same(send_file(server, "a.doc", b"x", 400), "Invalid request: file format not supported", "another file")
    check("UTF-8" in send_file(server, "a.txt", b"caf\xe9", 400), "not UTF-8")
    same(send_file(server, "", b"x", 400), "Invalid request: empty file", "no name")
    form = {"Content-Type": "multipart/form-data; boundary=xyz"}
    status, text, _ = server.ask("POST", "/translate_file", multipart({"source": "en", "target": "fr"}), form)
    same(status, 400, "no file")
    status, text, _ = server.ask("POST", "/translate_file", multipart({"source": "en", "target": "fr", "file": texts[0]}), form)
    same(status, 200, f"a file without a name: {text!r}")
    same(server.get(urllib.parse.urlparse(json.loads(text)["translatedFileUrl"]).path).decode(), wanted[0], "a file without a name")
    server.get("/download_file/0.txt", 404)


def wire(server, texts, wanted):
    """HTTP itself."""
    body = json.dumps({"q": texts[0], "source": "en", "target": "fr"}).encode()
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    plain = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = plain.replace(b"Host", b"Connection: close\r\nHost", 1)
    answer = json.dumps({"translatedText": wanted[0]}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    # Pipelined, all at once; then half-closed.
    got = server.raw(plain * 5 + last)
    same((got.count(b"HTTP/1.1 200 OK"), got.count(answer)), (6, 6), "pipelined")
    got = server.raw(plain + plain, half_close=True)
    same((got.count(b"HTTP/1.1 200 OK"), got.count(answer)), (2, 2), "half-closed")
    # Chunked, byte by byte.
    chunks = b"".join(b"1;x=y\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n"
    got = server.raw(head + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks)
    same(got.count(answer), 1, "chunked")
    got = server.raw(head + b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    check(got.startswith(b"HTTP/1.1 100 ") and answer in got, "Expect:", got[:80])
    # Empty lines before a request, and after a body, are no part of either.
    got = server.raw(b"\r\n\r\n" + plain + b"\r\n" + plain + b"\r\n\r\n" + last)
    same((got.count(b"HTTP/1.1 200 OK"), got.count(answer)), (3, 3), "empty lines")
    # A body that is compressed is not taken for JSON.
    packed = gzip.compress(body)
    status, text, _ = server.ask("POST", "/translate", packed, {"Content-Type": "application/json", "Content-Encoding": "gzip"})
    check(status == 415 and "gzip" in json.loads(text)["error"], "a compressed body", status, text)
    same(server.ask("POST", "/translate", body, {"Content-Type": "application/json", "Content-Encoding": "identity"})[0], 200, "identity")
    # HTTP/1.0 is closed after the answer.
    got = server.raw(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
    check(got.endswith(b'{"status":"ok"}\n') and b"Connection: close" in got, "HTTP/1.0", got)
    # Malformed.
    for bad, status in [(b"hello\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400),
                        (b"GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400), (b"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
                        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 40000 + b"\r\n\r\n", 431),
                        (head + b"Content-Length: 999999999999\r\n\r\n", 413),
                        (head + b"Content-Length: x\r\n\r\n", 400), (head + b"Content-Length: -5\r\n\r\n", 400),
                        (head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
                        (head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
                        (b"GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 421),
                        (b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 421),
                        (b"BREW /translate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405)]:
        got = server.raw(bad)
        check(got.startswith(b"HTTP/1.1 %d " % status) and b'{"error":' in got, bad[:60], "wanted", status, "got", got[:200])
    # A client that goes before the answer, and one that is cut off within its request.
    for part in (plain, plain[:-10], plain[:20]):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(part)
        s.close()
    same(server.json("/translate", {"q": texts[0], "source": "en", "target": "fr"})["translatedText"], wanted[0], "after all that")
    # One that was cut off is noticed while its translation is computed, which ends. How long that takes, a first client
    # who waits for it tells: the second goes as soon as it has begun.
    took, copies = 0.0, 20
    while took < 2:
        copies = int(copies * min(8, 2.5 / took)) if took else copies
        long = json.dumps({"q": "\n\n".join(texts * copies), "source": "en", "target": "fr"}).encode()
        began = time.monotonic()
        same(server.ask("POST", "/translate", long, {"Content-Type": "application/json"})[0], 200, "a long text")
        took = time.monotonic() - began
    long += b" "  # so that its line in the log is another
    # The one that asks is answered, too, while it asks.
    under_way = lambda: int(re.search(rb"^heed_requests_under_way (\d+)$", server.get("/metrics"), re.M)[1])
    until(lambda: under_way() == 1, "the end of the first one's")
    s = socket.create_connection(("127.0.0.1", server.port))
    s.sendall(head + b"Content-Length: %d\r\n\r\n" % len(long) + long)
    until(lambda: under_way() >= 2, "its request")
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    def ended():
        return [json.loads(l)["status"] for l in server.lines if l.startswith("{") and f'"bytes":{len(long)},' in l]
    until(ended, "an end of what nobody waits for", 20)
    same(ended(), [503], "a client that has gone")


def real_clients(server, texts, wanted):
    """Clients of LibreTranslate's, as others wrote them; those that are not installed are told of."""
    url = f"http://127.0.0.1:{server.port}/"
    try:
        from libretranslatepy import LibreTranslateAPI
        api = LibreTranslateAPI(url)
        same(api.translate(texts[0], "en", "fr"), wanted[0], "libretranslatepy")
        same(api.detect("This is a sentence that is written in English.")[0]["language"], "en", "libretranslatepy, detect")
        same([l["code"] for l in api.languages()], ["en", "fr"], "libretranslatepy, languages")
    except ImportError:
        print("skipped: libretranslatepy is not installed (PyPI)")
    try:
        from deep_translator import LibreTranslator
        api = LibreTranslator(source="en", target="fr", api_key="any", custom_url=url)
        same(api.translate(texts[0]), wanted[0].strip(), "deep-translator")
        same(api.translate_batch(texts[:3]), [w.strip() for w in wanted[:3]], "deep-translator, a list")
    except ImportError:
        print("skipped: deep-translator is not installed (PyPI)")
    # Everything that the description allows is answered as it says; what it does not may be answered, too, as
    # LibreTranslate does: numbers as strings, other names of languages.
    program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    if os.path.exists(program):
        checks = ("not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
                  "positive_data_acceptance")
        got = subprocess.run([program, "run", url + "spec", "--max-examples", "10", "--seed", "1", "--checks", checks],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        same(got.returncode, 0, "schemathesis: " + got.stdout.decode(errors="replace")[-8000:])
    else:
        print("skipped: schemathesis is not installed (PyPI)")


def many_clients(server, texts, wanted):
    """A hundred at once, each of them several times on one connection: the bytes of one alone."""
    def client(n):
        c = server.connect()
        out = []
        for k in range(4):
            i = (n + k) % len(texts)
            out.append(server.json("/translate", {"q": texts[i], "source": "en", "target": "fr"}, connection=c)
                       == {"translatedText": wanted[i]})
        c.close()
        return all(out)
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        same(list(pool.map(client, range(100))), [True] * 100, "a hundred clients")


class Load:
    """Clients that ask until they are told to stop, or the server has ended: every request that was sent is answered."""
    def __init__(self, server, texts, wanted, count=12, keep_alive=True):
        self.server, self.texts, self.wanted, self.keep_alive = server, texts, wanted, keep_alive
        self.answers, self.lost, self.stop = 0, [], False
        self.threads = [threading.Thread(target=self.client, args=(n,)) for n in range(count)]
        for t in self.threads:
            t.start()

    def client(self, n):
        c = None
        while not self.stop:
            if c is None:
                c = self.server.connect()
                try:
                    c.connect()
                except ConnectionError:
                    return  # it listens no more
            i = n % len(self.texts)
            n += 1
            body = json.dumps({"q": self.texts[i], "source": "en", "target": "fr"})
            try:
                c.request("POST", "/translate", body, {"Content-Type": "application/json"})
                r = c.getresponse()
                answer = json.loads(r.read())
            except Exception as error:
                self.lost.append(repr(error))
                return
            if r.status != 200 or answer["translatedText"] not in self.wanted[i]:
                self.lost.append((r.status, answer))
            self.answers += 1
            if r.getheader("Connection") == "close" or not self.keep_alive:
                c.close()
                c = None

    def join(self):
        for t in self.threads:
            t.join()


def documented(server, page):
    """The page's curl examples, as curl would send them: each is answered, and not by an error."""
    examples = [b for b in re.findall(r"```sh\n(.*?)```", open(page).read(), re.S) if b.startswith("curl")]
    check(len(examples) >= 4, "examples of", page, len(examples))
    for example in examples:
        words, data, headers, url = shlex.split(example)[1:], [], {}, None
        while words:
            word = words.pop(0)
            if word == "-d":
                data.append(words.pop(0))
            elif word == "-H":
                name, value = words.pop(0).split(": ")
                headers[name] = value
            elif not word.startswith("-"):
                url = word
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        status, text, _ = server.ask("POST", url[len("localhost:5000"):], "&".join(data), headers)
        check(status == 200 and b"rror" not in text and b"translat" in text, example, status, text)


def explained(server, texts, wanted):
    one = server.json("/v1/translate", {"text": texts[0], "source": "auto", "target": "fr", "weights": "all", "best": 2, "tree": True,
                                        "candidates": True})
    sentence = one["translations"][0]["sentences"][0]
    same((one["source"], one["translations"][0]["text"]), ("en", wanted[0]), "/v1/translate")
    for side, text in ("source", texts[0]), ("target", wanted[0]):
        for word in sentence[side]["words"]:
            same(text[word["begin"]:word["end"]], word["text"], "a word's place")
    words = len(sentence["target"]["words"])
    check(all(re.fullmatch(r"\d+-\d+", link) for link in sentence["alignment"].split()), "alignment", sentence["alignment"])
    same(len(sentence["characters"]), len(sentence["alignment"].split()), "links by characters")
    check(all(abs(sum(row) - 1) < 1e-3 for row in sentence["weights"]), "weights")
    same(len(sentence["layers"][0]["heads"][0]), len(sentence["target"]["pieces"]) + 1, "layers")
    same(len(sentence["candidates"]), len(sentence["target"]["pieces"]) + 1, "candidates")
    # The scores by which weights can be said again, and what decides between hypotheses.
    why = server.json("/v1/translate", {"text": texts[0], "source": "en", "target": "fr", "why": True, "weights": "all", "tree": True})["translations"][0]["sentences"][0]
    same((why["why"]["score"], why["why"]["weigh"]), ("additive", "soft"), "why")
    head = why["why"]["layers"][0][0]
    for q, row in zip(head["q"], why["layers"][0]["heads"][0]):
        scores = [sum(v * math.tanh(a + b) for v, a, b in zip(head["v"], q, k)) for k in head["k"]]
        total = sum(math.exp(s) for s in scores)
        check(all(abs(math.exp(s) / total - w) < 1e-4 for s, w in zip(scores, row)), "why: the weights are not those of the scores")
    same(len(head["values"]), len(why["source"]["pieces"]) + 1, "values")
    won = [n for n in why["tree"] if n["finished"] and n["best"]]
    check(len(won) == 1 and abs(won[0]["score"] - why["score"]) < 1e-9 and all(n["score"] <= won[0]["score"] for n in why["tree"] if n["finished"]), "the winner's score:", won)
    forced = server.json("/v1/translate", {"text": texts[0], "source": "en", "target": "fr", "prefix": "le", "candidates": True})["translations"][0]["sentences"][0]
    check(len(forced["candidates"][0]["candidates"]) > 3 and any(c["piece"] == "le" for c in forced["candidates"][0]["candidates"]), "what else was likely where a token is forced")
    status, text, headers = server.ask("POST", "/v1/translate", json.dumps({"text": texts[0], "source": "en", "target": "fr", "stream": True}),
                                       {"Content-Type": "application/json"})
    same((status, headers["content-type"]), (200, "text/event-stream"), "stream")
    events = [dict(line.split(": ", 1) for line in e.split("\n")) for e in text.decode().strip().split("\n\n")]
    same([e["event"] for e in events], ["partial"] * (len(events) - 1) + ["translation"], "events")
    check(len(events) > 2, "events:", events)
    same(json.loads(events[-1]["data"])["translations"][0]["text"], wanted[0], "the last event")
    check(all("tree" not in json.loads(e["data"]) for e in events[:-1]), "a tree that nobody wants")
    # The tree is told as it grows.
    status, text, headers = server.ask("POST", "/v1/translate", json.dumps({"text": texts[0], "source": "en", "target": "fr", "stream": True, "tree": True, "beam": 3}),
                                       {"Content-Type": "application/json"})
    events = [json.loads(re.search("^data: (.*)$", e, re.M)[1]) for e in text.decode().strip().split("\n\n")]
    grown, whole = [n for e in events[:-1] for n in e["tree"]], events[-1]["translations"][0]["sentences"][0]["tree"]
    check(len(events) > 3 and 0 < len(grown) < len(whole), "the tree as it grows:", len(events), len(grown), len(whole))
    same([{**n, "best": 0} for n in grown], [{**n, "best": 0} for n in whole[:len(grown)]], "the tree as it grew")
    same(server.ask("POST", "/v1/translate", "text=a", {"Content-Type": "application/x-www-form-urlencoded"})[0], 415, "no JSON")


def main():
    subprocess.run([GRAMMAR, "corpus", "300", "1", WORDS], check=True, stdout=subprocess.DEVNULL)
    train("m", 40, 1)
    train("n", 40, 2)
    texts = [line.rstrip("\n") for line in open("corpus/test.en")][:20]
    wanted, other = translated("m", texts), translated("n", texts)
    check(wanted != other, "two models, the same translations")

    server = Server("--preload", "--log-texts")
    routes(server, texts, wanted)
    files(server, texts, wanted)
    wire(server, texts, wanted)
    explained(server, texts, wanted)
    documented(server, os.path.join(HERE, "..", "docs", "serve.md"))
    real_clients(server, texts, wanted)
    many_clients(server, texts, wanted)
    server.end(signal.SIGINT)
    log = [json.loads(l) for l in server.lines if l.startswith("{")]
    check(any(l.get("path") == "/translate" and l["status"] == 200 and l.get("text") == texts[0] for l in log), "the log", log[:2])

    # Two models of one pair: the first translates, the other is there to be named.
    server = Server("--model", "en-fr=n")
    ask = {"text": texts[0], "source": "en", "target": "fr"}
    same([server.json("/v1/translate", {**ask, **more})["translations"][0]["text"] for more in ({}, {"model": 0}, {"model": 1})],
         [wanted[0], wanted[0], other[0]], "by number")
    check("model wants the number" in server.json("/v1/translate", {**ask, "model": 2}, 400)["error"], "a number that is not there")
    server.json("/v1/translate", {**ask, "target": ask["source"], "model": {}}, 400)
    server.json("/v1/translate", {**ask, "seed": 1e15, "beam": 2.0})  # whole numbers, for JSON Schema
    server.json("/v1/translate", {**ask, "seed": 1e15 + 1}, 400)
    schema = json.loads(server.get("/spec"))["paths"]["/v1/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    same(schema["properties"]["model"]["maximum"], 1, "the numbers of models in /spec")
    same([(m["family"], m["score"]) for m in json.loads(server.get("/v1/models"))["models"]], [("rnn", "additive")] * 2, "what models are made of")
    check(b'{model="en-fr:2"}' in server.get("/metrics"), "the second has a name of its own in /metrics")
    server.end()

    # Limits, keys, hosts, time.
    open("keys", "w").write("# who\nsecret\nrich 1000 5000\npoor 2 4\n")
    server = Server("--api-keys", "keys", "--require-key", "--char-limit", "30", "--batch-limit", "3", "--body-limit", "5000",
                    "--idle-time", "2", "--cors", "none", "--allow-host", "heed.example", "--no-files",
                    "--connections", "20")
    ask = {"q": "the cat", "source": "en", "target": "fr"}
    same(server.json("/translate", ask, 400), {"error": "Please contact the server operator to get an API key"}, "no key")
    same(server.json("/translate", {**ask, "api_key": "secre"}, 403), {"error": "Invalid API key"}, "a wrong key")
    key = {**ask, "api_key": "secret"}
    server.json("/translate", key)
    status, _, headers = server.ask("POST", "/translate", json.dumps(ask), {"Content-Type": "application/json", "Authorization": "Bearer secret"})
    check(status == 200 and "access-control-allow-origin" not in headers, "a key in the header, no CORS", headers)
    same(server.json("/translate", {**key, "q": "é" * 31}, 400), {"error": "Invalid request: request (31) exceeds text limit (30)"}, "characters")
    server.json("/translate", {**key, "q": ["é" * 30] * 3})
    server.json("/translate", {**key, "q": "é" * 40, "api_key": "rich"})
    same(server.json("/translate", {**key, "q": ["a"] * 4}, 400), {"error": "Invalid request: request (4) exceeds text limit (3)"}, "texts")
    server.json("/translate", {**key, "q": "abcde", "api_key": "poor"}, 400)
    server.json("/translate", {**key, "q": "abcd", "api_key": "poor"})
    same(server.json("/translate", {**key, "q": "abcd", "api_key": "poor"}, 429), {"error": "Slowdown: 2 per 1 minute"}, "too often")
    server.json("/translate", {**key, "q": "abcd", "api_key": "rich"})
    same(server.json("/translate", {**key, "q": "x" * 5000}, 413)["error"], "The body has more than 5000 bytes", "a long body")
    got = server.raw(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"fff\r\n" + b"x" * 4095 + b"\r\nfff\r\n" + b"x" * 4095 + b"\r\n")
    check(got.startswith(b"HTTP/1.1 413 "), "a long chunked body", got[:100])
    same(send_file(server, "a.txt", b"x", 403, api_key="secret"), "Files translation are disabled on this server.", "--no-files")
    same(server.get("/metrics", 401), b'{"error":"Unauthorized"}\n', "/metrics without a key")
    same(server.ask("GET", "/metrics", headers={"Authorization": "Bearer secret"})[0], 200, "/metrics with one")
    same(server.ask("GET", "/health", headers={"Host": "heed.example:80"})[0], 200, "--allow-host")
    # A server of its own: what others send at a busy moment may come in two parts, too.
    strict = Server("--read-time", "1", "--idle-time", "2")
    begin = time.monotonic()
    got = strict.raw(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Le")
    check(got.startswith(b"HTTP/1.1 408 "), "a request that does not end", got[:100])
    same(strict.raw(b""), b"", "an idle connection")
    took = time.monotonic() - begin
    check(took < 8, "slow clients are closed in time:", took)
    strict.end()
    # Where there are too many, the one that was idle longest makes room; those that send something do not at once.
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    time.sleep(0.2)
    same(server.ask("GET", "/health")[0], 200, "beside idle connections")
    idle[0].settimeout(5)
    same(idle[0].recv(1), b"", "the one that was idle longest")
    for s in idle:
        s.close()
    time.sleep(0.2)
    def crowded(pause):
        slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for s in slow:
            s.sendall(b"GET /hea")
        time.sleep(pause)  # until they were read
        got = server.raw(b"GET /health HTTP/1.1\r\n\r\n")
        for s in slow:
            s.close()
        time.sleep(pause)
        return got.startswith(b"HTTP/1.1 503 ")
    check(any(crowded(pause) for pause in (0.2, 0.5, 1, 2)), "one connection too many")
    open("keys", "a").write("late\n")
    server.process.send_signal(signal.SIGHUP)
    late = json.dumps({**ask, "api_key": "late"})
    until(lambda: server.ask("POST", "/translate", late, {"Content-Type": "application/json"})[0] == 200, "a key that was added", 10)
    server.end()
    check(not any("the cat" in l for l in server.lines), "texts in the log")

    # By a third language, with another prefix, dropped when it is not used.
    os.rename("n", "fr-de")
    server = Server("--model", "fr-de=fr-de", "--pivot", "fr", "--url-prefix", "/x", "--unload-after", "0.5")
    by_two = translated("fr-de", wanted[:2], "fr")
    same(server.json("/x/translate", {"q": texts[:2], "source": "en", "target": "de"})["translatedText"], by_two, "--pivot")
    same(json.loads(server.get("/x/languages"))[0]["targets"], ["de", "en", "fr"], "targets by a pivot")
    server.get("/languages", 404)
    until(lambda: all(not m["loaded"] for m in json.loads(server.get("/x/v1/models"))["models"]), "--unload-after", 10)
    same(server.json("/x/translate", {"q": texts[:2], "source": "en", "target": "de"})["translatedText"], by_two, "loaded again")
    server.end()
    os.rename("fr-de", "n")

    # A model that is replaced under load: every answer is one of the two models', none is lost; in the end the new one's.
    os.rename("m", "served")
    server = Server("--preload", model="en-fr=served")
    load = Load(server, texts, [{a, b} for a, b in zip(wanted, other)])
    until(lambda: load.answers > 20, "answers")
    for name in ("config.json", "model.safetensors"):
        os.replace(os.path.join("n", name), os.path.join("served", name))
    server.process.send_signal(signal.SIGHUP)
    until(lambda: any("replaced" in l for l in server.lines), "another model")
    some = load.answers
    until(lambda: load.answers > some + 20, "answers of another model")
    load.stop = True
    load.join()
    same(load.lost, [], "a model replaced under load")
    same(server.json("/translate", {"q": texts, "source": "en", "target": "fr"})["translatedText"], other, "the new model")
    server.end()

    # Stopped under load: nothing that was asked is lost.
    for keep_alive in (True, False):
        server = Server("--preload", "--quiet", model="en-fr=served")
        load = Load(server, texts, [{b} for b in other], keep_alive=keep_alive)
        until(lambda: load.answers > 20, "answers")
        server.end()
        load.join()
        same(load.lost, [], f"SIGTERM under load, keep-alive {keep_alive}")

    # What the command line says of mistakes.
    for flags, code, words in [([], 2, "--model is required"), (["--model", "x"], 2, "en-fr=FOLDER"),
                               (["--model", "en-fr=nowhere"], 1, "no such model folder"),
                               (["--model", "en-fr=served", "--host", "0.0.0.0"], 2, "--open"),
                               (["--model", "en-fr=served", "--require-key"], 2, "--api-keys"),
                               (["--model", "en-fr=served", "--host", "nowhere.example", "--open"], 1, "is no address")]:
        got = subprocess.run([HEED, "serve", *flags], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=120)
        check(got.returncode == code and words in got.stderr.decode(), "heed serve", flags, got)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
    os.chdir("/")
print("failed" if failed else "heed serve does as it should")
sys.exit(bool(failed))
