"""Marian archives, Transformers and recurrent models, written here from the format's facts, and what
a plain NumPy pass computes of them, beside what heed does: heed import, then heed align (scores of
given pairs) and heed translate, greedy and by Marian's own beam search.
Usage: marian_test.py HEED. Without NumPy it says so and ends with 77, which is a skip."""
import io, json, math, pathlib, struct, subprocess, sys, tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed (pip install numpy)")
    sys.exit(77)

HEED = sys.argv[1]
D, F, H, LAYERS, V = 8, 16, 2, 2, 11
WORDS = ["</s>", "<unk>"] + [chr(ord("a") + i) for i in range(V - 2)]


def make(rng, tied, norm, cell, decoder_inner):
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
            inner = F if side == "encoder" else decoder_inner
            w(p + "ffn_W1", D, inner), w(p + "ffn_b1", 1, inner), w(p + "ffn_W2", inner, D), w(p + "ffn_b2", 1, D)
            ln(p + "ffn_ffn", pre)
        if norm == "pre": ln(side + "_top", "")
    if tied == "all":
        w("Wemb", V, D)
    else:
        w("encoder_Wemb", V, D), w("decoder_Wemb", V, D)
        if tied == "none": w("decoder_ff_logit_out_Wt", V, D)
    w("decoder_ff_logit_out_b", 1, V)
    return out


def config(tied, norm, cell, activation, decoder_inner):
    text = (f"type: transformer\ndim-emb: {D}\ndim-vocabs:\n  - {V}\n  - {V}\nenc-depth: {LAYERS}\n"
            f"dec-depth: {LAYERS}\ntransformer-heads: {H}\ntransformer-dim-ffn: {F}\n"
            f"transformer-ffn-activation: {activation}\ntied-embeddings: {str(tied == 'out').lower()}\n"
            f"tied-embeddings-all: {str(tied == 'all').lower()}\n")
    text += ("transformer-preprocess: n\ntransformer-postprocess: da\ntransformer-postprocess-top: n\n"
             if norm == "pre" else
             "transformer-preprocess: \"\"\ntransformer-postprocess: dan\n"
             "transformer-postprocess-top: \"\"\n")
    if decoder_inner != F: text += f"transformer-decoder-dim-ffn: {decoder_inner}\n"
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
        if activation == "relu": y = np.maximum(y, 0)
        elif activation == "gelu": y = y * (1 + np.vectorize(math.erf)(y / math.sqrt(2))) / 2
        else: y = y * sigmoid(y)
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


E, N = 6, 8  # of a recurrent model's words and states


def make_rnn(rng, tied, depths, norm):
    """Arrays by the names of type s2s; depths: cells of the encoder, of the decoder's first layer,
    layers of the decoder."""
    out = {}
    def w(name, *shape): out[name] = rng.normal(0, 0.5, shape).astype(np.float32)
    def gamma(name, n): out[name] = rng.uniform(0.5, 1.5, (1, n)).astype(np.float32)
    def cell(p, size):
        if size: w(p + "_W", size, 2 * N), w(p + "_Wx", size, N)
        w(p + "_U", N, 2 * N), w(p + "_Ux", N, N), w(p + "_b", 1, 2 * N), w(p + "_bx", 1, N)
        if norm:
            if size: gamma(p + "_gamma1", 3 * N)
            gamma(p + "_gamma2", 3 * N)
    def dense(p, sizes, n):
        for i, size in enumerate(sizes):
            number = str(i) if len(sizes) > 1 else ""
            w(p + "_W" + number, size, n), w(p + "_b" + number, 1, n)
            if norm: gamma(p + "_gamma" + number, n)
    for p in ("encoder_bi", "encoder_bi_r"):
        cell(p, E)
        for i in range(2, depths[0] + 1): cell(f"{p}_cell{i}", 0)
    cell("decoder_cell1", E), cell("decoder_cell2", 2 * N)
    for i in range(3, depths[1] + 1): cell(f"decoder_cell{i}", 0)
    for i in range(2, depths[2] + 1): cell(f"decoder_l{i}_cell1", N)
    w("decoder_W_comb_att", N, 2 * N), w("decoder_Wc_att", 2 * N, 2 * N)
    w("decoder_U_att", 2 * N, 1), w("decoder_b_att", 1, 2 * N)
    if norm: gamma("decoder_att_gamma1", 2 * N), gamma("decoder_att_gamma2", 2 * N)
    dense("decoder_ff_state", [2 * N], N), dense("decoder_ff_logit_l1", [E, N, 2 * N], E)
    if tied == "all": w("Wemb", V, E)
    else:
        w("encoder_Wemb", V, E), w("decoder_Wemb", V, E)
        if tied == "none": w("decoder_ff_logit_l2_W", E, V)
    w("decoder_ff_logit_l2_b", 1, V)
    return out


AMUN = {"decoder_cell1_U": "decoder_U", "decoder_cell1_Ux": "decoder_Ux", "decoder_cell1_W": "decoder_W",
        "decoder_cell1_Wx": "decoder_Wx", "decoder_cell1_b": "decoder_b", "decoder_cell1_bx": "decoder_bx",
        "decoder_cell2_U": "decoder_U_nl", "decoder_cell2_Ux": "decoder_Ux_nl",
        "decoder_cell2_W": "decoder_Wc", "decoder_cell2_Wx": "decoder_Wcx",
        "decoder_cell2_b": "decoder_b_nl", "decoder_cell2_bx": "decoder_bx_nl",
        "decoder_ff_logit_l1_W0": "ff_logit_prev_W", "decoder_ff_logit_l1_W1": "ff_logit_lstm_W",
        "decoder_ff_logit_l1_W2": "ff_logit_ctx_W", "decoder_ff_logit_l1_b0": "ff_logit_prev_b",
        "decoder_ff_logit_l1_b1": "ff_logit_lstm_b", "decoder_ff_logit_l1_b2": "ff_logit_ctx_b",
        "decoder_ff_logit_l1_gamma0": "ff_logit_l1_gamma0", "decoder_ff_logit_l1_gamma1": "ff_logit_l1_gamma1",
        "decoder_ff_logit_l1_gamma2": "ff_logit_l1_gamma2", "decoder_ff_logit_l2_W": "ff_logit_W",
        "decoder_ff_logit_l2_b": "ff_logit_b", "decoder_ff_state_W": "ff_state_W",
        "decoder_ff_state_b": "ff_state_b", "decoder_ff_state_gamma": "ff_state_gamma",
        "decoder_Wemb": "Wemb_dec", "encoder_Wemb": "Wemb"}


def as_amun(arrays):
    out = {AMUN.get(k, k.replace("encoder_bi_", "encoder_")): v for k, v in arrays.items()}
    out["decoder_c_tt"] = np.zeros((1, 0), np.float32)
    return out


def config_rnn(kind, tied, depths, norm):
    return (f"type: {kind}\ndim-emb: {E}\ndim-rnn: {N}\ndim-vocabs:\n  - {V}\n  - {V}\nenc-depth: 1\n"
            f"enc-type: bidirectional\nenc-cell: gru\ndec-cell: gru\nenc-cell-depth: {depths[0]}\n"
            f"dec-cell-base-depth: {depths[1]}\ndec-depth: {depths[2]}\nskip: false\n"
            f"layer-normalization: {str(norm).lower()}\ntied-embeddings: {str(tied == 'out').lower()}\n"
            f"tied-embeddings-all: {str(tied == 'all').lower()}\n")


def log_probabilities_rnn(a, tied, depths, norm, source, target):
    """As log_probabilities, of a recurrent model."""
    a = {k: v.astype(np.float64) for k, v in a.items()}
    def sigmoid(x): return 1 / (1 + np.exp(-x))
    def ln(x, gamma, beta=0.0):
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-9) * gamma + beta
    def gru(p, x, h, final=False):
        xw = np.zeros((1, 3 * N))
        if x is not None:
            xw = np.concatenate([x @ a[p + "_W"], x @ a[p + "_Wx"]], 1)
            if norm: xw = ln(xw, a[p + "_gamma1"])
        su = np.concatenate([h @ a[p + "_U"], h @ a[p + "_Ux"]], 1)
        if norm: su = ln(su, a[p + "_gamma2"])
        b = np.concatenate([a[p + "_b"], a[p + "_bx"]], 1)
        r = sigmoid(xw[:, :N] + su[:, :N] + b[:, :N])
        z = sigmoid(xw[:, N:2 * N] + su[:, N:2 * N] + b[:, N:2 * N])
        x3, s3, b3 = xw[:, 2 * N:], su[:, 2 * N:], b[:, 2 * N:]
        c = np.tanh(x3 + (s3 + b3) * r) if final else np.tanh(x3 + s3 * r + b3)
        return (1 - z) * c + z * h
    def dense(p, inputs):
        total = 0
        for i, x in enumerate(inputs):
            number = str(i) if len(inputs) > 1 else ""
            y = x @ a[p + "_W" + number]
            total = total + (ln(y, a[p + "_gamma" + number], a[p + "_b" + number]) if norm
                             else y + a[p + "_b" + number])
        return np.tanh(total)
    tables = ("Wemb", "Wemb") if tied == "all" else ("encoder_Wemb", "decoder_Wemb")
    x = a[tables[0]][source + [0]]
    def walk(p, rows):
        h, out = np.zeros((1, N)), []
        for row in rows:
            h = gru(p, row[None], h)
            for i in range(2, depths[0] + 1): h = gru(f"{p}_cell{i}", None, h)
            out.append(h[0])
        return np.array(out)
    context = np.concatenate([walk("encoder_bi", x), walk("encoder_bi_r", x[::-1])[::-1]], 1)
    start = dense("decoder_ff_state", [context.mean(0, keepdims=True)])
    mapped = context @ a["decoder_Wc_att"]
    mapped = ln(mapped, a["decoder_att_gamma1"], a["decoder_b_att"]) if norm else mapped + a["decoder_b_att"]
    states, out = [start] * depths[2], []
    y = np.concatenate([np.zeros((1, E)), a[tables[1]][target].reshape(-1, E)])
    for row in y:
        h = gru("decoder_cell1", row[None], states[0])
        q = h @ a["decoder_W_comb_att"]
        if norm: q = ln(q, a["decoder_att_gamma2"])
        e = np.tanh(mapped + q) @ a["decoder_U_att"]
        e = np.exp(e - e.max())
        c = (e / e.sum()).T @ context
        h = gru("decoder_cell2", c, h, final=True)
        for i in range(3, depths[1] + 1): h = gru(f"decoder_cell{i}", None, h, final=True)
        states = [h] + states[1:]
        for i in range(2, depths[2] + 1):
            h = gru(f"decoder_l{i}_cell1", h, states[i - 1])
            states[i - 1] = h
        hidden = dense("decoder_ff_logit_l1", [row[None], h, c])
        w = a["decoder_ff_logit_l2_W"] if tied == "none" else a[tables[1]].T
        logits = (hidden @ w + a["decoder_ff_logit_l2_b"])[0]
        out.append(logits - np.log(np.exp(logits).sum()))
    return np.array(out)


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


def marian_beam(scores_of, source, beam):
    """Of the best of all expansions those that end leave the beam, and nobody takes their place."""
    live, ended, longest = [(0.0, [])], [], 3 * (len(source) + 1)
    for step in range(1, longest + 1):
        every = []
        for total, said in live:
            row = scores_of(source, said)[-1].copy()
            row[1] = -np.inf
            every += [(total + row[w], said + [w]) for w in range(V)]
        every.sort(key=lambda x: -x[0])
        best = every[:beam - len(ended)]
        live = [x for x in best if x[1][-1] != 0]
        ended += [(t / step, s[:-1]) for t, s in best if s[-1] == 0]
        if step == longest: ended += [(t / step, s) for t, s in live]
        if not live: break
    return max(ended, key=lambda x: x[0])[1]


def write_shortlist(path, words):
    """Marian's binary form: the first two ids are always allowed, and `words` of each source word."""
    flat = [w for own in words for w in own]
    offsets = np.cumsum([0] + [len(own) for own in words])
    path.write_bytes(struct.pack("<6Q", 0xF11A48D5013417F5, 0, 2, 3, len(offsets), len(flat)) +
                     struct.pack(f"<{len(offsets)}Q", *offsets) + struct.pack(f"<{len(flat)}I", *flat))


def shortlisted(scores_of, words):
    """Probabilities among a sentence's own words alone."""
    def scores(source, target):
        allowed = {0, 1}.union(*(words[w] for w in source + [0]))
        p = scores_of(source, target)
        p[:, [w for w in range(V) if w not in allowed]] = -np.inf
        return p - np.log(np.exp(p).sum(-1, keepdims=True))
    return scores


def spell(ids): return " ".join(WORDS[i] for i in ids)


def cases(rng):
    """What each is, a function that writes it and gives its arrays, and one that scores with these."""
    for tied, norm, cell, activation, form, inner in [
            ("all", "post", "attention", "swish", "npz", F), ("out", "post", "attention", "relu", "npz", F),
            ("none", "pre", "attention", "relu", "npz", F), ("none", "post", "attention", "swish", "bin", F),
            ("all", "post", "ssru", "relu", 0x4101, F), ("out", "post", "ssru", "relu", 0x10001, F),
            ("all", "pre", "attention", "gelu", "npz", F - 4), ("none", "pre", "ssru", "swish", "bin", F + 3)]:
        arrays, text = make(rng, tied, norm, cell, inner), config(tied, norm, cell, activation, inner)
        yield (f"transformer {tied} {norm} {cell} {activation} {form}", arrays, text, form,
               lambda a, s, t: log_probabilities(a, tied, norm, cell, activation, s, t))
    for kind, tied, depths, norm, form in [
            ("s2s", "none", (1, 2, 1), False, "npz"), ("s2s", "all", (3, 4, 1), False, "npz"),
            ("s2s", "out", (2, 3, 2), True, "npz"), ("s2s", "none", (1, 2, 1), True, "bin"),
            ("amun", "none", (1, 2, 1), False, "npz"), ("amun", "out", (1, 2, 1), True, "npz")]:
        arrays = make_rnn(rng, tied, depths, norm)
        yield (f"{kind} {tied} {depths} norm {norm} {form}", arrays, config_rnn(kind, tied, depths, norm), form,
               lambda a, s, t: log_probabilities_rnn(a, tied, depths, norm, s, t))


def main():
    rng = np.random.default_rng(3)
    worst, count = 0, 0
    for what, arrays, text, form, score in cases(rng):
        count += 1
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            name = "model.npz" if form == "npz" else "model.intgemm.alphas.bin"
            if form == "npz": write_npz(folder / name, as_amun(arrays) if "amun" in what else arrays, text)
            else: arrays = write_bin(folder / name, arrays, text, 0 if form == "bin" else form)
            (folder / "v.yml").write_text("".join(f'"{w}": {i}\n' for i, w in enumerate(WORDS)))
            (folder / "decoder.yml").write_text(
                f"relative-paths: true\nmodels:\n  - {name}\nvocabs:\n  - v.yml\n  - v.yml\n"
                "beam-size: 4\nnormalize: 1\n")
            heed("import", str(folder), "--model", str(folder / "m"))
            def scores_of(source, target): return score(arrays, source, target)
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
                assert abs(found - wanted) < 1e-5 * (len(target) + 1), (what, found, wanted)
            def compare(model, scores):
                for beam in (1, 4):
                    said = heed("translate", "--model", str(folder / model), "--beam", str(beam),
                                text=(folder / "s").read_text()).splitlines()
                    for (source, _), line in zip(pairs, said, strict=True):
                        wanted = marian_beam(scores, source, 4) if beam == 4 else greedy(scores, source)
                        assert line == spell(wanted), (what, model, beam, line, spell(wanted))
            compare("m", scores_of)
            if form == 0x4101:
                words = [sorted({int(w) for w in rng.integers(2, V, 3)}) for _ in range(V)]
                write_shortlist(folder / "lex.s2t.bin", words)
                heed("import", str(folder), "--model", str(folder / "short"))
                compare("short", shortlisted(scores_of, words))
    print(f"{count} archives, {12 * count} pairs: scores agree to {worst:.1e} a token, greedy and beam "
          "outputs exactly")


main()
