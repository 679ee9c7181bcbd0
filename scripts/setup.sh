#!/usr/bin/env bash
# Installs what is missing on a Debian 12 machine: FUSE, a linker, the programs that the tests run on the mount, and for the
# service over MPI both OpenMPI (Debian's default, and so the plain `mpicc`) and MPICH, and Slurm.
# With the word `peers`: LevelDB and RocksDB too, for `make bench-index`. With `dedup`: borg and restic too, for `make bench-dedup`.
# With `fresh`: what `make fresh` makes a new root with.
# pjdfstest is built for the calling user (cargo install).
# Does nothing, and asks for no rights, where everything is there.
set -euo pipefail

need_command() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
# Debian's own python3: packages of apt are not seen by one from elsewhere that comes first in PATH.
need_python() { /usr/bin/python3 -c "import $1" >/dev/null 2>&1 || missing+=("$2"); }
# Where there is no dpkg, only what has a command is looked for: MPI and Slurm are taken from elsewhere, or not at all.
need_package() {
  command -v dpkg-query >/dev/null 2>&1 || return 0
  dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed || missing+=("$1")
}

missing=()
need_command fusermount3 fuse3
need_command cc gcc
need_command gcc gcc
# Programs in C++ and Fortran that use libforebay.
need_command g++ g++
need_command gfortran gfortran
need_command make make
need_command fio fio
need_command rsync rsync
need_command sqlite3 sqlite3
need_command git git
need_command dbench dbench
need_command setfattr attr
# A recording disk.
need_command losetup mount
need_command mkfs.ext4 e2fsprogs
# Several hosts made of namespaces.
need_command ip iproute2
need_command ssh openssh-client
need_command ssh-keygen openssh-client
[ -x /usr/sbin/sshd ] || missing+=(openssh-server)
# Figures and plots: the text of a PNG, and the browser that tests look at a page with.
need_package fonts-dejavu-core
need_command chromium chromium
[ -x /usr/bin/python3 ] || missing+=(python3)
need_python numpy python3-numpy
# Environments for the tests of the Python package.
need_python ensurepip python3-venv
need_python h5py python3-h5py
# The service over MPI: to build it, to start it, and programs that use it.
for package in libclang-dev libopenmpi-dev openmpi-bin libmpich-dev mpich \
  pkg-config libhdf5-openmpi-dev libpnetcdf-dev python3-mpi4py slurm-wlm munge; do
  need_package "$package"
done
case ${1:-} in
peers)
  need_package libleveldb-dev
  need_package librocksdb-dev
  ;;
dedup)
  need_command borg borgbackup
  need_command restic restic
  ;;
fresh) need_package debootstrap ;;
esac

if [ "${#missing[@]}" -gt 0 ]; then
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  echo "setup: installing ${missing[*]}" >&2
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: this system has no apt-get; install the packages named above by hand, then run this again" >&2
    exit 1
  fi
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
      echo "setup: neither root nor sudo; ask an administrator to install the packages named above" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  "${apt[@]}" update </dev/null >&2
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >&2
fi

if ! command -v cargo >/dev/null 2>&1; then
  echo "setup: no Rust toolchain; install one with https://rustup.rs (version 1.95 or later), then run this again" >&2
  exit 1
fi
for component in fmt clippy; do
  if ! cargo "$component" --version >/dev/null 2>&1; then
    echo "setup: \`cargo $component\` is missing; add it with 'rustup component add rustfmt clippy', then run this again" >&2
    exit 1
  fi
done

# The suite that asks the mount what POSIX says; from crates.io, for Debian has none.
if ! command -v pjdfstest >/dev/null 2>&1 && [ ! -x "${CARGO_HOME:-$HOME/.cargo}/bin/pjdfstest" ]; then
  echo "setup: installing pjdfstest" >&2
  cargo install --quiet --locked --debug pjdfstest --version 0.2.2 </dev/null >&2
fi

if [ ! -e /dev/fuse ]; then
  echo "setup: warning: /dev/fuse is missing, so nothing can be mounted; load it with 'modprobe fuse', or give the container --device /dev/fuse --cap-add SYS_ADMIN" >&2
fi
