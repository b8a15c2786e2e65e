#!/usr/bin/env bash
# install_test.sh BUILD_FOLDER: the installed folder must run where nothing but glibc >= 2.36 is.
# Installs to a temporary folder, checks the glibc symbols asked for, moves the folder, and runs the
# program in a root that holds glibc and this folder alone (needs root; else by checking ldd).
set -euo pipefail
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >/dev/null
mkdir "$work/root"
mv "$work/first" "$work/root/nibble-folder"
folder=$work/root/nibble-folder

newest=$(objdump -T "$folder/nibble" "$folder"/lib/*.so* 2>/dev/null |
         grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
echo "newest glibc symbol: $newest"
[ "$(printf '%s\nGLIBC_2.36\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.36 ]

outside=$(ldd "$folder/nibble" | grep '=> /' | grep -v "$folder" |
          grep -vE 'lib(c|m|dl|rt|pthread|resolv|util)\.so' || true)
if [ -n "$outside" ]; then echo "not in the folder: $outside"; exit 1; fi

if [ "$(id -u)" -eq 0 ]; then
  ldd "$folder/nibble" "$folder"/lib/*.so* 2>/dev/null | grep -oE '/[^ ]+lib(c|m|dl|rt|pthread|resolv|util)\.so[^ ]*|/[^ ]*ld-linux[^ ]*' |
    sort -u | while read -r library; do install -D "$library" "$work/root$library"; done
  mkdir "$work/root/proc"
  mount -t proc proc "$work/root/proc"  # the loader reads $ORIGIN from /proc/self/exe
  trap 'umount "$work/root/proc"; rm -rf "$work"' EXIT
  chroot "$work/root" /nibble-folder/nibble --version
else
  "$folder/nibble" --version
fi
du -sh "$folder" | cut -f1
