# What the tests that run the program begin with: a folder that is gone at the end, and `expect`.
# Read with `.`, $1 being the program.
set -u
heed=$1
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
wrong() { echo "$*"; failed=1; }

# Runs heed with the arguments; its exit code must be $1, and stderr have the words $2.
expect() {
  code=$1 words=$2
  shift 2
  "$heed" "$@" >out 2>err </dev/null
  got=$?
  [ "$got" = "$code" ] || wrong "heed $*: exit code $got, wanted $code: $(cat err)"
  [ -z "$words" ] || grep -qF -- "$words" err || wrong "heed $*: no '$words' in: $(cat err)"
}
same() { cmp -s "$1" "$2" || wrong "$3: $1 and $2 differ"; }
