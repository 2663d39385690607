#!/bin/sh
# The statistical aligner and symmetrization as a user runs them, and what they say of bad input.
# $1: the program, $2: the grammar that writes a corpus, $3: its words.
. "$(dirname "$0")/program.sh"

"$2" corpus 2000 1 "$3" >/dev/null || exit 1
cat corpus/test.en corpus/train.en >a.en
cat corpus/test.fr corpus/train.fr >a.fr

# ---- learning, on any number of threads; standard output has the links and nothing else
expect 0 "" align --source a.en --target a.fr --threads 1 --save one --lexicon words
cp out links
[ "$(wc -l <links)" = "$(wc -l <a.en)" ] || wrong "align: $(wc -l <links) lines of $(wc -l <a.en)"
# What is told of them: one line, on any number of threads the same.
[ "$(wc -l <err)" = 1 ] || wrong "align: more than a line of talk: $(cat err)"
cp err told
awk '/^the two directions agree on [0-9.]+ % of their links; without a link are/ { agreed = $6 } END { exit !(agreed > 60 && agreed < 99) }' err ||
  wrong "align: quality: $(cat err)"
head -1000 links >test.align
"$heed" score -m aer -r corpus/test.align test.align -b >aer
awk '$1 > 10.5 { exit 1 }' aer || wrong "align: AER $(cat aer) on the grammar"
for threads in 2 4; do
  expect 0 "" align --source a.en --target a.fr --threads $threads --save many
  same out links "align on $threads threads"
  same err told "what align tells on $threads threads"
  same many one "align --save on $threads threads"
done
awk -F'\t' '$1 == "water" { print $2; exit }' words | grep -qx eau || wrong "lexicon: $(grep ^water words)"
awk -F'\t' 'NF != 3 || $3 > 1 || $3 < 0 || ($1 == last && $3 > p) { exit 1 } { last = $1; p = $3 }' words ||
  wrong "lexicon: not words and probabilities, best first"

# ---- what was learnt, on other text
expect 0 "" align --use one --source corpus/valid.en --target corpus/valid.fr
"$heed" score -m aer -r corpus/valid.align out -b >aer
awk '$1 > 11.5 { exit 1 }' aer || wrong "align --use: AER $(cat aer)"
expect 0 "" align --use one --lexicon again
same again words "--use --lexicon"
head -c 5000 one >cut
expect 1 "cut" align --use cut --source a.en --target a.fr
expect 1 "a.en" align --use a.en --source a.en --target a.fr
expect 1 "nosuch" align --use nosuch --source a.en --target a.fr
expect 1 "nosuch" align --source a.en --target a.fr --save nosuch/x

# ---- its posteriors, drawn
head -3 a.en >b.en
head -3 a.fr >b.fr
head -3 corpus/test.align >b.align
expect 0 "" view --use one --source b.en --target b.fr --gold b.align --svg p.svg --png p.png --html p.html
grep -q '\[.*\*.*\]' out || wrong "view --use: no link is in both: $(cat out)"
grep -q '^NULL ' out || wrong "view --use: no empty word: $(cat out)"
grep -q 'links: \[ \] gold, sure' out || wrong "view --use: no legend: $(cat out)"
grep -q '"name":"backward"' p.html || wrong "view --use --html: no directions"
[ -s p.png ] && grep -q 'class="gold"' p.svg || wrong "view --use: no pictures"
expect 0 "" view --use one --source b.en --target b.fr --posterior forward --hide-end
grep -q '^NULL ' out && wrong "view --hide-end: an empty word: $(cat out)"
expect 2 "--use draws given pairs" view --use one
expect 2 "--posterior is of an aligner" view --model m --posterior forward
printf '0-0\n0-99\n\n' >far
expect 1 "far: line 2: link 0-99 is outside" view --use one --source b.en --target b.fr --gold far
# ---- two directions
expect 0 "" align --source a.en --target a.fr --combine intersection
cp out both
expect 0 "" align --source a.en --target a.fr --combine union
cp out either
[ "$(wc -w <both)" -lt "$(wc -w <either)" ] || wrong "the union is not more than the intersection"
printf '0-0 1-1 2-1 4-4 5-7\n\n' >f
printf '0-0 1-1 1-2 3-4\n0-0\n' >b
combined() {
  expect 0 "" align --forward f --backward b --combine "$1"
  printf "$2" >wanted
  same out wanted "--combine $1"
}
combined intersection '0-0 1-1\n\n'
combined union '0-0 1-1 1-2 2-1 3-4 4-4 5-7\n0-0\n'
combined grow-diag '0-0 1-1 1-2 2-1\n\n'
combined grow-diag-final-and '0-0 1-1 1-2 2-1 4-4 5-7\n0-0\n'
printf '0-0:0.5 1-1:0.9 2-1 4-4 5-7\n\n' >f  # how probable they are does not count
expect 0 "" align --forward f --backward b
printf '0-0 1-1 1-2 2-1\n\n' >wanted
same out wanted "links are combined by grow-diag"
expect 0 "" align --forward f --backward b --reverse --one-based
printf '1-1 2-2 2-3 3-2\n\n' >wanted
same out wanted "--reverse --one-based"
printf '0-0\n' >short
expect 1 "f has 2 lines, short has 1" align --forward f --backward short
printf '0-0\n1:1\n' >bad
expect 1 "bad: line 2: not links" align --forward f --backward bad

# ---- gold files that count from 1
printf '1-1 2p2\n2-1\n' >gold1
printf '0-0 1-1\n1-0\n' >mine
expect 1 "gold1: no link has a word 0; say --one-based" score -m aer -r gold1 mine
grep -qF -- --zero-based err || wrong "no word of --zero-based: $(cat err)"
expect 0 "" score -m aer -r gold1 mine --one-based -b
[ "$(cat out)" = 0.0 ] || wrong "score --one-based: $(cat out)"
expect 0 "" score -m aer -r gold1 mine --zero-based -b
[ "$(cat out)" = 60.0 ] || wrong "score --zero-based: $(cat out)"
expect 1 "mine: line 1: has a word 0" score -m aer -r mine mine --one-based
expect 2 "exclude each other" score -m aer -r gold1 mine --one-based --zero-based
expect 2 "of the gold alignment" score -r gold1 mine --one-based

# ---- odd text
printf '\nhouse\n\n' >odd.en
printf '\nHaus\nnichts\n' >odd.de
expect 0 "" align --source odd.en --target odd.de
printf '\n0-0\n\n' >wanted
same out wanted "empty lines and lines of one word"
printf 'a\n' >one.line
expect 1 "odd.en has 3 lines, one.line has 1" align --source odd.en --target one.line
: >none
expect 0 "" align --source none --target none
[ -s out ] && wrong "links of no text: $(cat out)"
python3 -c 'print("w " * 3000)' >long
expect 0 "more than 2,048 words" align --source long --target long
printf '\n' >wanted
same out wanted "a line that is too long"

# ---- usage
expect 2 "one of these" align --model m --use one --source a.en --target a.fr
expect 2 "--source and --target are required" align --source a.en
expect 2 "go together" align --forward f
expect 2 "want no text" align --forward f --backward b --source a.en --target a.fr
expect 2 "nothing is learnt" align --use one --save two --source a.en --target a.fr
expect 2 "--lexicon is of a statistical aligner" align --forward f --backward b --lexicon x
expect 2 "they want --model" align --source a.en --target a.fr --scores
expect 2 "--choose is for a --model" align --source a.en --target a.fr --choose f
expect 2 "--combine joins two directions" align --model m --source a.en --target a.fr --combine union
expect 2 "wants probabilities" align --forward f --backward b --combine posterior
expect 2 "did you mean 'union'" align --source a.en --target a.fr --combine unoin
exit $failed
