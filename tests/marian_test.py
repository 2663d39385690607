"""Marian archives, written here from the format's facts, and what a plain NumPy pass computes of
them, beside what heed does: heed import, then heed align (scores of given pairs) and heed translate.
Usage: marian_test.py HEED. Without NumPy nothing is tested."""
import io, json, pathlib, struct, subprocess, sys, tempfile

try:
    import numpy as np
except ImportError:
    print("no NumPy; nothing is tested")
    sys.exit(0)

HEED = sys.argv[1]
D, F, H, LAYERS, V = 8, 16, 2, 2, 11
WORDS = ["</s>", "<unk>"] + [chr(ord("a") + i) for i in range(V - 2)]


def make(rng, tied, norm, cell):
    """Arrays by Marian's names; weights [in, out], rows [1, n]."""
    out = {}
    def w(name, *shape): out[name] = rng.normal(0, 0.5, shape).astype(np.float32)
    def ln(name, pre):
        out[name + "_ln_scale" + pre] = rng.uniform(0.5, 1.5, (1, D)).astype(np.float32)
        out[name + "_ln_bias" + pre] = rng.normal(0, 0.2, (1, D)).astype(np.float32)
    pre = "_pre" if norm == "pre" else ""
    for side in ("encoder", "decoder"):
        for n in range(1, LAYERS + 1):
            p = f"{side}_l{n}_"
            parts = ["self"] if side == "encoder" else ["self", "context"]
            for part in parts:
                if side == "decoder" and part == "self" and cell == "ssru":
                    w(p + "rnn_W", D, D), w(p + "rnn_Wf", D, D), w(p + "rnn_bf", 1, D)
                    ln(p + "rnn_ffn", pre)
                    continue
                for x in "qkvo": w(p + part + "_W" + x, D, D), w(p + part + "_b" + x, 1, D)
                ln(p + part + "_Wo", pre)
            w(p + "ffn_W1", D, F), w(p + "ffn_b1", 1, F), w(p + "ffn_W2", F, D), w(p + "ffn_b2", 1, D)
            ln(p + "ffn_ffn", pre)
        if norm == "pre": ln(side + "_top", "")
    if tied == "all":
        w("Wemb", V, D)
    else:
        w("encoder_Wemb", V, D), w("decoder_Wemb", V, D)
        if tied == "none": w("decoder_ff_logit_out_Wt", V, D)
    w("decoder_ff_logit_out_b", 1, V)
    return out


def config(tied, norm, cell, activation):
    text = (f"type: transformer\ndim-emb: {D}\ndim-vocabs:\n  - {V}\n  - {V}\nenc-depth: {LAYERS}\n"
            f"dec-depth: {LAYERS}\ntransformer-heads: {H}\ntransformer-dim-ffn: {F}\n"
            f"transformer-ffn-activation: {activation}\ntied-embeddings: {str(tied == 'out').lower()}\n"
            f"tied-embeddings-all: {str(tied == 'all').lower()}\n")
    text += ("transformer-preprocess: n\ntransformer-postprocess: da\ntransformer-postprocess-top: n\n"
             if norm == "pre" else
             "transformer-preprocess: \"\"\ntransformer-postprocess: dan\n"
             "transformer-postprocess-top: \"\"\n")
    return text + ("transformer-decoder-autoreg: rnn\ndec-cell: ssru\n" if cell == "ssru" else "")


def positions(T):
    h = D // 2
    angle = np.arange(T)[:, None] * 10000.0 ** (-np.arange(h) / (h - 1))
    return np.concatenate([np.sin(angle), np.cos(angle)], 1)


def log_probabilities(a, tied, norm, cell, activation, source, target):
    """[len(target) + 1, V] by the facts, in f64; source and target without their ends."""
    a = {k: v.astype(np.float64) for k, v in a.items()}
    def layer_norm(x, name):
        m, v = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - m) / np.sqrt(v + 1e-6) * a[name.replace("*", "scale")] + a[name.replace("*", "bias")]
    def around(x, f, name):
        if norm == "pre": return x + f(layer_norm(x, name + "_ln_*_pre"))
        return layer_norm(x + f(x), name + "_ln_*")
    def attend(q_in, kv, p, causal):
        q, k, v = (y @ a[p + "_W" + n] + a[p + "_b" + n] for n, y in (("q", q_in), ("k", kv), ("v", kv)))
        d = D // H
        heads = []
        for h in range(H):
            s = slice(h * d, (h + 1) * d)
            e = q[:, s] @ k[:, s].T / np.sqrt(d)
            if causal: e = np.where(np.tril(np.ones(e.shape)) > 0, e, -np.inf)
            e = np.exp(e - e.max(-1, keepdims=True))
            heads.append(e / e.sum(-1, keepdims=True) @ v[:, s])
        return np.concatenate(heads, 1) @ a[p + "_Wo"] + a[p + "_bo"]
    def sigmoid(x): return 1 / (1 + np.exp(-x))
    def feed(x, p):
        y = x @ a[p + "ffn_W1"] + a[p + "ffn_b1"]
        y = np.maximum(y, 0) if activation == "relu" else y * sigmoid(y)
        return y @ a[p + "ffn_W2"] + a[p + "ffn_b2"]
    def ssru(x, p):
        c, out = np.zeros(D), []
        for row in x:
            f = sigmoid(row @ a[p + "rnn_Wf"] + a[p + "rnn_bf"])[0]
            c = f * c + (1 - f) * (row @ a[p + "rnn_W"])
            out.append(np.maximum(c, 0))
        return np.array(out)
    tables = ("Wemb", "Wemb") if tied == "all" else ("encoder_Wemb", "decoder_Wemb")
    ids = source + [0]
    x = a[tables[0]][ids] * np.sqrt(D) + positions(len(ids))
    for n in range(1, LAYERS + 1):
        p = f"encoder_l{n}_"
        x = around(x, lambda y: attend(y, y, p + "self", False), p + "self_Wo")
        x = around(x, lambda y: feed(y, p), p + "ffn_ffn")
    memory = layer_norm(x, "encoder_top_ln_*") if norm == "pre" else x
    y = np.concatenate([np.zeros((1, D)), a[tables[1]][target].reshape(-1, D) * np.sqrt(D)])
    y = y + positions(len(y))
    for n in range(1, LAYERS + 1):
        p = f"decoder_l{n}_"
        if cell == "ssru": y = around(y, lambda z: ssru(z, p), p + "rnn_ffn")
        else: y = around(y, lambda z: attend(z, z, p + "self", True), p + "self_Wo")
        y = around(y, lambda z: attend(z, memory, p + "context", False), p + "context_Wo")
        y = around(y, lambda z: feed(z, p), p + "ffn_ffn")
    if norm == "pre": y = layer_norm(y, "decoder_top_ln_*")
    out = a["decoder_ff_logit_out_Wt"] if tied == "none" else a[tables[1]]
    logits = y @ out.T + a["decoder_ff_logit_out_b"]
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def write_npz(path, arrays, text):
    meta = np.frombuffer(text.encode() + b"\0" * 7, np.int8)
    with open(path, "wb") as out:
        np.savez(out, **arrays, **{"special:model.yml": meta})


def quantized(name, a):
    """intgemm8: bytes and the multiplier, and the numbers that these stand for."""
    m = np.float32(127 / np.abs(a).max())
    q = np.clip(np.round(a * m), -127, 127).astype(np.int8)
    raw = q if "Wemb" in name else q.T
    return raw.tobytes() + struct.pack("<f", m), (q / m).astype(np.float32)


def write_bin(path, arrays, text, int8):
    """Version 1; returns the arrays as a reader gets them."""
    items, seen = [], {}
    for name, a in arrays.items():
        matrix = name[-3:-1] == "_W" or name[-2:] == "_W" or "Wemb" in name
        if int8 and matrix:
            data, seen[name] = quantized(name, a)
            items.append((name, int8, a.shape, data))
        else:
            seen[name] = a
            items.append((name, 0x404, a.shape, a.tobytes()))
    if int8: items.append(("none_QuantMultA", 0x404, (1, 1), struct.pack("<f", 3)))
    items.append(("special:model.yml", 0x101, (len(text) + 1,), text.encode() + b"\0"))
    out = struct.pack("<QQ", 1, len(items))
    for name, kind, shape, data in items:
        out += struct.pack("<QQQQ", len(name) + 1, kind, len(shape), len(data))
    for name, *_ in items: out += name.encode() + b"\0"
    for _, _, shape, _ in items: out += struct.pack(f"<{len(shape)}i", *shape)
    pad = -(len(out) + 8) % 256
    out += struct.pack("<Q", pad) + b"\0" * pad
    for *_, data in items: out += data
    path.write_bytes(out)
    return seen


def heed(*arguments, text=""):
    run = subprocess.run([HEED, *arguments], input=text, capture_output=True, text=True)
    assert run.returncode == 0, (arguments, run.stderr)
    return run.stdout


def greedy(scores_of, source):
    said = []
    while len(said) < 3 * (len(source) + 1):
        row = scores_of(source, said)[-1].copy()
        row[1] = -np.inf  # the unknown
        best = int(row.argmax())
        if best == 0: break
        said.append(best)
    return said


def spell(ids): return " ".join(WORDS[i] for i in ids)


def main():
    rng = np.random.default_rng(3)
    worst = 0
    for number, (tied, norm, cell, activation, form) in enumerate([
            ("all", "post", "attention", "swish", "npz"), ("out", "post", "attention", "relu", "npz"),
            ("none", "pre", "attention", "relu", "npz"), ("none", "post", "attention", "swish", "bin"),
            ("all", "post", "ssru", "relu", 0x4101), ("out", "post", "ssru", "relu", 0x10001)]):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            arrays, text = make(rng, tied, norm, cell), config(tied, norm, cell, activation)
            name = "model.npz" if form == "npz" else "model.intgemm.alphas.bin"
            if form == "npz": write_npz(folder / name, arrays, text)
            else: arrays = write_bin(folder / name, arrays, text, 0 if form == "bin" else form)
            (folder / "v.yml").write_text("".join(f'"{w}": {i}\n' for i, w in enumerate(WORDS)))
            (folder / "decoder.yml").write_text(
                f"relative-paths: true\nmodels:\n  - {name}\nvocabs:\n  - v.yml\n  - v.yml\n"
                "beam-size: 4\nnormalize: 1\n")
            heed("import", str(folder), "--model", str(folder / "m"))
            def scores_of(source, target):
                return log_probabilities(arrays, tied, norm, cell, activation, source, target)
            pairs = [(list(rng.integers(2, V, rng.integers(1, 7))), list(rng.integers(2, V, rng.integers(1, 6))))
                     for _ in range(12)]
            (folder / "s").write_text("".join(spell(s) + "\n" for s, _ in pairs))
            (folder / "t").write_text("".join(spell(t) + "\n" for _, t in pairs))
            rows = heed("align", "--model", str(folder / "m"), "--source", str(folder / "s"),
                        "--target", str(folder / "t"), "--json").splitlines()
            for (source, target), row in zip(pairs, rows, strict=True):
                p = scores_of(source, target)
                wanted = sum(p[i, w] for i, w in enumerate(target + [0]))
                found = json.loads(row)["translations"][0]["log_probability"]
                worst = max(worst, abs(found - wanted) / (len(target) + 1))
                assert abs(found - wanted) < 1e-5 * (len(target) + 1), (number, found, wanted)
            said = heed("translate", "--model", str(folder / "m"), "--beam", "1",
                        text=(folder / "s").read_text()).splitlines()
            for (source, _), line in zip(pairs, said, strict=True):
                assert line == spell(greedy(scores_of, source)), (number, line, greedy(scores_of, source))
    print(f"6 archives, 72 pairs: scores agree to {worst:.1e} a token, greedy outputs exactly")


main()
