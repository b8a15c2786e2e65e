#!/usr/bin/env bash
# install_test.sh BUILD_FOLDER [SYSROOT]: the installed folder is whole and runs where nothing but
# glibc >= 2.36 is. Installs to a temporary folder, checks what is in it and the glibc symbols asked for,
# moves the folder, and runs the program in a root that holds glibc and this folder alone (needs root;
# else by checking ldd). With the sysroot of a cross build for arm64 QEMU runs it, with the same root.
set -euo pipefail
build=$1
sysroot=${2:-}
books=()
objdump=objdump
if [ -n "$sysroot" ]; then
  books=(--admindir="$sysroot/var/lib/dpkg")
  objdump=aarch64-linux-gnu-objdump
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >/dev/null
mkdir "$work/root"
mv "$work/first" "$work/root/nibble-folder"
folder=$work/root/nibble-folder

for file in bin/nibble share/man/man1/nibble.1 share/bash-completion/completions/nibble \
    share/zsh/vendor-completions/_nibble share/fish/vendor_completions.d/nibble.fish \
    share/doc/nibble/LICENSE share/doc/nibble/NOTICE share/nibble/recipes/mixed.yaml \
    share/doc/nibble/licences/xgrammar/LICENSE share/doc/nibble/examples/nibble.service; do
  [ -s "$folder/$file" ] || { echo "missing: $file"; exit 1; }
done
for library in "$folder"/lib/nibble/*.so*; do
  package=  # the packages know a library by its own name, or by a link from before /lib was /usr/lib
  place=/lib/x86_64-linux-gnu/${library##*/}
  for name in "$(realpath "$place")" "$place" "*/${library##*/}"; do
    [ -n "$package" ] ||
      package=$(dpkg-query "${books[@]}" -S "$name" 2>/dev/null | head -n 1 | cut -d: -f1 || true)
  done
  grep -q "  $package, of Debian's source" "$folder/share/doc/nibble/NOTICE" ||
    { echo "NOTICE does not name $package, whose ${library##*/} is carried"; exit 1; }
  [ -s "$folder/share/doc/nibble/licences/$package" ] || { echo "no licence of $package"; exit 1; }
done

newest=$($objdump -T "$folder/bin/nibble" "$folder"/lib/nibble/*.so* 2>/dev/null |
         grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
echo "newest glibc symbol: $newest"
[ "$(printf '%s\nGLIBC_2.36\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.36 ]

# An exception of a carried library passes through its frames and the program's: it ends the program
# if a second unwinder is linked into that.
$objdump -T "$folder/bin/nibble" | grep 'UND.* _Unwind_Resume$' >/dev/null ||
  { echo "the program has its own unwinder beside the carried libgcc_s.so.1"; exit 1; }

if [ -n "$sysroot" ]; then
  for library in "$sysroot"/lib/aarch64-linux-gnu/lib{c,m,dl,rt,pthread,resolv,util}.so.* \
      "$sysroot"/lib/ld-linux-aarch64.so.1; do
    install -D "$library" "$work/root/${library#"$sysroot"/}"
  done
  qemu-aarch64 -L "$work/root" "$folder/bin/nibble" --version
  du -sh "$folder" | cut -f1
  exit
fi
outside=$(ldd "$folder/bin/nibble" | grep '=> /' | grep -v "$folder" |
          grep -vE 'lib(c|m|dl|rt|pthread|resolv|util)\.so' || true)
if [ -n "$outside" ]; then echo "not in the folder: $outside"; exit 1; fi

if [ "$(id -u)" -eq 0 ]; then
  ldd "$folder/bin/nibble" "$folder"/lib/nibble/*.so* 2>/dev/null |
    grep -oE '/[^ ]+lib(c|m|dl|rt|pthread|resolv|util)\.so[^ ]*|/[^ ]*ld-linux[^ ]*' |
    sort -u | while read -r library; do install -D "$library" "$work/root$library"; done
  mkdir "$work/root/proc"
  mount -t proc proc "$work/root/proc"  # the loader reads $ORIGIN from /proc/self/exe
  trap 'umount "$work/root/proc"; rm -rf "$work"' EXIT
  chroot "$work/root" /nibble-folder/bin/nibble --version
else
  "$folder/bin/nibble" --version
fi
du -sh "$folder" | cut -f1
