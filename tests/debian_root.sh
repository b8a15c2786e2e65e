#!/usr/bin/env bash
# debian_root.sh FOLDER: a root of Debian 12 with its essential packages alone, copied to FOLDER. It is
# made once by debootstrap, from the mirror that apt uses here, and kept in build/cache. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
kept=$PWD/build/cache/debian-12-root
mirror=$(apt-cache policy | sed -n 's/^ *[0-9]* \(http[^ ]*\) bookworm\/main .*/\1/p' | head -n 1)
if [ ! -f "$kept.made" ]; then
  rm -rf "$kept"
  mkdir -p build/cache
  debootstrap --variant=minbase bookworm "$kept" "${mirror:-http://deb.debian.org/debian}" >&2
  touch "$kept.made"
fi
cp -a "$kept/." "$1"
