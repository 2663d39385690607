#!/bin/sh
# Training over MPI: the same bytes on any number of ranks, and nothing hangs in silence.
# $1: the program.
. "$(dirname "$0")/program.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1  # containers are root
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
python3 - <<'END'
import random
draw = random.Random(1)
with open("a.src", "w") as source, open("a.trg", "w") as target:
    for _ in range(600):
        words = ["".join(draw.choice("abcdefg") for _ in range(draw.randint(1, 4)))
                 for _ in range(draw.randint(2, 8))]
        print(*words, file=source)
        print(*(w[::-1] for w in reversed(words)), file=target)
END
files="--source a.src --target a.trg"
small="$files --size 16 --vocabulary 60 --hold-out 20 --batch-tokens 200 --max-length 60 --anyway
  --threads 1 --samples 0"

# Trains into folder $2 on $1 ranks (0: without MPI).
train() {
  n=$1 folder=$2
  shift 2
  if [ "$n" = 0 ]; then set -- "$heed" train --model "$folder" "$@"
  else set -- mpirun --bind-to none -n "$n" "$heed" train --model "$folder" "$@"; fi
  "$@" >out 2>err </dev/null || wrong "$*: exit code $?: $(cat err)"
}
same_run() {
  same "$1/checkpoint/last.safetensors" "$2/checkpoint/last.safetensors" "$3"
  same "$1/model.safetensors" "$2/model.safetensors" "$3"
}

# ---- the same bytes
rnn="--preset rnn-small $small --tokens bpe --sampling 0.1 --average-last 2 --dropout 0.1
  --accumulate 4 --validate-every 3 --save-every 3"
train 0 rnn0 $rnn --steps 9
for n in 2 3 4; do
  train $n rnn$n $rnn --steps 9
  same_run rnn0 rnn$n "rnn, 4 micro-batches over $n ranks"
done
grep -q '4 ranks: .* words/s each' err || wrong "no word of the ranks: $(cat err)"
[ "$(grep -c 'done after 9 steps' err)" = 1 ] || wrong "more than one rank talks: $(cat err)"
train 3 wire1 $rnn --steps 9 --wire bf16
train 3 wire2 $rnn --steps 9 --wire bf16
same_run wire1 wire2 "rnn over 3 ranks, gradients in bf16"
cmp -s rnn0/model.safetensors wire1/model.safetensors && wrong "--wire bf16 changes nothing"
transformer="--preset transformer-tiny $small --inner 32 --heads 2 --guided auto --dropout 0.1
  --accumulate 6 --steps 5 --validate-every 5"
train 0 transformer0 $transformer
train 4 transformer4 $transformer
same_run transformer0 transformer4 "transformer, 6 micro-batches over 4 ranks"
lm="--text a.src --valid-share 0.1 --size 16 --heads 2 --context 32 --batch-tokens 200 --accumulate 2
  --steps 4 --threads 1 --sample-length 0"
"$heed" lm train $lm --model lm1 2>err || wrong "lm: $(cat err)"
mpirun --bind-to none -n 2 "$heed" lm train $lm --model lm2 2>err || wrong "lm, 2 ranks: $(cat err)"
same_run lm1 lm2 "a language model over 2 ranks"

# ---- lines over ranks, in their order; a job that was killed goes on
"$heed" translate --model rnn0 --input a.src --scores --seed 3 --sample >one 2>err || wrong "translate: $(cat err)"
mpirun --bind-to none -n 3 "$heed" translate --model rnn0 --scores --seed 3 --sample <a.src >three 2>err ||
  wrong "translate, 3 ranks: $(cat err)"
same one three "600 lines over 3 ranks"
head -c 5000 one >part
mpirun --bind-to none -n 2 "$heed" translate --model rnn0 --input a.src --scores --seed 3 --sample \
  --output part --resume >out 2>err || wrong "translate --resume: $(cat err)"
same one part "600 lines, gone on with"

# ---- another number of ranks goes on in the same bytes
train 3 resumed $rnn --steps 4
train 2 resumed $files --max-length 60 --anyway --samples 0 --threads 1 --resume --steps 9
same_run rnn0 resumed "4 steps on 3 ranks, 5 on 2"

# ---- micro-batches and ranks
train 2 two $small --preset rnn-small --steps 1
grep -q '"accumulate": 2' two/config.json || wrong "an update has not a micro-batch for each rank"
mpirun -n 3 "$heed" train $small --model no --accumulate 2 --steps 1 >out 2>err </dev/null
[ $? = 2 ] || wrong "more ranks than micro-batches: exit code"
grep -q 'has no work for 3 ranks' err || wrong "more ranks than micro-batches: $(cat err)"
[ -e no ] && wrong "a folder was made"

# ---- ranks that differ
head -n 500 a.src >b.src
head -n 500 a.trg >b.trg
one="--preset rnn-small --size 16 --vocabulary 60 --hold-out 20 --batch-tokens 200 --max-length 60
  --anyway --accumulate 2 --steps 3 --threads 1 --model"
# Rank 1 is started with other words ($2).
differs() {
  mpirun -n 1 "$heed" train $one "$1" $files : -n 1 "$heed" train $one "$1" $2 >out 2>err </dev/null &&
    wrong "rank 1 has $2, and nobody minds"
  grep -q "rank 1 .*: $3 must be the same on all 2 ranks" err || wrong "rank 1 has $2: $(cat err)"
}
differs corpus "--source b.src --target b.trg" "the corpus"

# ---- memory that does not suffice for the longest sentences is found before the first step
large="$files --preset rnn-small --size 256 --vocabulary 60 --batch-tokens 40000 --max-length 60
  --anyway --accumulate 2 --steps 3 --threads 1 --samples 0 --validate-every 3"
limited='ulimit -v 600000; exec "$0" "$@"'
mpirun -n 1 "$heed" train $large --model large : -n 1 sh -c "$limited" "$heed" train $large \
  --model large >out 2>err </dev/null && wrong "a rank has too little memory, and mpirun ends well"
grep -q "rank 1 .*: training: .* of the longest sentences .* give --batch-tokens less than 40000" err ||
  wrong "a rank with too little memory: $(cat err)"
[ -e large/checkpoint/last.safetensors ] && wrong "a rank with too little memory trained"
rm -rf large
sh -c "$limited" "$heed" train $large --model large >out 2>err </dev/null &&
  wrong "too little memory, and it ends well"
grep -q "training: .* of the longest sentences" err || wrong "too little memory: $(cat err)"

# ---- a rank that is killed, stopped, or asked to end
long="--preset rnn-small $small --accumulate 3 --steps 100000 --save-every 20 --deadline 4"
begin_long() {
  folder=$1
  mpirun --bind-to none -n 3 "$heed" train $long --model "$folder" >out 2>err </dev/null &
  mpi=$!
  for _ in $(seq 1200); do
    [ -e "$folder/checkpoint/last.safetensors" ] && break
    sleep 0.1
  done
  [ -e "$folder/checkpoint/last.safetensors" ] || wrong "no checkpoint within two minutes: $(cat err)"
  ranks=$(pgrep -P "$mpi" -x heed)
}
begin_long killed
kill -9 $(echo $ranks | cut -d' ' -f2)
wait $mpi && wrong "a rank was killed, and mpirun ends well"
grep -q 'rank 1' err || wrong "nobody says which rank was killed: $(cat err)"
step=$("$heed" train $files --resume --max-length 60 --anyway --samples 0 --model killed --minutes 0.001 2>&1 | sed -n 's/^going on from step //p')
[ "${step:-0}" -ge 20 ] || wrong "nothing to go on from after a kill"

begin_long stopped
kill -STOP $(echo $ranks | cut -d' ' -f3)
begun=$(date +%s)
wait $mpi && wrong "a rank was stopped, and mpirun ends well"
[ $(($(date +%s) - begun)) -le 20 ] || wrong "a rank that was stopped is waited for"
grep -q 'nothing came from rank 2 ' err || wrong "nobody says which rank was stopped: $(cat err)"
kill -9 $ranks 2>/dev/null

begin_long asked
kill -USR1 $mpi
wait $mpi
[ $? = 0 ] && wrong "stopped, and the exit code is 0"
grep -q 'the checkpoint is saved, --resume goes on' err || wrong "SIGUSR1: $(cat err)"

exit $failed
