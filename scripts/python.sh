#!/usr/bin/env bash
# The Python package: builds it, installs it into environments below target/python, and runs its tests.
#
#   python.sh install        the package as users get it, in target/python/venv
#   python.sh test ARGS...   pytest of everything but checkpoints, in target/python/tests
#   python.sh torch ARGS...  pytest of checkpoints, in target/python/torch, with the torch that requirements/torch.txt names
#   python.sh bench          what the benchmarks of clients run with, in target/python/torch: prints its python
#
# An environment is made anew when its requirements have changed, and kept otherwise. Without a Python of at least 3.11 nothing is
# done, or with FOREBAY_REQUIRE_PYTHON it fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/python"
place=$(cd "$target/python" && pwd)
package=crates/python
python=${PYTHON:-python3}

missing() {
  if [ -n "${FOREBAY_REQUIRE_PYTHON:-}" ]; then
    echo "python: FOREBAY_REQUIRE_PYTHON is set, but $1" >&2
    exit 1
  fi
  echo "python: skipped: $1" >&2
  exit 0
}

# The environment `$1` with what the file `$2` says.
environment() {
  local venv=$place/$1 wanted=$2
  if ! cmp -s "$wanted" "$venv/requirements.txt"; then
    echo "python: installing $wanted" >&2
    rm -rf "$venv"
    "$python" -m venv "$venv" >&2
    # What pip says to a terminal is a bar; here it would be many lines.
    # A few at a time: pip keeps all downloads of a call until the last one is unpacked.
    grep -v '^#' "$wanted" | xargs -n 4 "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 --no-deps >&2
    cp "$wanted" "$venv/requirements.txt"
  fi
}

# Builds the wheel with cargo's options `$2`, and puts it into the environment `$1`, which maturin in the environment `build` makes.
wheel() {
  local venv=$place/$1 wheels=$place/wheels-$1
  shift
  environment build "$package/requirements/build.txt"
  rm -rf "$wheels"
  # What is linked to is the C library alone, so a wheel for this machine needs no repair.
  "$place/build/bin/maturin" build --quiet --manifest-path "$package/Cargo.toml" --interpreter "$place/build/bin/python" \
    --auditwheel skip --out "$wheels" "$@" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl >&2
}

command -v "$python" >/dev/null 2>&1 || missing "there is no $python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || missing "$python is older than 3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing "$python has no venv; install python3-venv"

what=${1:-install}
[ $# -eq 0 ] || shift
case $what in
install)
  environment venv "$package/requirements/user.txt"
  wheel venv --release
  echo "forebay is installed; run $place/venv/bin/python"
  ;;
test | torch)
  case $what in
  # zarr's tests are of coroutines.
  test) venv=tests tests=package plugins=(-o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function) ;;
  torch) venv=torch tests=checkpoints plugins=() ;;
  esac
  environment "$venv" "$package/requirements/$venv.txt"
  wheel "$venv"
  export FOREBAY=${FOREBAY:-$(cd "$target" && pwd)/debug/forebay}
  # Nobody's own service, and no settings of the caller's, take part.
  unset FOREBAY_SOCKET
  if [ "$what" = test ]; then
    "$place/$venv/bin/python" -m mypy --config-file "$package/pyproject.toml" "$package/python/forebay" --cache-dir "$place/mypy"
  fi
  "$place/$venv/bin/python" -m pytest -p no:cacheprovider -c "$package/pyproject.toml" --rootdir "$package" -q \
    "${plugins[@]}" "$package/tests/$tests" "$@"
  ;;
bench)
  environment torch "$package/requirements/torch.txt"
  wheel torch --release
  echo "$place/torch/bin/python"
  ;;
*)
  echo "usage: python.sh install|test|torch|bench" >&2
  exit 2
  ;;
esac
