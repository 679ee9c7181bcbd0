#!/usr/bin/env bash
# tests.sh CARGO-OPTIONS...: builds all tests with these options, and runs the test programs beside each other.
#
# Most tests of the command wait: for processes to start, for deadlines, for the disk. `cargo test` runs one program after another,
# and a core idles meanwhile; here as many run at once as there are cores, and one more. What a program says is shown when it ends,
# whole if it failed. The exit code is 1 if one failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# One line a test program: its package's folder, itself.
cargo test "$@" --no-run --message-format=json-render-diagnostics >"$logs/messages" || exit 1
sed -nE 's/^\{"reason":"compiler-artifact".*"manifest_path":"([^"]*)\/Cargo.toml".*"executable":"([^"]*)".*/\1 \2/p' \
  "$logs/messages" | grep "/deps/" >"$logs/programs"

# A line a run: the folder, the program, its filters. The longest go first. The hosts and the batch system of the command's tests
# take turns that nothing runs beside, so they are a run of their own.
plan() {
  local dir program
  while read -r dir program; do
    case $dir/$(basename "$program") in
    */cli/it-*)
      echo "1 $dir $program run_hosts:: slurm::"
      echo "1 $dir $program --skip run_hosts:: --skip slurm::"
      ;;
    */fuse/it-* | */server/it-* | */client/it-*) echo "2 $dir $program" ;;
    *) echo "3 $dir $program" ;;
    esac
  done <"$logs/programs"
}

run() {
  local dir=$1 program=$2 log
  shift 2
  log=$(mktemp "$LOGS/run.XXXXXX")
  local name code start=$SECONDS
  name="$(basename "$dir") $(basename "$program" | sed 's/-[0-9a-f]*$//')${*:+ $*}"
  cd "$dir" || exit 1
  CARGO_MANIFEST_DIR=$dir "$program" "$@" >"$log" 2>&1 </dev/null
  code=$?
  if [ "$code" -eq 0 ]; then
    grep -E '^test result' "$log" | sed "s|^test result: ok|$name|; s|; finished.*| in $((SECONDS - start)) s|"
  else
    echo "$name: exit code $code"
    cat "$log"
  fi
  return "$code"
}
export -f run
export LOGS=$logs

plan | sort -s -n -k1,1 | cut -d' ' -f2- | xargs -P "$(($(nproc) + 1))" -d '\n' -I{} bash -c 'run {}' || exit 1
cargo test "$@" --doc
