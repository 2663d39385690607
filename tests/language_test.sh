#!/bin/sh
# lm train, score and generate, view and embed as a user runs them, and what they say of bad input.
# $1: the program, $2: the folder of the word-sense test.
. "$(dirname "$0")/program.sh"
senses=$2/senses.tsv

# `expect` for failures: nothing on stdout.
refuse() {
  expect "$@"
  [ -s out ] && wrong "talk on stdout: $(cat out)"
}

# A text of letters that come in turn, and lines of words.
python3 - >text <<'END'
for i in range(200):
    print("".join("abc"[(i + k) % 3] for k in range(5 + i % 7)))
END
gzip -c text >text.gz
python3 - >lines <<'END'
for i in range(200):
    print("the", ["dog", "cat", "bird"][i % 3], ["barks", "sleeps"][i % 2], ".")
END
small="--size 16 --inner 16 --heads 2 --decoder-layers 1 --context 24 --batch-tokens 300"

# ---- train, stop, go on
expect 0 "done after 12 steps" lm train --text text --valid-share 0.2 --model m $small --steps 12 --sample-length 5 --log log
grep -q "valid: loss" err || wrong "lm train: no validation: $(cat err)"
grep -q '"valid_loss"' log || wrong "lm train: no log"
for file in config.json joint.characters model.safetensors checkpoint/last.safetensors; do
  [ -s m/$file ] || wrong "lm train: no m/$file"
done
expect 0 "" lm train --text text.gz --valid-share 0.2 --model zipped $small --steps 12 --sample-length 0
same m/model.safetensors zipped/model.safetensors "gzip"
expect 0 "" lm train --text text --valid-share 0.2 --model part $small --steps 5
expect 0 "going on from step 5" lm train --text text --valid-share 0.2 --model part --resume --steps 12
same m/model.safetensors part/model.safetensors "stopped and resumed"
expect 2 "--positions is " lm train --text text --valid-share 0.2 --model part --resume --steps 20 --context 7
expect 2 "--seed is 1 in part, given 9" lm train --text text --valid-share 0.2 --model part --resume --steps 20 --seed 9
expect 1 "give the corpus of before" lm train --text text --valid-share 0.3 --model part --resume --steps 20
for tokens in words bpe unigram; do
  expect 0 "done" lm train --text lines --model $tokens $small --tokens $tokens --vocabulary 40 --steps 2
done
refuse 2 "--tokens unigram is not what bpe has" lm train --text lines --model bpe --resume --tokens unigram
expect 0 "done" lm train --text lines --model bpe --resume --tokens bpe --steps 3
expect 0 "done" lm train --text text --model rnn --preset lm-rnn --size 16 --context 24 --steps 3 --valid-text text
expect 0 "done" lm train --text text --model none --preset lm-rnn --score none --size 16 --context 24 --steps 3
"$heed" lm train --text text --model asked $small --steps 1000000 2>err &
pid=$!
tries=0
until [ -d asked/checkpoint ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.2; done
kill -TERM $pid
wait $pid
got=$?
[ $got = 143 ] || wrong "lm train, SIGTERM: exit code $got, wanted 143"
grep -q 'the checkpoint is saved' err || wrong "lm train, SIGTERM: $(cat err)"
expect 0 "done" lm train --text lines --model elmo --preset elmo --tokens words --size 16 --steps 10

# ---- score
expect 0 "" lm score --model m --text text
cp out whole
grep -q 'nats a character' out || wrong "lm score: $(cat out)"
"$heed" lm score --model m <text >out || wrong "lm score of standard input"
same whole out "standard input"
expect 0 "" lm score --model m --text text --last 0.2 --json --batch 3 --stride 5
python3 - out <<'END' || wrong "lm score --json: $(cat out)"
import json, math, sys
s = json.load(open(sys.argv[1]))
text = open("text").read()
assert 0.15 * len(text) < s["characters"] < 0.25 * len(text)
assert s["pieces"] == s["characters"]
assert math.isclose(s["perplexity_by_piece"], math.exp(-s["log_probability"] / s["pieces"]))
assert math.isclose(s["perplexity_by_word"], math.exp(-s["log_probability"] / s["words"]))
END
for model in words bpe unigram elmo; do expect 0 "" lm score --model $model --text lines; done
echo 'abcab' | "$heed" lm score --model m --by-piece >out || wrong "--by-piece"
python3 - out <<'END' || wrong "--by-piece: $(cat out)"
import json, sys
s = json.load(open(sys.argv[1]))
assert s["read"] == ["<s>", "a", "b", "c", "a"] and s["pieces"] == list("abcab"), s
assert len(s["log_probability"]) == 5 and max(s["log_probability"]) <= 0
assert len(s["weights"]) == 1 and len(s["weights"][0]) == 2
for head in s["weights"][0]:
    for t, row in enumerate(head):
        assert len(row) == t + 1 and abs(sum(row) - 1) < 1e-4, row
END

# ---- generate
expect 0 "" lm generate --model m --prompt ab --length 60 --count 2 --seed 3
cp out first
expect 0 "" lm generate --model m --prompt ab --length 60 --count 2 --seed 3 --threads 1
same first out "generate twice"
expect 0 "" lm generate --model m --prompt ab --length 60 --count 2 --seed 4
cmp -s first out && wrong "another seed, the same text"
expect 0 "" lm generate --model rnn --prompt ab --length 9 --temperature 0.5 --top-k 3 --top-p 0.9
expect 0 "" lm generate --model elmo --prompt 'the dog' --beam 4 --count 3 --scores
awk -F'\t' '!/\t/ || $1 !~ /^-?[0-9]/ || $1 > 0 || $2 !~ /^the dog/ { exit 1 }' out || wrong "generate --scores: $(cat out)"
expect 0 "" lm generate --model none

# ---- view
echo abcab | "$heed" view --model m --svg v.svg --html v.html >out || wrong "view of a language model"
grep -q '<s>' out || wrong "view: $(cat out)"
[ -s v.svg ] && [ -s v.html ] || wrong "view: no pictures"
echo abcab | "$heed" view --model rnn >out || wrong "view of a recurrent language model"
refuse 1 "a language model without attention" view --model none

# ---- embed
head -3 lines >three
"$heed" embed --model elmo <three >json || wrong "embed"
for layer in 0 1 2 mix; do
  expect 0 "" embed --model elmo --input three --output l$layer.npy --layer $layer
  expect 0 "" embed --model elmo --input three --output l$layer.safetensors --layer $layer
done
python3 - <<'END' || wrong "embed: json, npy and safetensors do not agree"
import ast, json, struct
found = [json.loads(l) for l in open("json")]
assert [f["words"] for f in found] == [l.split() for l in open("three")]
flat = [x for f in found for v in f["vectors"] for x in v]
for layer in ["0", "1", "2", "mix"]:
    raw = open(f"l{layer}.npy", "rb").read()
    assert raw[:8] == b"\x93NUMPY\x01\x00"
    size = struct.unpack("<H", raw[8:10])[0]
    assert (10 + size) % 64 == 0 and raw[9 + size:10 + size] == b"\n"
    head = ast.literal_eval(raw[10:10 + size].decode())
    assert head == {"descr": "<f4", "fortran_order": False, "shape": (12, 32)}, head
    values = struct.unpack(f"<{12 * 32}f", raw[10 + size:])
    if layer == "mix":
        assert all(abs(a - b) < 1e-5 for a, b in zip(values, flat)) and len(flat) == len(values)
    tensors = open(f"l{layer}.safetensors", "rb").read()
    n = struct.unpack("<Q", tensors[:8])[0]
    head = json.loads(tensors[8:8 + n])
    assert head["__metadata__"]["layer"] == layer
    assert head["vectors"]["shape"] == [12, 32] and head["line"]["shape"] == [12]
    at = head["vectors"]["data_offsets"]
    assert tensors[8 + n + at[0]:8 + n + at[1]] == raw[-12 * 32 * 4:]
    at = head["word"]["data_offsets"]
    assert struct.unpack("<12i", tensors[8 + n + at[0]:8 + n + at[1]]) == (0, 1, 2, 3) * 3
END
expect 0 "" embed --model elmo --compare 'the dog barks .' 'a cat and the dog .' --word dog
grep -q '^in context ' out && grep -q '^table      1.0000' out || wrong "embed --compare: $(cat out)"
expect 0 "" embed --model elmo --senses "$senses"
grep -q '^all ' out || wrong "embed --senses: $(cat out)"

# ---- what does not fit
: >empty
printf 'caf\351\n' >latin1
refuse 2 "a command is wanted" lm
refuse 2 "unknown command 'tran'; did you mean 'train'" lm tran
refuse 2 "--text is required" lm train --model x
refuse 2 "--model is required" lm train --text text
refuse 2 "give one" lm train --text text --model x --valid-share 0.1 --valid-text text
refuse 2 "--valid-share wants" lm train --text text --model x --valid-share 2
refuse 2 "--valid-share holds out the end of --text" lm train --text text --model x --hold-out 40
refuse 2 "this model drops nothing" lm train --text text --model x --dropout 0 --rdrop 5
refuse 2 "unknown flag '--txt'; did you mean '--text'" lm train --txt a
refuse 2 "unknown preset 'lm-rn'; did you mean 'lm-rnn'" lm train --text text --model x --preset lm-rn
refuse 2 "unknown preset 'elmo'" train --source text --target text --model x --preset elmo
refuse 2 "has no encoder" lm train --text text --model x --encoder-layers 2
refuse 2 "wants at least one of --encoder-layers" train --source text --target text --model x --encoder-layers 0
refuse 2 "wants wiring 'after'" lm train --text text --model x --preset lm-rnn --wiring before
refuse 2 "is one of lines" lm train --text text --model x --preset lm-rnn --bidirectional
refuse 2 "unknown tokenizer 'chars'" lm train --text text --model x --tokens chars
refuse 2 "--patience wants" lm train --text text --model x --patience 2
refuse 2 "--sampling is for translators" lm train --text text --model x --sampling 0.1
refuse 2 "positions (its context) of at least 2" lm train --text text --model x --context 1
refuse 2 "temperature wants a number above 0" lm train --text text --model x --temperature inf
refuse 2 "the rate wants a number above 0" lm train --text text --model x --rate inf
refuse 2 "leave --last out" lm score --model x --text text --last 0.5 --by-piece
refuse 1 "nosuch: cannot be read" lm train --text nosuch --model x
refuse 1 "nosuch: cannot be read" lm train --text lines --tokens bpe --valid-text nosuch --model x
grep -q learning err && wrong "--valid-text is looked at after the vocabulary: $(cat err)"
refuse 1 "nosuch: cannot be read" lm train --text lines --tokens-file nosuch --model x
[ -e x ] && wrong "a run that failed at once left a folder"
mkdir foreign && echo '{"mine":1}' >foreign/config.json
refuse 1 "foreign: has what is not of a model of heed's (config.json)" lm train --text text --model foreign
[ "$(cat foreign/config.json)" = '{"mine":1}' ] || wrong "a foreign folder: $(cat foreign/config.json)"
refuse 1 "empty: has no text" lm train --text empty --model x
refuse 1 "there is a model in it already" lm train --text text --model m
refuse 1 "nothing to resume" lm train --text text --model nosuch --resume
refuse 1 "a language model, not a translator" translate --model m
refuse 2 "--model is required" lm score --text text
echo '日本' | "$heed" lm score --model m --json >out 2>err || wrong "lm score: $(cat err)"
grep -qF '66.7 % (2 of 3) of the pieces are not known to the model' err || wrong "lm score of what is not known: $(cat err)"
grep -qF '"unknown":2' out || wrong "lm score --json of what is not known: $(cat out)"
refuse 1 "standard input: has no text" lm score --model m
refuse 1 "nosuch/x.npy: cannot be written" embed --model elmo --input text --output nosuch/x.npy
refuse 1 "latin1: line 1: not UTF-8" lm score --model m --text latin1 --strict
refuse 1 "latin1: line 1: not UTF-8" lm score --model m --text latin1 --by-piece --strict
for how in "" --by-piece; do
  expect 0 "latin1: line 1: not UTF-8" lm score --model m --text latin1 $how
  grep -qF "1 line was not UTF-8" err || wrong "lm score $how: $(cat err)"
done
refuse 1 "latin1: line 1: not UTF-8" lm train --text latin1 --model x
refuse 1 "iconv -f latin1 -t utf-8" lm train --text latin1 --model x --tokens words
refuse 1 "has no text" lm score --model m --text empty
refuse 1 "more than the context" lm score --model m --text text --stride 99
refuse 2 "--last wants --text" lm score --model m --last 0.5
refuse 2 "--seed: wants a whole number of at least 0 in decimal digits, of at most 64 bits, given ''" lm generate --model m --seed ''
refuse 2 "at most 64 bits, given '18446744073709551616'" lm generate --model m --seed 18446744073709551616
refuse 2 "wants a whole number of at least 0" lm generate --model m --seed -1
refuse 2 "normalize wants" lm generate --model m --beam 2 --normalize -1
refuse 1 "'heed lm train --resume' goes on with it" train --source text --target text --model m --resume
refuse 1 "a language model without attention" view --model elmo
refuse 2 "--word wants --compare" embed --model elmo --word dog
refuse 2 "decimal digits" lm generate --model m --length 010
expect 0 "" lm generate --model m --length +3
refuse 1 "is not a regular file" lm train --text - --model x
refuse 1 "nothing comes 300 times" lm train --text lines --tokens words --min-count 300 --model x
expect 0 "done" lm train --text text --model listed --preset lm-transformer --no-bidirectional $small --steps 1
refuse 2 "does not hold a context" lm train --text text --model x --batch-tokens 20
refuse 2 "unknown flag '--foo'" lm --foo
refuse 2 "--tokens words is not what m has" lm train --text text --model m --resume --tokens words
expect 0 "the prompt has 1 piece that the model does not know" lm generate --model m --prompt '日' --length 2
refuse 2 "--output writes the vectors" embed --model elmo --senses text --output a.npy
refuse 2 "--count cannot be more than --beam" lm generate --model m --beam 2 --count 3
refuse 1 "there is no such model folder" lm generate --model nosuch
refuse 1 "a language model in one direction" embed --model m
refuse 2 "wants 'mix' or a number" embed --model elmo --layer top
refuse 1 "layer 7 of a model" embed --model elmo --layer 7 --input three
refuse 2 "ends in .npy or .safetensors" embed --model elmo --output a.txt
refuse 2 "--compare wants --word" embed --model elmo --compare a b
refuse 1 "no word 'fish'" embed --model elmo --compare 'the dog' 'the cat' --word fish
refuse 1 "no word" embed --model elmo --compare 'the dog' 'the cat' --word dog
refuse 1 "text: line 1: wants a word, a sense" embed --model elmo --senses text
refuse 1 "latin1: line 1: not UTF-8" embed --model elmo --input latin1 --strict
expect 0 "latin1: line 1: not UTF-8" embed --model elmo --input latin1
[ "$(wc -l <out)" = "$(wc -l <latin1)" ] || wrong "embed: a line that is repaired has its vectors: $(cat out)"
[ "$failed" = 0 ] && echo "language models and vectors behave"
exit $failed
