"""Transformers of random weights, written by CTranslate2's own specifications in several configurations
and types: what heed says of them beside what CTranslate2 says, words, scores and weights of attention,
with many settings of the search; and what CTranslate2 says of them once heed has exported them again.

Arguments: the program; --inputs N for fewer than 100 inputs. Wants ctranslate2 (PyPI) and NumPy;
without them it says so and ends with 77, which is a skip.
"""
import json, os, pathlib, random, shlex, subprocess, sys, tempfile

try:
    import ctranslate2, numpy as np
    from ctranslate2 import specs
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (pip install ctranslate2 numpy)")
    sys.exit(77)

HEED = os.path.abspath(sys.argv[1])
INPUTS = int(sys.argv[sys.argv.index("--inputs") + 1]) if "--inputs" in sys.argv else 100
SOURCE = ["<blank>", "<s>", "</s>"] + list("abcdefghij") + ["<unk>"]
TARGET = ["<blank>", "<s>", "</s>"] + list("ABCDEFGHKLM") + ["<unk>"]
D, F, H = 16, 24, 4
ACTIVATION = specs.common_spec.Activation


def heed(*arguments, text=""):
    run = subprocess.run([HEED, *map(str, arguments)], input=text, capture_output=True, text=True)
    assert run.returncode == 0, (arguments, run.stderr)
    return run.stdout


CASES = {  # by name: arguments of from_config, attributes of the configuration, weights' type
    "pre-norm": (dict(pre_norm=True), {}, None),
    "post-norm swish": (dict(pre_norm=False, activation=ACTIVATION.SWISH), dict(add_source_eos=True), None),
    "gelu by tanh, bos and eos": (
        dict(activation=ACTIVATION.GELUTanh), dict(add_source_bos=True, add_source_eos=True), "int16"),
    "begins with its end": (dict(pre_norm=True), dict(decoder_start_token="</s>"), "float16"),
    "norm of embeddings, all heads": (
        dict(pre_norm=False, layernorm_embedding=True, alignment_layer=0, alignment_heads=0), {}, "bfloat16"),
    "int8": (dict(pre_norm=False, activation=ACTIVATION.GELU), dict(layer_norm_epsilon=1e-3), "int8"),
    "one table for all": (dict(pre_norm=True), {}, None),
    "two heads of keys": (dict(num_heads_kv=2), {}, None),
    "one head of keys": (dict(num_heads_kv=1), dict(decoder_start_token="<blank>"), None),
    "sides of their own sizes": (dict(heads=(4, 2), inner=(24, 20)), {}, None),
    "two heads align": (dict(alignment_heads=2), {}, "int8_float16"),
    "begins with its end, bos on the source": (
        dict(activation=ACTIVATION.Tanh), dict(decoder_start_token="</s>", add_source_bos=True), None),
    "begins from zeros": (dict(zero=True, activation=ACTIVATION.GELUSigmoid), dict(add_source_eos=True), "int16"),
}
# Settings of the search by the names of both.
SETTINGS = [
    (dict(beam_size=4, num_hypotheses=4, length_penalty=0.6), "--beam 4 --best 4 --normalize 0.6"),
    (dict(beam_size=3, length_penalty=0, patience=2), "--beam 3 --normalize 0 --patience 2"),
    (dict(beam_size=3, coverage_penalty=0.2), "--beam 3 --coverage 0.2"),
    (dict(beam_size=1, repetition_penalty=1.5), "--beam 1 --repetition-penalty 1.5"),
    (dict(beam_size=5, no_repeat_ngram_size=2, disable_unk=True), "--beam 5 --no-repeat 2 --no-unknown"),
    (dict(beam_size=2, min_decoding_length=0), "--beam 2 --min-length 0"),
    (dict(beam_size=2, min_decoding_length=7), "--beam 2 --min-length 7"),
    (dict(beam_size=4, suppress_sequences=[["A"], ["B", "C"]]), "--beam 4 --suppress A --suppress=B\\ C"),
    (dict(beam_size=2, end_token="D"), "--beam 2 --end-token D"),
    (dict(beam_size=4, prefix=True), "--beam 4 --prefix {prefixes}"),
    (dict(beam_size=1, num_hypotheses=3, return_alternatives=True, min_alternative_expansion_prob=0.05,
          prefix=True), "--beam 1 --alternatives --best 3 --least-alternative 0.05 --prefix {prefixes}"),
    (dict(beam_size=2, max_input_length=4), "--beam 2 --max-length {pieces}"),
]


def make(folder, name, rng):
    arguments, config, quantization = CASES[name]
    shared = name == "one table for all"
    own = dict(heads=(H, H), inner=(F, F), zero=False) | arguments
    heads, inner, zero = own.pop("heads"), own.pop("inner"), own.pop("zero")
    keys = D // H * own.get("num_heads_kv", H)
    aligns = {k: own.pop(k) for k in ("alignment_layer", "alignment_heads") if k in own}
    spec = specs.TransformerSpec(specs.transformer_spec.TransformerEncoderSpec(2, heads[0], **own),
                                 specs.transformer_spec.TransformerDecoderSpec(3, heads[1], **own, **aligns))
    spec.decoder.start_from_zero_embedding = zero
    def shape(name):
        F = inner[name.startswith("decoder")]
        side = len(TARGET) if name.startswith("decoder") or shared else len(SOURCE)
        if "embeddings" in name or "projection" in name: rows, columns = side, D
        elif "self_attention/linear_0" in name: rows, columns = D + 2 * keys, D
        elif "/attention/linear_1" in name: rows, columns = 2 * keys, D
        elif "ffn/linear_0" in name: rows, columns = F, D
        elif "ffn/linear_1" in name: rows, columns = D, F
        else: rows, columns = D, D
        return (rows, columns) if name.endswith("weight") else (rows,)
    table = rng.normal(0, 0.5, (len(TARGET), D)).astype(np.float32)
    def fill(layer, name, value):
        name = name.replace(".", "/")
        wanted = value is None or (isinstance(value, str) and name.endswith("bias"))
        if not wanted: return
        own = name.split("/")[-1]
        if own in ("gamma", "beta"): array = (own == "gamma") + rng.normal(0, 0.2, D)
        elif shared and name.endswith(("embeddings_0/weight", "embeddings/weight", "projection/weight")): array = table
        else: array = rng.normal(0, 0.5, shape(name))
        setattr(layer, own, array.astype(np.float32))
    spec._visit(fill)
    for key, value in config.items(): setattr(spec.config, key, value)
    spec.register_source_vocabulary(TARGET if shared else SOURCE)
    spec.register_target_vocabulary(TARGET)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir()
    spec.save(str(folder))


def compare(name, seed):
    arguments, config, _ = CASES[name]
    rng, chosen = np.random.default_rng(seed), random.Random(seed)
    with tempfile.TemporaryDirectory() as parent:
        parent = pathlib.Path(parent)
        make(parent / "a model", name, rng)
        heed("import", parent / "a model", "--model", parent / "m")
        heed("export", "--model", parent / "m", "--to", "ctranslate2", "--out", parent / "again")
        words = TARGET[3:-1] if name == "one table for all" else SOURCE[3:-1]
        lines = [chosen.choices(words, k=chosen.randint(1, 9)) for _ in range(INPUTS)]
        targets = [chosen.choices(TARGET[3:-1], k=chosen.randint(1, 7)) for _ in range(INPUTS)]
        for file, rows in (("lines", lines), ("targets", targets)):
            (parent / file).write_text("".join(" ".join(row) + "\n" for row in rows))
        theirs, again = (ctranslate2.Translator(str(parent / f), compute_type="float32", intra_threads=1)
                         for f in ("a model", "again"))
        holds, told, worst = True, [], 0.0
        # Untrained ones go on for ever, and errors of rounding with them.
        for beam in (1, 2, 5):
            options = dict(beam_size=beam, return_scores=True, max_decoding_length=12)
            said = theirs.translate_batch(lines, **options)
            back = again.translate_batch(lines, **options)
            rows = heed("translate", "--model", parent / "m", "--beam", beam, "--max-output", 12, "--json",
                        text=(parent / "lines").read_text()).splitlines()
            same = 0
            for wanted, other, row in zip(said, back, rows, strict=True):
                found = json.loads(row)["translations"][0]
                same += found["pieces"] == wanted.hypotheses[0] == other.hypotheses[0]
                worst = max(worst, abs(found["score"] - wanted.scores[0]), abs(found["score"] - other.scores[0]))
            told.append(f"beam {beam} {same}/{INPUTS}")
            holds = holds and same == INPUTS
        prefixes = [chosen.choices(TARGET[3:-1], k=chosen.randint(0, 2)) for _ in range(INPUTS)]
        (parent / "prefixes").write_text("".join(" ".join(row) + "\n" for row in prefixes))
        added = sum(bool(config.get(k)) for k in ("add_source_bos", "add_source_eos"))
        # A prefix that is read at once is all zeros there, if the model begins from zeros.
        settings = [s for s in SETTINGS if not (arguments.get("zero") and "return_alternatives" in s[0])]
        same = 0
        for options, flags in settings:
            options = dict(options)
            forced = prefixes if options.pop("prefix", False) else None
            # Its lengths have what is added to the source, heed's have not.
            flags = flags.format(prefixes=parent / "prefixes", pieces=4 - added)
            # One at a time: coverage, there, depends on what else is in the batch.
            said = theirs.translate_batch(lines, target_prefix=forced, return_scores=True, return_attention=True,
                                          max_decoding_length=12, max_batch_size=1, **options)
            rows = heed("translate", "--model", parent / "m", *shlex.split(flags), "--max-output", 12, "--json",
                        text=(parent / "lines").read_text()).splitlines()
            for wanted, row in zip(said, rows, strict=True):
                found, pieces = json.loads(row)["translations"], len(json.loads(row)["source_pieces"])
                same += [f["pieces"] for f in found] == wanted.hypotheses
                for f, score, weights in zip(found, wanted.scores, wanted.attention):
                    worst = max(worst, abs(f["score"] - score) / max(1, abs(score)))
                    for ours, others in zip(f["weights"], weights):
                        worst = max([worst, *(abs(a - b) for a, b in zip(ours[:pieces], others))])
        told.append(f"{len(settings)} settings {same}/{len(settings) * INPUTS}")
        holds = holds and same == len(settings) * INPUTS
        rows = heed("align", "--model", parent / "m", "--source", parent / "lines", "--target",
                    parent / "targets", "--json").splitlines()
        for wanted, row in zip(theirs.score_batch(lines, targets), rows, strict=True):
            found = json.loads(row)["translations"][0]["log_probability"]
            worst = max(worst, abs(found - sum(wanted.log_probs)) / len(wanted.log_probs))
        print(f"{name}: {', '.join(told)}, scores to {worst:.1e} a token")
        return holds and worst < 1e-4


sys.exit(not all([compare(name, 3 + i) for i, name in enumerate(CASES)]))
