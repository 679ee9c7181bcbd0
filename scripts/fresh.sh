#!/usr/bin/env bash
# fresh.sh [--dir DIR] [--keep] [COMMAND...]: runs the README's two commands, or these, on a machine that has nothing.
#
# The machine is a new Debian 12 root made by debootstrap, in mount, process, host name and IPC namespaces of its own. Of this
# machine it gets the kernel, the network, the Rust toolchain (read-only), /dev/fuse and the loop devices, where packages come
# from, and a clone of the last commit. So what an earlier installation left on this machine cannot hide a step that is missing.
#
# It needs root, debootstrap, and some 15 GB of room in DIR (TMPDIR, or /var/tmp). DIR/forebay-fresh.* is removed at the end, unless
# --keep is given. Exit code: the first command's that failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
room=15 # GB that a root with sources, packages and three target directories takes

stop() {
  echo "fresh: $1" >&2
  exit 1
}

# What runs inside: process 1 of the new namespaces, with the root at $1. The rest of the arguments are the commands.
inside() {
  local root=$1 toolchain=$2 device LOOP=
  shift 2
  # A root that is a mount of its own is in the mount table, as `/` is on every machine.
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  # The kernel's control groups, as this machine has them: Slurm's node daemon does not start without.
  mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s /proc/self/fd/0 "$root/dev/stdin"
  ln -s /proc/self/fd/1 "$root/dev/stdout"
  ln -s /proc/self/fd/2 "$root/dev/stderr"
  mknod -m 666 "$root/dev/null" c 1 3
  mknod -m 666 "$root/dev/zero" c 1 5
  mknod -m 666 "$root/dev/full" c 1 7
  mknod -m 666 "$root/dev/random" c 1 8
  mknod -m 666 "$root/dev/urandom" c 1 9
  mknod -m 666 "$root/dev/tty" c 5 0
  mknod -m 666 "$root/dev/fuse" c 10 229
  if [ -e /dev/loop-control ]; then
    LOOP=yes
    mknod -m 660 "$root/dev/loop-control" c 10 237
    for device in $(seq 0 63); do mknod -m 660 "$root/dev/loop$device" b 7 "$device"; done
  fi
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  mkdir -p "$root/run/lock"
  mount --bind "$toolchain" "$root/opt/rust"
  mount -o remount,bind,ro "$root/opt/rust"
  hostname fresh
  cd "$root"
  pivot_root . .
  umount -l .
  cd /root/forebay
  local packages code=0
  for command in "$@"; do
    packages=$(dpkg-query -W | wc -l)
    dpkg-query -W -f '${Package} ${Version}\n' | sort >/tmp/before
    echo "==> fresh: $command" >&2
    local start=$SECONDS
    env -i HOME=/root USER=root TERM="${TERM:-dumb}" LANG=C.UTF-8 CARGO_TERM_COLOR=never \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rust/bin \
      ${CA:+SSL_CERT_FILE=$CA CARGO_HTTP_CAINFO=$CA PIP_CERT=$CA} \
      FOREBAY_REQUIRE_FUSE=1 FOREBAY_REQUIRE_PROGRAMS=1 FOREBAY_REQUIRE_MPI=1 FOREBAY_REQUIRE_SLURM=1 \
      FOREBAY_REQUIRE_HOSTS=1 ${LOOP:+FOREBAY_REQUIRE_DISK=1} \
      bash -c "$command" </dev/null || code=$?
    dpkg-query -W -f '${Package} ${Version}\n' | sort >/tmp/after
    echo "==> fresh: $command: exit code $code after $((SECONDS - start)) s, $(($(wc -l </tmp/after) - packages)) packages installed:" >&2
    comm -13 /tmp/before /tmp/after | tr '\n' ',' | sed 's/,/, /g' | fold -s -w 130 >&2
    echo >&2
    [ "$code" -eq 0 ] || return "$code"
  done
}

if [ "${1:-}" = --inside ]; then
  shift
  inside "$@"
  exit
fi

directory=${TMPDIR:-/var/tmp} keep=
while [ $# -gt 0 ]; do
  case $1 in
  --dir) directory=${2:?--dir needs a directory} && shift 2 ;;
  --keep) keep=yes && shift ;;
  -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
  -*) stop "unknown option $1; see $0 --help" ;;
  *) break ;;
  esac
done
[ $# -gt 0 ] || set -- "make demo" "make test"

[ "$(id -u)" -eq 0 ] || stop "only root can make a new root; run it with sudo"
[ -e /dev/fuse ] || stop "/dev/fuse is missing; load it with 'modprobe fuse'"
command -v debootstrap >/dev/null || stop "debootstrap is missing; install it with 'apt-get install debootstrap'"
[ -d "$directory" ] || stop "no directory $directory; make it, or name another with --dir"
free=$(df --output=avail -B 1G "$directory" | tail -n 1 | tr -dc 0-9)
[ "$free" -ge "$room" ] || stop "$directory has $free GB of room, $room are needed; name another with --dir"
[ -z "$(git -C "$here" status --porcelain)" ] || echo "fresh: warning: changes that are not committed are not tried" >&2
toolchain=$(rustc --print sysroot) || stop "no Rust toolchain"

# Where this machine gets Debian's packages from: the first source of the release.
sources() { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true; }
mirror=$(sources | sed -nE 's/^(URIs:|deb( \[[^]]*\])?) *(https?:[^ ]*\/debian\/?)( .*)?$/\3/p' | head -n 1)
[ -n "$mirror" ] || stop "no source of Debian's packages in /etc/apt"

root=$(mktemp -d -p "$directory" forebay-fresh.XXXXXX)
chmod 755 "$root" # it becomes `/`, which every user goes through
namespaces=
cleanup() {
  # Nothing may run in the root while it is removed. `unshare` waits for process 1 of the namespaces, which ends after all others in them.
  if [ -n "$namespaces" ]; then
    pkill -KILL -P "$namespaces" || kill -KILL "$namespaces" || true
    wait "$namespaces" 2>/dev/null || true
  fi
  if [ -n "$keep" ]; then
    echo "fresh: kept $root" >&2
  else
    rm -rf --one-file-system "$root"
  fi
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
started=$SECONDS
echo "==> fresh: a new Debian 12 in $root" >&2
debootstrap --variant=minbase --include=make bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
  { tail -n 20 "$root.log" >&2; rm -f "$root.log"; stop "debootstrap failed"; }
rm -f "$root.log"
echo "==> fresh: a new Debian 12: done in $((SECONDS - started)) s, $(chroot "$root" dpkg-query -W | wc -l) packages" >&2

# The package sources: the same ones, how apt reaches them, the resolver, and the certificates that they are checked by.
cp -a /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
echo "deb $mirror bookworm main" >"$root/etc/apt/sources.list"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
printf '127.0.0.1 localhost\n127.0.0.1 fresh\n' >"$root/etc/hosts"
echo fresh >"$root/etc/hostname"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
  export CA=/etc/ssl/package-sources.crt
  mkdir -p "$root/etc/ssl"
  cp -L /etc/ssl/certs/ca-certificates.crt "$root$CA"
fi
mkdir -p "$root/opt/rust"
git clone -q --no-hardlinks "$here" "$root/root/forebay"

code=0
# In the background, so that a signal is answered at once.
unshare --mount --uts --ipc --pid --fork --kill-child "$0" --inside "$root" "$toolchain" "$@" &
namespaces=$!
wait "$namespaces" || code=$?
namespaces=
echo "==> fresh: exit code $code after $((SECONDS - started)) s, $(du -sh --one-file-system "$root" | cut -f 1) used" >&2
exit "$code"
