#!/bin/sh
# The program's manners: exit codes, and which words go where. $1: the program.
set -u
heed=$1
failed=0
expect() {  # code, what, arguments...
  code=$1 words=$2
  shift 2
  out=$("$heed" "$@" 2>&1)
  got=$?
  [ "$got" = "$code" ] || { echo "heed $*: exit code $got, wanted $code"; failed=1; }
  case $out in *"$words"*) ;; *) echo "heed $*: no '$words' in: $out"; failed=1 ;; esac
}
expect 0 "Examples:" --help
expect 0 "Examples:" bench --help
case $("$heed" --help) in *"heed align"*) echo "heed --help has the examples of align"; failed=1 ;; esac
case $("$heed" train --help) in *"=[]"*) echo "heed train --help: a default that says nothing"; failed=1 ;; esac
for default in '--preset TEXT(=auto| \[auto\])' '--seed UINT(=1| \[1\])' '(=all| \[all\])'; do  # CLI11's old and new form
  "$heed" train --help | grep -Eq -- "$default" || { echo "heed train --help: no $default"; failed=1; }
done
expect 0 "--family transformer" train --list
expect 0 "heed 0." --version
expect 2 "a command is wanted"
expect 2 "--trheads" bench --trheads 2
expect 2 "'a.en' was not expected: no flag stands before it" train a.en a.de
expect 2 "--minutes: wants a number, given '1h'" train --minutes 1h
expect 2 "unknown command 'bensh'; did you mean 'bench'" bensh
expect 2 "unknown command 'bensh'; did you mean 'bench'" bensh --help
expect 2 "unknown row 'op/softmaxx'; did you mean 'op/softmax'" bench --only op/softmaxx
expect 1 "/nosuch/dir" bench --only op/top_k --seconds 0.01 --threads 1 --json /nosuch/dir/b.json
[ -s out ] && { echo "bench worked before it looked at --json: $(cat out)"; failed=1; }
echo old >b.json
expect 2 "unknown row" bench --only nothing --json b.json
expect 2 "unknown row 'gpu/train/tinny'; did you mean 'gpu/train/tiny'" bench --device cuda --only gpu/train/tinny --json b.json
[ "$(cat b.json)" = old ] || { echo "a mistake in the arguments cost b.json: $(cat b.json)"; failed=1; }
expect 0 "op/top_k" bench --only op/top_k --seconds 0.01 --threads 1
# Few addresses are enough for a small job; a sanitizer's own would not fit.
if (ulimit -v 1000000 && "$heed" --version) >/dev/null 2>&1; then
  out=$(ulimit -v 1000000 && "$heed" bench --only op/top_k --seconds 0.01 2>&1) ||
    { echo "heed bench, ulimit -v 1000000: $out"; failed=1; }
fi
[ -z "$("$heed" bench --trheads 2 2>/dev/null)" ] || { echo "talk on stdout"; failed=1; }
# heed score
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'The cat sat on the mat.\nHello , world !\nIt cost $1,234.56 in 2019-2020.\n' >"$work/hyp"
printf 'The cat is on the mat.\nHello, world!\nIt cost $1,234.56 in 2019-2020.\n' >"$work/ref"
printf 'A cat sat on a mat.\nHello world.\nIt was dear.\n' >"$work/worse"
printf '0-0 1-1 2-2\n0-0\n' >"$work/links"
printf '0-0 3-3 1p1\n0-0\n' >"$work/gold"
printf 'caf\351\n' >"$work/latin1"
printf 'café\n' >"$work/cafe"
printf '0-0\n1-1 2:2\n' >"$work/badlinks"
printf 'one\ntwo\n' >"$work/two"
: >"$work/empty"
gzip -c "$work/ref" >"$work/ref.gz"
head -c 40 "$work/ref.gz" >"$work/cut.gz"
bleu='BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = 83.2 95.0/88.2/78.6/72.7'
expect 0 "Examples:" score --help
expect 0 "$bleu" score -r "$work/ref" "$work/hyp"
expect 0 "$bleu" score --reference "$work/ref.gz" "$work/hyp"
expect 0 "nrefs:2" score -r "$work/ref" -r "$work/worse" "$work/hyp"
expect 0 "chrF2++|nrefs:1|case:lc" score -r "$work/ref" --lowercase -m chrf++ "$work/hyp"
expect 0 "|#:1|c:mixed|e:no|tok:intl|s:add-k[2.00]|v:2.6.0" score -r "$work/ref" "$work/hyp" \
  --tokenize intl --smooth add-k --smooth-value 2 --short
expect 0 '"name": "TER"' score -r "$work/ref" "$work/hyp" -m ter --json
expect 0 '{"line":2,"BLEU":100.0,"TER":200.0}' score -r "$work/ref" "$work/hyp" -m bleu,ter --sentence --json
expect 0 "bs:50|seed:7" score -r "$work/ref" "$work/hyp" --bootstrap 50 --seed 7
expect 0 "p = " score -r "$work/ref" "$work/hyp" "$work/worse" --bootstrap 50
expect 0 "ar:50|seed:12345" score -r "$work/ref" "$work/hyp" "$work/worse" --randomization 50
expect 0 '"p_value": null' score -r "$work/ref" "$work/hyp" "$work/worse" --bootstrap 50 --json
expect 0 "AER|nrefs:1 = 28.6 precision = 75.0 recall = 66.7" score -m aer -r "$work/gold" "$work/links"
expect 1 "ref has 3 lines, $work/two has 2" score -r "$work/ref" "$work/two"
expect 1 "empty is empty" score -r "$work/empty" "$work/hyp"
expect 1 "/nosuch: cannot be read: No such file" score -r /nosuch "$work/hyp"
expect 1 "is a directory" score -r "$work/ref" "$work"
# A line that is not UTF-8 is repaired, named and counted; it does not match.
expect 0 "latin1: line 1: not UTF-8: byte 4 is 0xE9" score -r "$work/cafe" "$work/latin1"
expect 0 "1 line was not UTF-8" score -r "$work/cafe" "$work/latin1"
expect 1 "latin1: line 1: not UTF-8: byte 4 is 0xE9" score -r "$work/cafe" "$work/latin1" --strict
expect 1 "latin1: line 1: not UTF-8: byte 4 is 0xE9" score -r "$work/latin1" "$work/cafe" --strict
expect 1 "latin1: line 1: not UTF-8: byte 4 is 0xE9" score -m aer -r "$work/latin1" "$work/latin1"
out=$("$heed" score -b -r "$work/cafe" "$work/latin1" 2>/dev/null)
[ "$out" = 0.0 ] || { echo "heed score of a line that was repaired: $out"; failed=1; }
expect 1 "cut.gz: after line 1: the gzip file ends too early" score -r "$work/cut.gz" "$work/hyp"
expect 1 "badlinks: line 2: alignment: token 2, '2:2'" score -m aer -r "$work/gold" "$work/badlinks"
expect 2 "unknown metric 'blue'; did you mean 'bleu'" score -r "$work/ref" "$work/hyp" -m blue
expect 2 "unknown tokenizer '13b'; did you mean '13a'" score -r "$work/ref" "$work/hyp" --tokenize 13b
expect 2 "heed: --reference is required" score "$work/hyp"
expect 2 "Run 'heed score --help'" score "$work/hyp"
expect 2 "standard input (-) can be read once" score -r - -
expect 2 "aer reads alignments" score -r "$work/gold" "$work/links" -m aer,bleu
expect 2 "one gold alignment" score -r "$work/gold" -r "$work/gold" "$work/links" -m aer
expect 2 "--sentence takes one hypothesis" score -r "$work/ref" "$work/hyp" "$work/worse" --sentence
expect 2 "--randomization compares systems" score -r "$work/ref" "$work/hyp" --randomization 9
for file in ref ref.gz; do
  out=$("$heed" score -b -r "$work/ref" <"$work/$file")
  [ "$out" = 100.0 ] || { echo "heed score <$file: $out"; failed=1; }
done
[ -z "$("$heed" score -r "$work/ref" "$work/two" 2>/dev/null)" ] || { echo "talk on stdout"; failed=1; }
# heed study
expect 0 "Examples:" study --help
expect 1 "give a larger test set" study bottleneck --source "$work/ref" --target "$work/ref" --test-source "$work/ref" \
  --test-target "$work/ref" --out "$work"
for what in --help "study --list"; do  # shellcheck disable=SC2086
  "$heed" $what >/dev/full 2>"$work/full" && { echo "heed $what >/dev/full: exit code 0"; failed=1; }
  grep -q "standard output cannot be written to" "$work/full" || { echo "heed $what >/dev/full: $(cat "$work/full")"; failed=1; }
done
expect 0 "bottleneck" study --list
expect 0 "holds: query near a key" study dictionary --small --out "$work/new/studies"
for file in dictionary.json dictionary.svg dictionary-weights.svg; do
  [ -s "$work/new/studies/$file" ] || { echo "heed study: no $file"; failed=1; }
done
expect 0 "holds: query near a key" study dictionary --small --out "$work/new/studies"  # over its own
mkdir "$work/mine" "$work/drawn"
echo '{"mine":1}' >"$work/mine/dictionary.json"
expect 1 "mine/dictionary.json: heed did not write it" study dictionary --small --out "$work/mine"
[ "$(cat "$work/mine/dictionary.json")" = '{"mine":1}' ] || { echo "heed study wrote over $work/mine"; failed=1; }
echo mine >"$work/drawn/dictionary-weights.svg"
expect 1 "dictionary-weights.svg: heed did not write it" study dictionary --small --out "$work/drawn"
# One that is asked to stop leaves nothing behind.
mkdir "$work/tmp"
TMPDIR=$work/tmp "$heed" study recency --out "$work/new" 2>"$work/err" &
pid=$!
tries=0
until [ -n "$(find "$work/tmp" -name model.safetensors)" ] || [ $((tries += 1)) -gt 150 ]; do sleep 0.1; done
kill -TERM $pid
wait $pid
got=$?
[ $got = 143 ] || { echo "heed study, stopped: exit code $got, wanted 143"; failed=1; }
grep -q "study: stopped" "$work/err" || { echo "heed study, stopped: $(cat "$work/err")"; failed=1; }
[ -z "$(ls "$work/tmp")" ] || { echo "heed study, stopped, leaves $(ls "$work/tmp")"; failed=1; }
expect 2 "unknown study 'recence'; did you mean 'recency'" study recence
expect 2 "the name of a study is required" study
expect 2 "real text wants four files" study bottleneck --source "$work/ref"
expect 2 "study 'scale' reads no text" study scale --source a --target b --test-source c --test-target d
expect 2 "leave --small out" study bottleneck --small --source a --target b --test-source c --test-target d
expect 1 "/nosuch: no such folder; the grammar's words" study scores --small --grammar /nosuch --out "$work"
expect 1 "hyp: the folder to write to cannot be made" study dictionary --out "$work/hyp"
[ "$failed" = 0 ] && echo "the program behaves"
exit $failed
