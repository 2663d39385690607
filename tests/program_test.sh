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
expect 0 "heed 0." --version
expect 2 "a command is wanted"
expect 2 "--trheads" bench --trheads 2
expect 2 "unknown command 'bensh'; did you mean 'bench'" bensh
expect 1 "unknown row 'op/softmaxx'; did you mean 'op/softmax'" bench --only op/softmaxx
expect 1 "/nosuch/dir" bench --only op/top_k --seconds 0.01 --threads 1 --json /nosuch/dir/b.json
expect 0 "op/top_k" bench --only op/top_k --seconds 0.01 --threads 1
[ -z "$("$heed" bench --trheads 2 2>/dev/null)" ] || { echo "talk on stdout"; failed=1; }
[ "$failed" = 0 ] && echo "the program behaves"
exit $failed
