#!/usr/bin/env bash
# install-c.sh PREFIX BUILT: installs libforebay, which cargo has built in the directory BUILT, below PREFIX (and DESTDIR, if that is
# set): the library with its soname, the static one, the header, the Fortran module's source, and forebay.pc.
set -euo pipefail
[ $# -eq 2 ] || {
  echo "usage: install-c.sh PREFIX BUILT" >&2
  exit 2
}
prefix=$1 built=$2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../crates/capi" && pwd)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$source/../../Cargo.toml" | head -n 1)
to=${DESTDIR:-}$prefix
install -d "$to/lib/pkgconfig" "$to/include"
install -m 755 "$built/libforebay.so" "$to/lib/libforebay.so.$version"
ln -sfn "libforebay.so.$version" "$to/lib/libforebay.so.0"
ln -sfn libforebay.so.0 "$to/lib/libforebay.so"
install -m 644 "$built/libforebay.a" "$to/lib/libforebay.a"
install -m 644 "$source/include/forebay.h" "$source/fortran/forebay.f90" "$to/include/"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$source/forebay.pc.in" >"$to/lib/pkgconfig/forebay.pc"
chmod 644 "$to/lib/pkgconfig/forebay.pc"
