#!/usr/bin/env bash
# tests.sh [CARGO-OPTION...] [-- TEST-OPTION...]: `cargo test`, with the test programs beside each other.
# tests.sh --list FILE [CARGO-OPTION...]: builds the programs, and writes which they are.
# tests.sh --from FILE [-- TEST-OPTION...]: runs those, without cargo, which would wait for other builds.
#
# Most tests of the command wait: for processes to start, for deadlines, for the disk. `cargo test` runs one program after another,
# and a core idles meanwhile. Here as many programs run at once as there are cores, and one more. A program that passed is a line, and of
# one that failed everything is shown that it said. The exit code is 1 if one failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode='' file=''
case ${1:-} in
--list | --from)
  mode=$1 file=$2
  shift 2
  ;;
esac
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  options+=("$1")
  shift
done
[ $# -eq 0 ] || shift
cargo=${CARGO:-cargo}

LOGS=$(mktemp -d)
export LOGS
trap 'rm -rf "$LOGS"' EXIT

if [ "$mode" = --from ]; then
  cp "$file" "$LOGS/programs" || exit 1
else
  # A message of cargo about each program; those that are tests, each as its package's folder and its path.
  "$cargo" test "${options[@]}" --no-run --message-format=json-render-diagnostics >"$LOGS/messages" || exit 1
  grep '"test":true},"features"' "$LOGS/messages" |
    sed -nE 's/.*"manifest_path":"([^"]*)\/Cargo.toml".*"executable":"([^"]*)".*/\1 \2/p' >"$LOGS/programs"
fi
if [ ! -s "$LOGS/programs" ]; then
  echo "tests: cargo names no test program for ${options[*]}" >&2
  exit 1
fi

if [ "$mode" = --list ]; then
  cp "$LOGS/programs" "$file"
  exit
fi

# Folder, program and test options of each run, the longest first. Over several hosts and below the batch system a test of the
# command is alone in its program, so these are a run of their own.
plan() {
  local dir program
  while read -r dir program; do
    case "$dir/$(basename "$program")$*" in
    */cli/it-????????????????)
      echo "1 $dir $program run_hosts:: slurm::"
      echo "1 $dir $program --skip run_hosts:: --skip slurm::"
      ;;
    */cli/it-*) echo "1 $dir $program $*" ;;
    */fuse/it-* | */server/it-* | */client/it-*) echo "2 $dir $program $*" ;;
    *) echo "3 $dir $program $*" ;;
    esac
  done <"$LOGS/programs" | sort -s -n -k1,1 | cut -d' ' -f2-
}

run() {
  local dir=$1 program=$2 name log code start=$SECONDS
  shift 2
  name="$(basename "$dir") $(basename "$program" | sed 's/-[0-9a-f]*$//')${*:+ $*}"
  log=$(mktemp "$LOGS/run.XXXXXX")
  cd "$dir" || exit 1
  CARGO_MANIFEST_DIR=$dir "$program" "$@" --show-output >"$log" 2>&1 </dev/null
  code=$?
  if [ "$code" -eq 0 ]; then
    grep '^skipped: ' "$log" | sort -u
    # The last one: a program may have shown what another one said. Nothing of one in which no test was chosen.
    if grep -E '^test result' "$log" | tail -n 1 | grep -qv ' 0 passed; 0 failed; 0 ignored'; then
      touch "$LOGS/chosen"
      grep -E '^test result' "$log" | tail -n 1 | sed -E "s|^test result: ok.|$name:|; s|; finished.*|; $((SECONDS - start)) s|"
    fi
  else
    echo "$name: exit code $code"
    # Without what the tests said that passed.
    sed '/^successes:$/,/^failures:$/d' "$log"
  fi
  return "$code"
}
export -f run

plan "$@" | xargs -P "$(($(nproc) + 1))" -d '\n' -I{} bash -c 'run {}' || exit 1
if [ ! -e "$LOGS/chosen" ]; then
  echo "tests: no test has a name with any of: $*" >&2
  exit 1
fi
[ -z "$mode" ] || exit 0
# Examples in documentation are tested where nobody chose some of the tests.
case "$* ${options[*]} " in
*--lib* | *--test* | *--bin* | *--example* | *--bench*) ;;
*) [ $# -gt 0 ] || "$cargo" test --quiet "${options[@]}" --doc ;;
esac
