#!/bin/sh
# heed train without tuning: nothing but files and minutes; settings from a file. $1: the program,
# $2: the grammar that writes a corpus, $3: its words.
. "$(dirname "$0")/program.sh"
"$2" corpus 2500 1 "$3" >/dev/null || exit 1
files="--source corpus/train.en --target corpus/train.fr"

# A tenth of a minute, all of it counted.
begin=$(date +%s)
"$heed" train $files --model m --minutes 0.15 --log log.json >out 2>err || wrong "train: $(cat err)"
seconds=$(($(date +%s) - begin))
[ "$seconds" -le 11 ] || wrong "9 seconds took $seconds"
[ -s out ] && wrong "train talks on stdout"
grep -q '^chosen for 2500 pairs' err || wrong "train does not say what it chose: $(cat err)"
grep -q 'held out to validate on' err || wrong "nothing is held out: $(cat err)"
grep -q 'BLEU' err || wrong "no validation: $(cat err)"
python3 - <<'END' || wrong "log.json: $(cat log.json)"
import json
lines = [json.loads(l) for l in open("log.json")]
first = next(l for l in lines if "valid_loss" in l)
assert first["seconds"] < 4, first
assert lines[-1]["seconds"] < 10, lines[-1]  # of 9
last = [l["rate"] for l in lines if "rate" in l][-1]  # a line right after another has none
assert 0 <= last < 1e-5 and "valid_loss" in lines[-1], lines[-1]  # annealed
config = json.load(open("m/config.json"))
assert config["model"]["family"] == "transformer" and config["training"]["schedule"] == "cosine"
assert config["training"]["hold_out"] == 40
END
echo 'the cat sleeps .' | "$heed" translate --model m >out 2>err || wrong "translate: $(cat err)"
[ "$(wc -l <out)" = 1 ] || wrong "translate: $(cat out)"
"$heed" train --list | grep -q 'transformer-tiny; from' || wrong "train --list has no rules"

# Flags that are only for an rnn choose one.
"$heed" train $files --model r --wiring after --steps 1 2>err || wrong "--wiring after: $(cat err)"
grep -q ': rnn with' err || wrong "--wiring after chose no rnn: $(cat err)"
"$heed" train $files --model w --tokens words --vocabulary 300 --steps 1 --anyway 2>err || wrong "words: $(cat err)"
grep -q 'vocabulary of at most 300 words' err || wrong "not told of what is used: $(cat err)"

# ---- --config
echo '{"preset": "rnn-small", "batch_tokens": 400, "tokens": "words", "steps": 2, "bidirectional": false}' >run.json
"$heed" train $files --config run.json --model c --size 24 --steps 3 2>err || wrong "--config: $(cat err)"
python3 - <<'END' || wrong "--config: $(cat c/config.json)"
import json
c = json.load(open("c/config.json"))
assert c["model"]["size"] == 24 and c["model"]["bidirectional"] is False, c
assert c["training"]["batch_tokens"] == 400 and c["training"]["steps"] == 3, c  # flags come first
END
# A model's own file: another like it.
"$heed" train $files --config c/config.json --preset rnn-small --tokens words --model d 2>err || wrong "--config config.json: $(cat err)"
cmp -s c/model.safetensors d/model.safetensors || wrong "--config config.json: another model"

# ---- an alignment teaches: learnt where that takes little of the time, a given one always
aligned() { "$heed" train $files --samples 0 "$@" 2>err || wrong "$*: $(cat err)"; }
aligned --model g --steps 2
grep -q 'guided by an alignment' err && grep -q '^aligned 2500 pairs' err || wrong "not guided: $(cat err)"
aligned --config g/config.json --preset transformer-tiny --tokens bpe --model h
grep -q '^aligned 2500 pairs' err || wrong "--config of a guided model: not guided: $(cat err)"
aligned --model n --steps 2 --guided 0
grep -q '^aligned' err && wrong "--guided 0 is guided: $(cat err)"
aligned --model f --steps 2 --alignment corpus/train.align
grep -q '^aligned' err && wrong "--alignment: learnt another: $(cat err)"
grep -q '"guided": 0.3' f/config.json || wrong "--alignment does not teach: $(cat f/config.json)"
aligned --model z --steps 2 --score none
grep -q '"guided": 0.0' z/config.json || wrong "--score none: $(cat z/config.json)"
refuse() {
  code=$1 words=$2
  shift 2
  "$heed" "$@" >out 2>err
  got=$?
  [ "$got" = "$code" ] || wrong "heed $*: exit code $got, wanted $code: $(cat err)"
  grep -qF -- "$words" err || wrong "heed $*: no '$words' in: $(cat err)"
}
echo '{"batch_tokns": 400}' >bad.json
refuse 2 "unknown key 'batch_tokns'; did you mean 'batch-tokens'" train $files --config bad.json --model e
echo '{"steps": [1]}' >bad.json
refuse 2 "'steps' cannot be [1]" train $files --config bad.json --model e
echo 'steps' >bad.json
refuse 2 "not a JSON object" train $files --config bad.json --model e
grep -qF "Run 'heed train --help'" err || wrong "a mistake in --config names other help: $(cat err)"
printf '{"steps": 3,\n "seed" 4}\n' >bad.json
refuse 2 "parse error at line 2, column 9" train $files --config bad.json --model e
for text in '{"heed": 2, "model": 3, "training": 4}' '{"heed": 2, "model": {"family": 3}, "training": {}}'; do
  echo "$text" >bad.json
  refuse 2 "not as heed writes a model's config.json" train $files --config bad.json --model e
done
for key in config help list; do  # of the command line alone
  echo "{\"$key\": true}" >bad.json
  refuse 2 "unknown key '$key'" train $files --config bad.json --model e
done
refuse 1 "choose a smaller --size" train $files --model e --size 1000000 --steps 1
refuse 2 "--config wants a file" train $files --config '' --model e
refuse 2 "corpus: cannot be read: Is a directory" train $files --config corpus --model e
refuse 2 "nosuch.json: cannot be read" train $files --config nosuch.json --model e
refuse 2 "hold_out wants 0 or a number of at least 2" train $files --model e --hold-out 1
refuse 1 "has fewer than 50000 lines; of every 100000 none" train $files --model e --hold-out 100000
refuse 2 "this model drops nothing" train $files --model e --dropout 0 --rdrop 5
[ -e e ] && wrong "a mistake left a folder"
exit $failed
