#!/bin/sh
# train, translate and align as a user runs them, and what they say of bad input. $1: the program,
# $2: the grammar that writes a corpus, $3: its words.
. "$(dirname "$0")/program.sh"

# `expect` for failures: stderr is one line ("Run ... --help" may follow), stdout is empty, and
# nothing of how the program is made shows.
refuse() {
  code=$1
  expect "$@"
  most=1
  [ "$code" = 2 ] && most=2
  lines=$(grep -cv -e '^chosen for' -e '^learning the vocabulary' -e ' pairs read' err)
  [ "$lines" -le "$most" ] || wrong "more than $most line(s): $(cat err)"
  [ -s out ] && wrong "talk on stdout: $(cat out)"
  grep -qiE 'exception|std::|terminate|0x[0-9a-f]{6}|sanitizer' err && wrong "not for people: $(cat err)"
  return 0
}

"$2" corpus 300 1 "$3" >/dev/null || exit 1
head -40 corpus/valid.en >v.en
head -40 corpus/valid.fr >v.fr
train() {
  "$heed" train --source corpus/train.en --target corpus/train.fr --tokens words --preset rnn-small \
    --size 24 --batch-tokens 400 --warmup 10 --samples 1 "$@"
}

# ---- train
train --model m --steps 12 --validate-every 6 --valid-source v.en --valid-target v.fr \
  --log log.json --tensorboard curves >out 2>err || wrong "train: $(cat err)"
[ -s out ] && wrong "train talks on stdout"
"$heed" info m --no-speed >out || wrong "info"
grep -Eq '^configuration: .*size 24, .*score additive' out || wrong "info: configuration: $(cat out)"
grep -Eq '^training: step 12, epoch [0-9]+, best [0-9.e-]+, best_loss [0-9.]+, best_of bleu of 40 lines$' out ||
  wrong "info: training: $(cat out)"
grep -q 'BLEU' err || wrong "train shows no BLEU: $(cat err)"
grep -q 'done after 12 steps' err || wrong "train does not say that it is done: $(cat err)"
python3 -c 'import json; lines = [json.loads(l) for l in open("log.json")]
assert [l["step"] for l in lines if "valid_bleu" in l] == [6, 12], lines' || wrong "log.json: $(cat log.json)"

cat >scalars.py <<'END'
# The tags and steps in a folder's event files, the checks of the records left to tests/events_test.cpp.
import glob, struct, sys
for path in sorted(glob.glob(sys.argv[1] + "/events.out.tfevents.*")):
    data = open(path, "rb").read()
    while data:
        n = struct.unpack("<Q", data[:8])[0]
        event, data = data[12:12 + n], data[16 + n:]
        step = event[10] if event[9:10] == b"\x10" else -1  # below 128: one byte
        for tag in ["train/loss", "train/rate", "train/gradient_norm", "train/words_per_second", "valid/loss", "valid/bleu"]:
            if tag.encode() + b"\x15" in event: print(step, tag)
END
python3 scalars.py curves >got
grep -q '^12 valid/bleu$' got || wrong "--tensorboard: $(cat got)"
[ "$(grep -c '^6 ' got)" = 6 ] || wrong "--tensorboard, step 6: $(cat got)"

# Stopped and resumed: the same bytes.
train --model half --steps 12 --validate-every 6 --valid-source v.en --valid-target v.fr 2>/dev/null
same m/model.safetensors half/model.safetensors "the same twice"
same m/checkpoint/last.safetensors half/checkpoint/last.safetensors "the same twice"
train --model part --steps 5 --validate-every 6 --save-every 5 --valid-source v.en --valid-target v.fr \
  --tensorboard twice 2>err ||
  wrong "train: $(cat err)"
train --model part --resume --steps 12 --valid-source v.en --valid-target v.fr --tensorboard twice 2>err ||
  wrong "resume: $(cat err)"
grep -q 'going on from step 5' err || wrong "resume: $(cat err)"
[ "$(ls twice | wc -l)" = 2 ] || wrong "a resumed run's event files: $(ls twice)"
expect 0 "done after 13 steps" train --source corpus/train.en --target corpus/train.fr --model part --resume \
  --valid-source v.en --valid-target v.fr --score additive --batch-tokens 400 --steps 13 --rate 0.0001
grep -q '"rate": 0.0001' part/config.json || wrong "a rate that was changed is not kept: $(cat part/config.json)"
# What is refused changes nothing.
cp part/config.json before
expect 1 "give the sentences to validate on again" train --source corpus/train.en --target corpus/train.fr --model part \
  --resume --steps 20 --rate 0.5
same before part/config.json "a refused run's flags"
cp -r part lost
rm lost/checkpoint/last.safetensors
refuse 1 "no checkpoint to go on from" train --source corpus/train.en --target corpus/train.fr --model lost --resume
refuse 1 "no checkpoint to go on from" train --source corpus/train.en --target corpus/train.fr --model lost
# The plain mean.
train --model mean --steps 12 --validate-every 3 --average-last 3 2>err || wrong "--average-last: $(cat err)"
[ "$(ls mean/checkpoint | tr '\n' ' ')" = "last.safetensors seconds.json step-12.safetensors step-6.safetensors step-9.safetensors " ] ||
  wrong "--average-last: $(ls mean/checkpoint)"
# Of a corpus that streams the index is kept, and a run that is refused leaves it as it was.
seq 1000001 >long.en
sed 's/$/!/' long.en >long.fr
sed 's/7/8/' long.fr >other.fr
streamed="--source long.en --model streamed --samples 0"
expect 0 "streamed" train $streamed --target long.fr --tokens characters --size 16 --family rnn --steps 1 --hold-out 0
cp streamed/corpus.safetensors before
expect 1 "means nothing in another" train $streamed --target other.fr --resume --steps 2
same before streamed/corpus.safetensors "a refused run's index"
rm streamed/corpus.safetensors
expect 0 "done after 2 steps" train $streamed --target long.fr --resume --steps 2
same before streamed/corpus.safetensors "an index that was lost"
rm -r streamed long.* other.fr
# SIGTERM and Ctrl-C save and leave, with the code of a process that a signal ended.
"$heed" train --source corpus/train.en --target corpus/train.fr --tokens words --size 24 --model asked \
  --steps 100000 --validate-every 100000 2>err &
pid=$!
tries=0
until [ -d asked/checkpoint ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.2; done
refuse 1 "asked: another training writes into it" train --source v.en --target v.fr --tokens words --model asked --steps 1
kill -TERM $pid
wait $pid
got=$?
[ $got = 143 ] || wrong "SIGTERM: exit code $got, wanted 143"
grep -q 'the checkpoint is saved' err || wrong "SIGTERM: $(cat err)"
[ -s asked/checkpoint/last.safetensors ] || wrong "SIGTERM: no checkpoint"
[ -s asked/model.safetensors ] || wrong "SIGTERM: no model"
# What a killed run left half written goes with the next one; what only looks like it stays.
touch asked/model.safetensors.tmp-123-4 asked/checkpoint/last.safetensors.tmp-123-5 asked/notes.tmp-123-6
"$heed" train --source corpus/train.en --target corpus/train.fr --model asked --resume 2>err &
pid=$!
tries=0
until grep -q 'going on from step' err || [ $((tries += 1)) -gt 100 ]; do sleep 0.2; done
sleep 0.5
kill -INT $pid
wait $pid
got=$?
[ $got = 130 ] || wrong "Ctrl-C: exit code $got, wanted 130: $(cat err)"
[ "$(find asked -name '*.tmp-*')" = asked/notes.tmp-123-6 ] || wrong "left over: $(find asked -name '*.tmp-*')"
# A terminal that is closed; whoever reads what is told may end before.
"$heed" train --source corpus/train.en --target corpus/train.fr --model asked --resume 2>err &
pid=$!
tries=0
until grep -q 'going on from step' err || [ $((tries += 1)) -gt 100 ]; do sleep 0.2; done
sleep 0.5
kill -HUP $pid
wait $pid
got=$?
[ $got = 129 ] || wrong "a closed terminal: exit code $got, wanted 129: $(cat err)"
grep -q 'the checkpoint is saved' err || wrong "a closed terminal: $(cat err)"
train --model unheard --steps 12 --validate-every 6 --valid-source v.en --valid-target v.fr 2>&1 | head -1 >/dev/null
same half/checkpoint/last.safetensors unheard/checkpoint/last.safetensors "a training whose words nobody reads"
sleep 5 | "$heed" translate --model m 2>err &
pid=$!
sleep 0.5
kill -TERM $pid
wait $pid
got=$?
[ $got = 143 ] || wrong "translate, SIGTERM: exit code $got, wanted 143"
# Killed at any moment, also before there is anything to resume, a run is no dead end and leaves no damage.
for delay in 0.02 0.04 0.06 0.08 0.1 0.15 0.2 0.3 0.5; do
  again=
  [ -e killed/checkpoint/last.safetensors ] && again=--resume
  [ -z "$again" ] && rm -f killed/model.safetensors # killed right between the two
  "$heed" train --source corpus/train.en --target corpus/train.fr --tokens words --preset rnn-small --size 24 --model killed \
    --steps 100000 --save-every 3 $again 2>err &
  pid=$!
  sleep $delay
  kill -KILL $pid || wrong "a run that was to be killed after $delay s: $(cat err)"
  wait $pid
done
again=
[ -e killed/checkpoint/last.safetensors ] && again=--resume
[ -z "$again" ] && rm -f killed/model.safetensors
expect 0 "done" train --source corpus/train.en --target corpus/train.fr --tokens words --preset rnn-small --size 24 --model killed $again --epochs 40
expect 0 "" translate --model killed --input v.en
[ -z "$(find killed -name '*.tmp-*')" ] || wrong "left over: $(find killed -name '*.tmp-*')"
# TSV, a guide, a transformer, and no validation.
paste corpus/train.en corpus/train.fr | gzip >pairs.tsv.gz
expect 0 "done after 2 steps" train --tsv pairs.tsv.gz --alignment corpus/train.align --guided 0.5 --model t \
  --preset transformer-tiny --size 32 --inner 32 --tokens bpe --vocabulary 200 --joint --steps 2 --batch-tokens 300
has() { grep -qF -- "$2" "$1/config.json" || wrong "$1/config.json: no '$2': $(cat "$1/config.json")"; }
has t '"shift": 1'
has t '"whole": true'
grep -q "with threshold 0.* of [0-9]* pairs they differ" err || wrong "--guided does not tell its threshold: $(cat err)"
has t '"threshold": 0.'
# The guide learnt from the corpus: the same when it is resumed.
guided() { "$heed" train --tsv pairs.tsv.gz --preset rnn-small --size 16 --tokens words --batch-tokens 300 "$@" 2>err ||
  wrong "--guided auto: $(cat err)"; }
guided --guided auto --model guided --steps 6
grep -q "aligned .* pairs: [1-9]" err || wrong "--guided auto does not tell its links: $(cat err)"
has guided '"aligner": true'
has guided '"layer": 1'
guided --guided auto --model guided-again --steps 3
guided --model guided-again --steps 6 --resume
same guided/model.safetensors guided-again/model.safetensors "--guided auto, resumed"
# Its threshold is learnt of what lies in the folder, however it came to be.
grep '"threshold"' guided/config.json >wanted || wrong "--guided auto learns no threshold: $(cat guided/config.json)"
grep '"threshold"' guided-again/config.json >got
same got wanted "--guided auto, resumed: its threshold"
for threads in 1 2; do
  guided --guided auto --model guided-by-$threads --steps 6 --threads $threads --hold-out 40
  grep "with threshold" err >told-by-$threads || wrong "--guided auto --hold-out: $(cat err)"
done
same guided-by-1/config.json guided-by-2/config.json "--guided auto on two threads: its threshold"
same told-by-1 told-by-2 "--guided auto on two threads: what is told of its threshold"
"$heed" train --tsv pairs.tsv.gz --preset rnn-small --size 16 --tokens words --batch-tokens 300 --guided auto \
  --model guided-stopped --epochs 1000 2>err &
for i in $(seq 300); do grep -q "  step " err && break; sleep 0.1; done
kill -INT $!
wait $!
grep -q "stopped at step" err || wrong "--guided auto was not stopped: $(cat err)"
has guided-stopped '"threshold": 0.'
expect 0 "" info guided --no-speed
grep -q "^alignment: .*threshold 0" out || wrong "info: no threshold: $(cat out)"
guided --model unguided --steps 6
cmp -s guided/model.safetensors unguided/model.safetensors && wrong "--guided auto changes nothing"
[ -z "$(find guided guided-again -name '*.tmp-*')" ] || wrong "--guided auto leaves its links"
guided --config guided/config.json --model guided-by-file
same guided/model.safetensors guided-by-file/model.safetensors "--guided auto, of a file"
# Several files are one corpus, in a file of settings and by a pattern, too.
zcat pairs.tsv.gz | head -100 | gzip >part-0.tsv.gz
zcat pairs.tsv.gz | tail -n +101 >part-1.tsv
echo '{"tsv": ["part-0.tsv.gz", "part-1.tsv"]}' >parts.json
for parts in "--config parts.json" "--tsv part-?.tsv*"; do
  set -f
  "$heed" train $parts --preset rnn-small --size 16 --tokens words --batch-tokens 300 --guided auto --model parts \
    --steps 6 2>err || wrong "$parts: $(cat err)"
  set +f
  same guided/model.safetensors parts/model.safetensors "$parts"
  rm -r parts
done
expect 2 "auto learns an alignment" train --tsv pairs.tsv.gz --guided auto --alignment corpus/train.align --model no
expect 2 "none has none" train --tsv pairs.tsv.gz --guided auto --score none --model no
expect 0 "done after 1 steps" train --tsv pairs.tsv.gz --model one --steps 1 --size 16 --tokens characters
# Other subwords in each epoch: another model than without, the same twice, and when it is resumed.
drawn() {
  "$heed" train --tsv pairs.tsv.gz --alignment corpus/train.align --guided 0.5 --tokens bpe --vocabulary 200 \
    --preset rnn-small --size 24 --batch-tokens 3000 "$@" 2>err || wrong "--sampling: $(cat err)"
}
drawn --model never --steps 12
drawn --model drawn --steps 12 --sampling 0.2
cmp -s never/model.safetensors drawn/model.safetensors && wrong "--sampling changes nothing"
drawn --model again --steps 5 --sampling 0.2 --threads 1
drawn --model again --steps 12 --resume
grep -q 'epoch [3-9]' err || wrong "--sampling: three epochs were meant: $(cat err)"
same drawn/model.safetensors again/model.safetensors "--sampling, resumed"
# What no flag names is as the preset has it.
has m '"bidirectional": true'
has m '"tied": false'
has t '"tied": true'
expect 0 "" train --tsv pairs.tsv.gz --model other-way --steps 1 --size 16 --tokens words --no-bidirectional --tied
has other-way '"bidirectional": false'
has other-way '"tied": true'
expect 0 "" train --list
for name in additive sparsemax transformer-base; do
  grep -q "$name" out || wrong "train --list: no $name"
done

# ---- translate
{ head -70 corpus/test.en; echo; echo '  '; head -3 corpus/test.en; } >text
"$heed" translate --model m <text >plain 2>err || wrong "translate: $(cat err)"
[ -s err ] && wrong "translate talks: $(cat err)"
[ "$(wc -l <plain)" = 75 ] || wrong "translate: $(wc -l <plain) lines of 75"
[ -z "$(sed -n '71,72p' plain | tr -d '\n')" ] || wrong "empty lines are not kept"
[ "$(sed -n 73,75p plain)" = "$(sed -n 1,3p plain)" ] || wrong "the same lines, another translation"
gzip -c text >text.gz
"$heed" translate --model m --input text.gz >zipped || wrong "translate: gzip"
same plain zipped "gzip input"
"$heed" translate --model m --input text.gz --threads 1 --beam 2 --best 2 --scores --alignment pharaoh \
  --batch 1 >wanted || wrong "translate --best"
for threads in 1 2; do
  for batch in 1 7 64; do
    "$heed" translate --model m --threads $threads --beam 2 --best 2 --scores --alignment pharaoh \
      --batch $batch <text >got
    same wanted got "batches of $batch, $threads threads"
  done
done
python3 - wanted <<'END' || wrong "--best 2 --scores --alignment pharaoh: $(head -6 wanted)"
import re, sys
lines = [l.rstrip("\n").split("\t") for l in open(sys.argv[1])]
assert len(lines) == 2 * 75, len(lines)  # two for each line, also for the empty ones
for line in 70, 71:
    assert lines[2 * line:2 * line + 2] == [["", "", "0.000000"], ["", "", "-inf"]], lines[2 * line:]
for text, links, score in lines:
    assert re.fullmatch(r"(\d+-\d+( \d+-\d+)*)?", links), links
    assert float(score) <= 0
END
"$heed" translate --model m --json <text >json || wrong "translate --json"
python3 - json plain <<'END' || wrong "--json: $(head -1 json)"
import json, sys
found = [json.loads(l) for l in open(sys.argv[1])]
plain = [l.rstrip("\n") for l in open(sys.argv[2])]
assert [f["translations"][0]["text"] for f in found] == plain
one = found[0]
best = one["translations"][0]
assert len(best["weights"]) == len(best["pieces"]) + 1
assert all(len(row) == len(one["source_pieces"]) + 1 for row in best["weights"])
assert all(abs(sum(row) - 1) < 1e-3 for row in best["weights"])
END
"$heed" translate --model m --sample --seed 3 --batch 1 <text >first
"$heed" translate --model m --sample --seed 3 --batch 64 <text >second
same first second "samples"
"$heed" translate --model m --sample --seed 4 <text >second
cmp -s first second && wrong "another seed, the same samples"
# Eight bits: quantized while it is loaded, or for good.
expect 0 "m8: weights of int8" quantize --model m --out m8
"$heed" translate --model m8 --batch 1 <text >first || wrong "translate: int8"
"$heed" translate --model m --compute int8 --batch 64 --threads 2 <text >second || wrong "--compute int8"
same first second "int8, from a folder and made while it is loaded"
"$heed" translate --model m --compute bf16 --batch 1 <text >first || wrong "--compute bf16"
"$heed" translate --model m --compute bf16 --batch 64 --threads 2 <text >second
same first second "bf16, in batches of 1 and 64"
refuse 1 "m8: its weights are int8" translate --model m8 --compute bf16 --input text
refuse 1 "m8: is there already" quantize --model m --out m8
refuse 1 "m8: its weights are int8 already" quantize --model m8 --out m9
[ -e m9 ] && wrong "quantize left a folder"
refuse 1 "its weights are int8" translate --model m8 --compute f32 --input text
refuse 2 "unknown compute 'int4'" translate --model m --compute int4 --input text
refuse 2 "--model and --out are required" quantize --model m
refuse 2 "unknown compute 'int4'" translate --model m --text --compute int4 --input text
# Some words alone: learnt from the corpus and kept in the folder, or of a file.
cp -r m listed
expect 0 "listed/shortlist.bin: a sentence of these may say" shortlist --model listed \
  --source corpus/train.en --target corpus/train.fr --always 1 --best 2
"$heed" translate --model listed --beam 3 --batch 1 <text >first || wrong "translate: a shortlist"
"$heed" translate --model m --shortlist listed/shortlist.bin --beam 3 --batch 64 --threads 2 <text >second ||
  wrong "--shortlist"
same first second "a shortlist of the folder, and of a file"
"$heed" translate --model m --beam 3 <text >all
cmp -s first all && wrong "a shortlist of few words changes nothing"
"$heed" translate --model listed --shortlist none --beam 3 <text >second || wrong "--shortlist none"
same all second "--shortlist none"
"$heed" align --source corpus/train.en --target corpus/train.fr --keep-case --lexicon words.tsv >links
expect 0 "" translate --model m --shortlist words.tsv --input text
[ "$(wc -l <out)" = "$(wc -l <text)" ] || wrong "--shortlist words.tsv: $(wc -l <out) lines"
refuse 1 "text: line 1: neither a binary shortlist of Marian's nor a lexicon" \
  translate --model m --shortlist text --input text
refuse 1 "lists: there is no such file" translate --model m --shortlist lists --input text
refuse 2 "--model, --source and --target are required" shortlist --model m
refuse 1 "corpus/test.fr has" shortlist --model m --source corpus/train.en --target corpus/test.fr
cut -d' ' -f1 corpus/test.fr | head -75 >prefix
"$heed" translate --model m --beam 1 --prefix prefix <text >begun || wrong "--prefix"
expect 0 "" translate --model t --beam 1 --input text
python3 - 5000 >long <<'END'
print("the cat " * 2500)
print("the cat sleeps .")
END
expect 0 "line 1 has more than 100 pieces" translate --model m --max-length 100 --input long
[ "$(wc -l <out)" = 2 ] || wrong "a long line: $(wc -l <out) lines"

# As a co-process: a line is answered before the next is asked.
python3 - "$heed" text plain <<'END' || wrong "a co-process"
import subprocess, sys
heed, texts, plain = sys.argv[1], open(sys.argv[2]).read().split("\n")[:-1], open(sys.argv[3]).read().split("\n")
for flags in [], ["--interactive"]:
    p = subprocess.Popen([heed, "translate", "--model", "m", *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    for text, wanted in list(zip(texts, plain))[:5]:
        p.stdin.write(text + "\n")
        p.stdin.flush()
        got = p.stdout.readline()
        assert got == wanted + "\n", (got, wanted)
    p.stdin.close()
    assert p.wait() == 0
# A line of several sentences is a text.
both = texts[0] + " " + texts[1] + "\n"
wanted = subprocess.run([heed, "translate", "--model", "m", "--text"], input=both, capture_output=True, text=True, check=True).stdout
p = subprocess.Popen([heed, "translate", "--model", "m", "--text", "--interactive"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
p.stdin.write(both)
p.stdin.flush()
got = p.stdout.readline()
assert got == wanted, (got, wanted)
p.stdin.close()
assert p.wait() == 0
END
[ "$(cat text | "$heed" translate --model m | cmp - plain)" = "" ] || wrong "by a pipe: another translation"

# ---- align
head -20 corpus/test.en >a.en
head -20 corpus/test.fr >a.fr
# A model of few steps has flat weights, of which the best can be told.
expect 0 "" align --model m --source a.en --target a.fr --extract best
cp out links
[ "$(wc -l <links)" = 20 ] || wrong "align: $(wc -l <links) lines of 20"
expect 0 "" score -m aer -r links links
expect 0 "" align --model m --source a.en --target a.fr --batch 1 --threads 1 --extract best
same links out "align by one"
expect 0 "" align --model m --source a.en --target a.fr --alignment soft --scores
{ echo; sed 1d a.en; } >gap.en
expect 0 "" align --model m --source gap.en --target a.fr --scores
awk -F'\t' 'NF != 2 { exit 1 }' out || wrong "align: an empty line lost its tab: $(head -2 out)"

# Less gives more links; with a threshold of 1 there are none.
expect 0 "" align --model m --source a.en --target a.fr --extract threshold --threshold 0.05
[ "$(wc -w <out)" -gt "$(wc -w <links)" ] || wrong "--threshold 0.05: $(wc -w <out) links"
for how in threshold path; do
  expect 0 "" align --model m --source a.en --target a.fr --extract $how --threshold 1
  [ "$(wc -w <out)" = 0 ] || wrong "--extract $how --threshold 1: $(cat out)"
done
"$heed" translate --model m --alignment pharaoh --extract best <a.en | cut -f2 >got
"$heed" translate --model m --alignment pharaoh --extract path --threshold 1 <a.en | cut -f2 >none
[ "$(wc -w <got)" -gt 0 ] && [ "$(wc -w <none)" = 0 ] || wrong "translate --extract: $(cat got none)"
refuse 2 "did you mean 'best'" align --model m --source a.en --target a.fr --extract bets
# Two models tell how far they agree.
expect 0 "the two directions agree on 100.0 % of their links" align --model m --reverse-model m --source a.en --target a.en --threshold 1
expect 0 "without a link are 100.0 % of the source's words" align --model m --reverse-model m --source a.en --target a.en --threshold 1

# The best head, kept in the folder; without gold by the links that an aligner learns.
head -20 corpus/test.align >a.align
cp -r t u && cp -r t by-file
expect 0 "aligns best; u/config.json keeps it" align --model u --source a.en --target a.fr --choose agreement --extract best
head -1 out | grep -q disagreement || wrong "--choose agreement: $(cat out)"
"$heed" align --source a.en --target a.fr >a.learnt 2>/dev/null
cp out by-agreement
expect 0 "" align --model by-file --source a.en --target a.fr --choose a.learnt --extract best
tail -n +2 out >got
tail -n +2 by-agreement >wanted
same got wanted "--choose agreement is by the aligner's links"
refuse 2 "--choose agreement has none" align --model u --source a.en --target a.fr --choose agreement --one-based
"$heed" align --model t --source a.en --target a.fr --extract best --layer -1 --head -1 >first
# What was taught sees the whole target of given pairs, unless the head is named.
"$heed" align --model t --source a.en --target a.fr --extract best >whole
"$heed" align --model t --source a.en --target a.fr --extract best --layer 2 --head 0 --shift 1 >causal
cmp -s whole causal && wrong "a given target: the whole of it is not seen"
for way in whole causal; do "$heed" score -m aer -r a.align $way -b -w 1 >$way.aer; done
expect 0 "aligns best; t/config.json keeps it" align --model t --source a.en --target a.fr --choose a.align --extract best
[ "$(wc -l <out)" = 42 ] ||
  wrong "align --choose: two lines for 4 layers of 4 heads and their mean, one of the whole target: $(cat out)"
grep -qE "^ +2 +0 +1 +none +$(cat causal.aer)\$" out || wrong "align --choose: not $(cat causal.aer): $(cat out)"
grep -qE "^ +2 +0 +1 +none +$(cat whole.aer)  seeing the whole target\$" out ||
  wrong "align --choose: not $(cat whole.aer): $(cat out)"
python3 - out t/config.json <<'END' || wrong "align --choose: $(cat out t/config.json)"
import json, sys
rows = [l.split() for l in open(sys.argv[1])][1:]
least = min(float(row[4]) for row in rows)
kept = json.load(open(sys.argv[2]))["alignment"]
name = [str(kept["layer"]), "mean" if kept["head"] < 0 else str(kept["head"]), str(kept["shift"])]
assert name in [row[:3] for row in rows if float(row[4]) == least]
END
named=$(python3 -c 'import json; k = json.load(open("t/config.json"))["alignment"]; print("--layer", k["layer"], "--head", k["head"], "--shift", k["shift"])')
"$heed" align --model t --source a.en --target a.fr --extract best >got
"$heed" align --model t --source a.en --target a.fr --extract best $named >wanted
grep -qF '"whole": true' t/config.json && cp whole wanted
same got wanted "the head that was chosen"
# Another is kept: the one that was taught is still measured as it sees the whole target.
cp -r t v
"$heed" align --model v --source a.en --target a.fr --extract best --layer 0 --head 1 --shift 1 >odd.align
expect 0 "layer 0, head 1, shift 1, threshold none aligns best" align --model v --source a.en --target a.fr --choose odd.align --zero-based --extract best
grep -q whole v/config.json && wrong "align --choose keeps a head with another's pass: $(cat v/config.json)"
expect 0 "" align --model v --source a.en --target a.fr --choose a.align --extract best
grep -qE "^ +2 +0 +1 +none +$(cat whole.aer)  seeing the whole target\$" out ||
  wrong "align --choose, another head kept: no pass over the whole target: $(cat out)"
# And how likely links must be, which then is how they are made.
"$heed" align --model v --source a.en --target a.fr --layer 0 --head 1 --shift 1 --threshold 0.2 >odd.align
"$heed" align --model v --source a.en --target a.fr --layer 0 --head 1 --shift 1 --threshold 0.35 >usual.align
cmp -s odd.align usual.align && wrong "--threshold changes nothing"
expect 0 "layer 0, head 1, shift 1, threshold 0." align --model v --source a.en --target a.fr --choose odd.align --zero-based
"$heed" align --model v --source a.en --target a.fr >got
same got odd.align "align --choose: its threshold"
"$heed" align --model v --source a.en --target a.fr --threshold 0.35 >got
same got usual.align "align --threshold overrules what was learnt"
"$heed" align --model v --source a.en --target a.fr --json | python3 -c 'import json, sys; [print(json.loads(l)["translations"][0]["alignment"]) for l in sys.stdin]' >got
same got odd.align "align --json: the threshold"
"$heed" translate --model v --alignment pharaoh <a.en | cut -f2 >learnt.align
"$heed" translate --model v --alignment pharaoh --threshold 0.35 <a.en | cut -f2 >usual.align
cmp -s learnt.align usual.align && wrong "translate --alignment: the threshold"
"$heed" align --model t --source a.en --target a.fr --extract best --layer -1 --head -1 >got
same got first "the last layer's mean"

# ---- view
"$heed" view --model m --color never <text >out 2>err || wrong "view: $(cat err)"
grep -v '^weight:' out | grep -q '[░▒▓█]' || wrong "view: no weights: $(head -5 out)"
grep -q '^</s> ' out || wrong "view: no end: $(head -20 out)"
[ "$(grep -c '^weight: ' out)" = 1 ] || wrong "view: not one legend: $(tail -3 out)"
"$heed" view --model m --color never --hide-end <text >out
grep -q '^</s> ' out && wrong "view --hide-end: an end"
# Given pairs beside gold; subwords joined to words; the head that was taught at its own step.
expect 0 "" view --model t --source a.en --target a.fr --gold a.align --words --scale rows --svg v.svg --html v.html
[ "$(grep -c '^-> ' out)" = 20 ] || wrong "view of 20 pairs: $(grep -c '^-> ' out)"
head -1 a.fr | tr ' ' '\n' | while read -r word; do grep -q "^$word " out || echo "$word"; done >missing
[ -s missing ] && wrong "view --words: no rows for $(cat missing)"
grep -q '\[' out || wrong "view --gold: no gold link: $(head -12 out)"
grep -q "^share of the row's largest weight: .*gold, sure" out || wrong "view: legend: $(tail -1 out)"
grep -q 'class="gold"' v.svg || wrong "view --gold --svg"
grep -q '"scale_rows":true,"hide_ends":false,"words":true' v.html || wrong "view --words --html: $(grep -o '"start":[^}]*' v.html)"
# The page has the weights of the picture: its pieces, at the step that is chosen, joined to words there.
for how in "" --words; do
  expect 0 "" view --model t --source a.en --target a.fr --layer 0 --head 1 --shift 1 --svg v.svg --html v.html $how
  python3 - v.svg v.html $how <<'END' || wrong "view --html $how: not the weights of the picture"
import json, re, sys
drawn = [float(x) for x in re.findall(r"⁩: ([0-9.e-]+)</title>", open(sys.argv[1]).read())]
data = json.loads(re.search(r'id="data">(.*?)</script>', open(sys.argv[2]).read(), re.S)[1])
start, first = data["start"], data["sentences"][0]
words = "--words" in sys.argv
assert start["layer"] == 0 and start["head"] == 1 and start["shift"] == 1 and start["words"] == words, start
head = first["layers"][0]["heads"][1]
head = [head[min(i + 1, len(head) - 1)] for i in range(len(head))]
def groups(side):  # which pieces, or the end, each row or column is made of
    of = first[side]["piece_words"] + [-1]
    out = []
    for i, w in enumerate(of):
        if words and i > 0 and w >= 0 and w == of[i - 1]: out[-1].append(i)
        else: out.append([i])
    return out
shown = [sum(head[i][j] for i in t for j in s) / len(t) for t in groups("target") for s in groups("source")]
assert len(shown) == len(drawn) and all(abs(a - b) < 1e-4 for a, b in zip(shown, drawn)), (shown, drawn)
END
done
refuse 2 "--source and --target go together" view --model m --source a.en
refuse 2 "--gold has the links of given pairs" view --model m --gold a.align
head -10 a.fr >a10.fr
refuse 1 "a.en has 20 lines, a10.fr has 10" view --model m --source a.en --target a10.fr
head -1 text | "$heed" view --model m --beam 3 --tree --svg tree.svg --html tree.html >out 2>err || wrong "view --tree: $(cat err)"
grep -q '[├└]─ .* -[0-9.]* end \*$' out || wrong "view --tree: no best end: $(cat out)"
[ "$(grep -c ' end' out)" -ge 3 ] || wrong "view --tree: a beam of 3 has 3 ends: $(cat out)"
grep -q 'The beam as a tree' tree.svg || wrong "view --tree --svg: $(head -c 300 tree.svg)"
grep -q '"tree":\[{"piece"' tree.html || wrong "view --tree --html: no tree"
grep -q '"heads":\[\[' tree.html || wrong "view --tree --html: no weights"
head -1 text | "$heed" view --model m --html tree.html >/dev/null
grep -q '"tree":\[{"piece"' tree.html || wrong "view --html: no tree"
grep -q '"why":' tree.html && wrong "view --html: --why was not asked for"
refuse 2 "--why is of the page" view --model m --why
head -1 text | "$heed" view --model m --html tree.html --why >/dev/null
grep -q '"why":{"score":"' tree.html || wrong "view --html --why: no terms"

# ---- text that is not what it should be
files="--source corpus/train.en --target corpus/train.fr"
# A line that is not UTF-8 does not end a job: it is repaired, named and counted.
printf 'a b\ncaf\351 noir\nthe cat\n' >latin1
expect 0 "latin1: line 2: not UTF-8: byte 4 is 0xE9; convert the file first, as with iconv -f latin1 -t utf-8" \
  translate --model m --input latin1
grep -qF '1 line was not UTF-8' err || wrong "bad lines are not counted: $(cat err)"
printf 'a b\ncaf\357\277\275 noir\nthe cat\n' >repaired
mv out got
expect 0 "" translate --model m --input repaired
same got out "a line that was repaired"
expect 0 "latin1: line 2: not UTF-8" translate --model m --input repaired --prefix latin1
expect 1 "latin1: line 2: not UTF-8" translate --model m --input repaired --prefix latin1 --strict
"$heed" view --model m --color never <latin1 >got 2>err || wrong "view of latin1: $(cat err)"
grep -qF 'standard input: line 2: not UTF-8' err || wrong "view does not name a bad line: $(cat err)"
grep -qF '1 line was not UTF-8' err || wrong "view does not count bad lines: $(cat err)"
"$heed" view --model m --color never --input repaired >out
same got out "a view of a line that was repaired"
"$heed" view --model m --strict <latin1 >out 2>err && wrong "view --strict: exit code 0"
[ -s out ] && wrong "view --strict shows what it refuses: $(cat out)"
# Corpora that nobody can mean.
rubbish() { # exit code 1 and the words $1; told, and trained all the same, with --anyway
  words=$1
  shift
  rm -rf rubbish
  expect 1 "$words" train --model rubbish --steps 1 --size 8 --tokens words "$@"
  grep -qF -- "--anyway trains all the same" err || wrong "no way on: $(cat err)"
  [ -e rubbish/model.safetensors ] && wrong "$words: a model all the same"
  expect 0 "heed: warning: " train --model rubbish --steps 1 --size 8 --tokens words --anyway "$@"
  grep -qF -- "$words" err || wrong "--anyway: no '$words' in: $(cat err)"
}
iconv -f utf-8 -t windows-1252 corpus/train.fr >train.latin1
rubbish "train.latin1: line " --source corpus/train.en --target train.latin1
rubbish "as with iconv -f latin1 -t utf-8" --source corpus/train.en --target train.latin1
rubbish "of the pairs have the same text on both sides" --source corpus/train.en --target corpus/train.en
rubbish "of the target's words are not in the vocabulary" $files --vocabulary 40
rubbish "v.fr, v.en: its sides have changed places with those of corpus/train.en, corpus/train.fr" $files \
  --valid-source v.fr --valid-target v.en
rubbish "of the pairs are left out" $files --max-length 6
printf 'caf\351\nna\357ve\n' >all.latin1
refuse 1 "all.latin1: line 1: not UTF-8: byte 4 is 0xE9" train --source all.latin1 --target all.latin1 --model y --tokens words
iconv -f utf-8 -t utf-16 corpus/train.en >wide
expect 1 "as with iconv -f utf-16 -t utf-8" train --source wide --target wide --model y --tokens words
expect 0 "wide: line 1: not UTF-8: byte 1 is 0xFF; convert the file first, as with iconv -f utf-16 -t utf-8" score -r wide wide
# What the vocabulary does not have is copied on request.
expect 0 "" train $files --model few --tokens words --vocabulary 8 --steps 3 --size 8 --anyway
"$heed" translate --model few --max-ratio 1 <text >got 2>err || wrong "translate: $(cat err)"
grep -q '<unk>' got || wrong "a vocabulary of four words, and none is unknown: $(head -3 got)"
"$heed" translate --model few --max-ratio 1 --replace-unk <text >got 2>err || wrong "--replace-unk: $(cat err)"
grep -q '<unk>' got && wrong "--replace-unk: $(grep '<unk>' got)"

# ---- whole texts
printf 'the cat sleeps . the dog drinks {x} .\r\n\n  see https://a.org/b?c=d \360\237\230\200\n' >letter
"$heed" translate --model m --text --language en <letter >got 2>err || wrong "--text: $(cat err)"
[ "$(wc -l <got)" = 3 ] || wrong "--text: $(wc -l <got) lines of 3"
[ "$(tr -cd '\r' <got | wc -c)" = 1 ] || wrong "--text: the end of a line of Windows"
for kept in '{x}' 'https://a.org/b?c=d' '😀'; do
  [ "$(grep -cF "$kept" got)" = 1 ] || wrong "--text: no $kept in $(cat got)"
done
grep -q '^  ' got || wrong "--text: spaces before a line"
printf 'the cat' | "$heed" translate --model m --text >got
[ "$(tail -c 1 got | wc -l)" = 0 ] || wrong "--text: a line end that was not there"
printf '<p>the <b>small cat</b> sleeps .</p>\n<pre>the cat</pre>' |
  "$heed" translate --model m --text --format html >got || wrong "--format html"
grep -q '^<p>.*<b>.*</b>.*</p>$' got || wrong "--format html: $(cat got)"
grep -q '^<pre>the cat</pre>$' got || wrong "--format html: $(cat got)"
expect 2 "--format is 'text' or 'html'" translate --model m --text --format xml --input letter
expect 2 "add --text" translate --model m --format html --input letter
expect 2 "--text gives one text" translate --model m --text --alignment pharaoh --input letter

expect 1 "its target has 'bpe' for pieces" translate --model t --replace-unk --input text
# A source that is normalized stays so.
expect 0 "done" train $files --model folded --tokens bpe --vocabulary 120 --steps 2 --size 8 --source-normalization nfkc
printf 'the cat ...\nthe\302\240cat  \342\200\246\n' >folds
"$heed" translate --model folded <folds | uniq >got
[ "$(wc -l <got)" = 1 ] || wrong "--source-normalization nfkc: $(cat got)"
refuse 2 "no --joint" train $files --model y --joint --tokens bpe --source-normalization nfkc
refuse 2 "is for --tokens bpe or unigram" train $files --model y --tokens words --source-normalization nfkc
refuse 2 "this one has its own" train $files --model folded --resume --source-normalization nfkc
refuse 2 "unknown normalization 'nfk'; did you mean 'nfkc'" train $files --model y --source-normalization nfk

# ---- what does not fit, one by one
: >empty
head -10 corpus/train.fr >ten
printf 'a b\ncaf\351 noir\n' >latin1
# What heed did not write is not touched, and told before anything is done.
mkdir p
echo '{"mine":1}' >p/config.json
echo x >p/joint.spm
refuse 1 "p: has what is not of a model of heed's (config.json, joint.spm)" train $files --model p --steps 1
grep -q 'learning' err && wrong "a foreign folder is told after the vocabulary: $(cat err)"
[ "$(cat p/config.json p/joint.spm)" = '{"mine":1}
x' ] && [ "$(ls p | wc -l)" = 2 ] || wrong "a foreign folder: $(ls p)"
mkdir notes && touch notes/todo
refuse 1 "notes: has what is not of a model of heed's (todo)" train $files --model notes --steps 1
# What a run writes down beside its model is its own.
small="--tokens words --preset rnn-small --size 8 --steps 1"
refuse 1 "nosuch: cannot be read" train $files --model own $small --log own/log --tensorboard own --valid-source nosuch --valid-target nosuch
[ -e own ] && wrong "a run that failed at once left $(ls own)"
mkdir own && touch own/log own/events.out.tfevents.1.machine.2.0 own/config.json.tmp-12-0
expect 0 "done" train $files --model own $small --log own/log --tensorboard own
[ -s own/log ] && [ ! -e own/config.json.tmp-12-0 ] || wrong "a log within the folder: $(ls own)"
# Every file that is named is looked at first.
for flag in "--valid-source nosuch --valid-target v.fr" "--valid-source v.en --valid-target nosuch" "--valid-tsv nosuch" \
  "--alignment nosuch --guided 0.1" "--source-tokens-file nosuch" "--target-tokens-file nosuch"; do
  refuse 1 "nosuch: cannot be read: No such file" train $files --model y $small $flag
  grep -q 'learning' err && wrong "$flag is told after the vocabulary: $(cat err)"
done
refuse 1 "nosuch: cannot be read: No such file" train --source nosuch --target corpus/train.fr --model x
refuse 1 "empty: has no text" train --source empty --target empty --model x --tokens words
refuse 1 "train.en has 300 lines and ten 10" train --source corpus/train.en --target ten --model x --tokens words
[ -e x/config.json ] && expect 0 "done" train $files --model x --tokens words --steps 1 --size 8 # is no dead end
refuse 1 "corpus: is a directory" train --source corpus --target ten --model y
expect 1 "latin1: line 2: not UTF-8" train $files --valid-source latin1 --valid-target latin1 --model y --tokens words --steps 1
refuse 1 "ten: the model's folder cannot be made" train $files --model ten --tokens words --steps 1
refuse 1 "ten: the folder for TensorBoard cannot be made" train $files --model y --tokens words --steps 1 --tensorboard ten
refuse 1 "there is a model in it already" train $files --model m
refuse 1 "nothing to resume" train $files --model nosuch --resume
refuse 2 "--score is additive in m, given dot" train $files --model m --resume --score dot
refuse 2 "--size is 24 in m, given 128 by --preset rnn-small" train $files --model m --resume --preset rnn-small
refuse 2 "--bidirectional is true in m, given false" train $files --model m --resume --no-bidirectional
refuse 2 "--seed is 1 in m, given 2" train $files --model m --resume --seed 2
refuse 2 "--sampling is 0 in m, given 0.1" train $files --model m --resume --sampling 0.1
refuse 2 "--tokens words has none; take --tokens bpe or unigram" train $files --model y --tokens words --sampling 0.1
refuse 2 "--tokens characters has none" train $files --model y --tokens characters --sampling 0.1
refuse 2 "sampling wants a number in [0, 1], given 3" train $files --model y --sampling 3
refuse 2 "--tokens bpe is not what m has" train $files --model m --resume --tokens bpe
refuse 2 "--joint is not what m has" train $files --model m --resume --joint
refuse 2 "--vocabulary 5 is not what m has" train $files --model m --resume --vocabulary 5
refuse 2 "--joint has one vocabulary" train $files --model y --joint --target-tokens-file m/target.words
refuse 2 "--alignment is what --guided teaches" train $files --model y --preset rnn-small --alignment corpus/train.align
refuse 2 "--norm is for --family transformer; this model is of rnn" train $files --model y --preset rnn --norm post
refuse 2 "--cell is for --family rnn" train $files --model y --preset transformer-tiny --cell lstm
refuse 2 "--input-feeding is for --wiring after" train $files --model y --input-feeding
refuse 2 "--rank is for --score bilinear, static, factorized; this model's is additive" train $files --model y --preset rnn --rank 4
refuse 2 "--vocabulary: wants a number above 0" train $files --model y --vocabulary 0
refuse 1 "corpus/train.en: no line has a tab" train --tsv corpus/train.en --model y --tokens words
refuse 1 "entries alone are" train $files --model y --tokens bpe --vocabulary 20
refuse 2 "--average-last is 0 in m, given 3" train $files --model m --resume --average-last 3
refuse 2 "--average-last takes the place of --average" train $files --model y --average 0.9 --average-last 3
refuse 1 "nosuch: cannot be read" train $files --model y --source-tokens-file nosuch --tokens words
refuse 2 "unknown flag '--sorce'; did you mean '--source'" train --sorce a
refuse 2 "unknown score 'aditive'; did you mean 'additive'" train $files --model y --score aditive
refuse 2 "unknown preset 'rnn-smal'; did you mean 'rnn-small'" train $files --model y --preset rnn-smal
refuse 2 "unknown tokenizer 'word'; did you mean 'words'" train $files --model y --tokens word
refuse 2 "unknown tokenizer '13b'; did you mean '13a'" train $files --model y --tokenize 13b
refuse 2 "unknown schedule 'cosin'; did you mean 'cosine'" train $files --model y --schedule cosin
refuse 2 "size 10 cannot be shared by 4 heads" train $files --model y --size 10 --heads 4
refuse 2 "--valid-source wants --valid-target" train $files --model y --valid-source v.en
refuse 2 "--valid-target wants --valid-source" train $files --model y --valid-target v.fr
refuse 2 "--source wants --target" train --source v.en --model y
refuse 2 "give it alone" train --tsv pairs.tsv.gz --source v.en --model y
refuse 2 "--model is required" train $files
refuse 2 "--source and --target" train --model y
refuse 2 "--guided wants --alignment" train $files --model y --guided 1
refuse 2 "--patience wants" train $files --model y --patience 3
refuse 2 "--steps" train $files --model y --steps many
[ -e y/config.json ] && [ -e y/model.safetensors ] && wrong "a refused run left a model"
refuse 2 "--model is required" translate --input text
refuse 2 "unknown flag '--beem'; did you mean '--beam'" translate --model m --beem 3
refuse 2 "unknown alignment 'pharao'; did you mean 'pharaoh'" translate --model m --alignment pharao
refuse 2 "--best cannot be more than --beam" translate --model m --best 9 --beam 3 --input text
refuse 2 "--sample draws one translation" translate --model m --best 2 --sample --input text
refuse 2 "--model is required" view
refuse 2 "a tree goes to --svg" view --model m --tree --png tree.png
for what in --html --svg --png; do
  "$heed" view --model m $what nosuch/file <text >out 2>err && wrong "view $what nosuch/file: exit code 0"
  [ -s out ] && wrong "view works before it looks at $what: $(cat out)"
  grep -qF "nosuch/file: cannot be written" err || wrong "view $what nosuch/file: $(cat err)"
done
refuse 1 "a.en has 20 lines, ten has 10" align --model m --source a.en --target a.fr --choose ten
refuse 1 "a.fr: line 1: alignment: token 1" align --model m --source a.en --target a.fr --choose a.fr
refuse 1 "nosuch: there is no such model folder" translate --model nosuch --input text
refuse 1 "corpus: no config.json in it" translate --model corpus --input text
refuse 1 "text: is a file; a model is a folder" translate --model text --input text
refuse 1 "nosuch: cannot be read" translate --model m --input nosuch
refuse 1 "corpus: is a directory" translate --model m --input corpus
expect 1 "latin1: line 2: not UTF-8: byte 4 is 0xE9" translate --model m --input latin1 --strict
[ "$(wc -l <out)" = 1 ] || wrong "what stands before a broken line is translated: $(cat out)"
refuse 1 "latin1: line 2: not UTF-8" align --model m --source latin1 --target latin1
refuse 1 "layer 7" translate --model m --input text --alignment pharaoh --layer 7
rm asked/model.safetensors
refuse 1 "model.safetensors: not there yet" translate --model asked --input text
cp -r m other
sed -i 's/"heed": 2/"heed": 9/' other/config.json
refuse 1 "format 9" translate --model other --input text
rm other/config.json
mkdir other/config.json
refuse 1 "other/config.json: cannot be read: Is a directory" translate --model other --input text
rmdir other/config.json
sed 's/"seed": 1/"seed": 2/' m/config.json >other/config.json
refuse 1 "other/config.json: damaged, or changed by hand" translate --model other --input text
head -c 2000 m/model.safetensors >other/model.safetensors
cp m/config.json other/config.json
refuse 1 "other/model.safetensors: " translate --model other --input text
refuse 1 "a.en has 20 lines, ten has 10" align --model m --source a.en --target ten
refuse 2 "--source and --target" align --model m --source a.en
yes 90-90 | head -20 >nowhere
expect 1 "no head finds any of its links" align --model m --source a.en --target a.fr --choose nowhere --zero-based
grep -q alignment m/config.json && wrong "align --choose kept a head that finds nothing"
yes xyzzy | head -20 >strange
expect 0 "strange: line 1 has 1 piece that the model does not know" translate --model m --input a.en --prefix strange
expect 0 "" translate --model m --input empty
[ -s out ] && wrong "an empty file has a translation"
# What would lose the best model, or go on in another corpus.
cp m/model.safetensors best
expect 1 "give the sentences to validate on again" train $files --model m --resume --steps 20
same best m/model.safetensors "the best model after a resume without validation"
expect 1 "give the corpus of before" train --source v.en --target v.fr --model part --resume --steps 20
expect 1 "give the corpus of before" train $files --model part --resume --steps 20 --max-length 5
expect 0 "done after 14 steps" train $files --model part --resume --steps 14 --max-length 100 \
  --valid-source v.en --valid-target v.fr
expect 0 "there was nothing left to train" train $files --model part --resume --steps 14 --valid-source v.en \
  --valid-target v.fr
# The best of one validation set is not compared with that of another.
grep -q "validation is of other sentences" err && wrong "the same sentences are others: $(cat err)"
expect 0 "validation is of other sentences" train $files --model part --resume --steps 15 --valid-source v.fr \
  --valid-target v.fr --anyway
grep -q "best so far" err || wrong "the first of other sentences is not the best of them: $(cat err)"
expect 0 "by another measure" train $files --model part --resume --steps 16 --valid-source v.fr \
  --valid-target v.fr --anyway --stop-on loss
refuse 1 "nosuch: cannot be read" train --source nosuch --target v.fr --model unmade
refuse 1 "corpus/train.en has 300 lines and v.fr 40" train --source corpus/train.en --target v.fr --model unmade
grep -q learning err && wrong "files of different lengths are noticed after the vocabulary: $(cat err)"
[ -e unmade ] && wrong "a run that failed at once left a folder"
# A file that is no log is not written to.
cp corpus/train.en mine.txt
refuse 1 "mine.txt: heed did not write it" train $files --model unmade --steps 1 --log mine.txt
same mine.txt corpus/train.en "what --log names"
[ -e unmade ] && wrong "a run that failed at once left a folder"
# Validation on what is learnt from.
expect 0 "v.en, v.fr: 100.0 % (40 of 40) of its pairs are also in v.en, v.fr" train --source v.en --target v.fr \
  --valid-source v.en --valid-target v.fr --model known --tokens words --preset rnn-small --size 8 --steps 1
# Validation files of different lengths.
head -30 v.fr >short.fr
expect 1 "surplus cut (--cut)" train $files --valid-source v.en --valid-target short.fr --model cut --tokens words --steps 1
expect 0 "done after 1 steps" train $files --valid-source v.en --valid-target short.fr --model cut2 --tokens words --size 16 \
  --steps 1 --cut
for bad in "--max-ratio nan" "--max-ratio 1e30" "--normalize -5" "--coverage nan" "--no-repeat -1" "--top-p 2" "--temperature 0" "--patience 0" "--patience nan"; do
  refuse 2 "wants a number" translate --model m --input text $bad
done
refuse 2 "does not hold a sentence of 256 pieces (--max-length)" train $files --model y --batch-tokens 5
refuse 2 "--max-length wants a number above 0" train $files --model y --max-length 0
refuse 1 "nosuch/log: cannot be written to" train $files --model y --tokens words --steps 1 --log nosuch/log
refuse 2 "--batch: wants a number above 0, given 0" translate --model m --input text --batch 0
head -1 text >prefix
expect 1 "prefix: ends before line 2" translate --model m --input text --prefix prefix
refuse 1 "no sentence to show" view --model m
# Nothing but an empty line is a translation of one.
printf '\n\n' >no.en
printf 'le\n\n' >no.fr
expect 0 "" align --model m --source no.en --target no.fr --scores
[ "$(tr '\t\n' '_,' <out)" = "_-inf,_0.000000," ] || wrong "align of empty lines: $(cat out)"
# A model whose numbers are none, of format 1, where no checksum tells it.
cp -r m nan
cat >fill.py <<'END'
import json, struct, sys
config = json.load(open("nan/config.json"))
config["heed"] = 1
config.pop("checksum", None)
json.dump(config, open("nan/config.json", "w"))
b = open("m/model.safetensors", "rb").read()
n = 8 + struct.unpack("<Q", b[:8])[0]
header = json.loads(b[8:n])
del header["__metadata__"]
header = json.dumps(header).encode()
open("nan/model.safetensors", "wb").write(
    struct.pack("<Q", len(header)) + header + bytes.fromhex(sys.argv[1]) * ((len(b) - n) // 4))
END
python3 fill.py 0000c07f
refuse 1 "numbers that are none" translate --model nan --input text
refuse 1 "numbers that are none" translate --model nan --input text --sample
python3 fill.py ffff7f7f
refuse 1 "its parameters are broken" translate --model nan --input text
# A disk that is full: nothing can be written to standard output, or files end after 20 blocks.
if [ -c /dev/full ]; then
  "$heed" translate --model m --input text >/dev/full 2>err && wrong "a full disk: exit code 0"
  grep -q 'standard output cannot be written to: No space left' err || wrong "a full disk: $(cat err)"
fi
(trap '' XFSZ && ulimit -f 20 && "$heed" train $files --model full --tokens words --steps 1 2>err)
[ $? = 1 ] || wrong "a full disk: exit code $?"
grep -q 'full/.*File too large' err || wrong "a full disk: $(cat err)"
if [ "$(id -u)" != 0 ]; then
  mkdir closed && chmod 555 closed
  refuse 1 "Permission denied" train $files --model closed/m --tokens words --steps 1
  chmod 000 other/config.json
  refuse 1 "other/config.json: cannot be read: Permission denied" translate --model other --input text
fi
[ "$failed" = 0 ] && echo "train, translate and align behave"
exit $failed
