#!/usr/bin/env bash
# figures.sh PROGRAM [ARGS...]: draws the papers' figures with PROGRAM, which is forebay-bench.
#
# From the results in BENCH_DIR (*.jsonl) if there are any. If not, runs the benchmarks once at a small size, keeps what they
# found in BENCH_DIR/quick, and draws that.
set -euo pipefail
program=$1
shift
from=${BENCH_DIR:-target/bench}
to=${FIGURES_DIR:-target/figures}

# measure NAME ARGS...: one benchmark's JSON lines, whole or not at all.
measure() {
  local file=$from/quick/$1.jsonl
  [ ! -s "$file" ] || return 0
  echo "==> quick run of bench $1" >&2
  "$program" "$@" --json >"$file.new"
  mv "$file.new" "$file"
}

full() {
  echo "The full benchmarks take long; their results are drawn once they are there:"
  echo "  make bench-index ARGS=--json > $from/index.jsonl"
  echo "  make bench-ring ARGS=--json > $from/ring.jsonl"
  echo "  make bench-pattern ARGS=--json > $from/pattern.jsonl"
  echo "  make bench-prefetch ARGS=--json > $from/prefetch.jsonl"
  echo "  make bench-checkpoint ARGS=--json > $from/checkpoint.jsonl"
  echo "  make bench-fields ARGS=--json > $from/fields.jsonl"
}

if compgen -G "$from/*.jsonl" >/dev/null; then
  "$program" figures --from "$from" --to "$to" "$@"
else
  mkdir -p "$from/quick"
  # All but one case, which is no point of a figure and takes longest.
  rings=()
  for case in $("$program" ring --list); do
    [ "$case" = ring-sim-every ] || rings+=(--case "$case")
  done
  measure ring "${rings[@]}" --runs 3 --rounds 10 --clients 4
  measure pattern --runs 1
  measure prefetch --runs 1
  measure checkpoint --case fs-test-512x1k,fs-test-512x4k --runs 1
  measure index --case ior-1m-lockstep,ior-1m-drift,ior-1m-random,tile-io,btio-c --runs 1
  measure fields --case fields,points-256,points-1024,points-4096,points-16384,e2e-50,e2e-200,e2e-1000,mmat-200 --size 16MiB --runs 1
  "$program" figures --from "$from/quick" --to "$to" "$@"
  echo "These are of one quick run at a small size; without files in $from/quick, the next call makes another."
  full
fi
