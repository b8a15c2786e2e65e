#!/usr/bin/env bash
# packages_test.sh BUILD_FOLDER: the packages of a build do in a root of Debian 12 what a user does: install
# the .deb, start, quantize, serve an answer as another user, upgrade, remove, purge; unpack the .tgz. The
# service goes through systemd-analyze. Needs root, and debootstrap (tools/install_packages.sh full).
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ]; then echo "skipped: a root of Debian needs root"; exit 0; fi
work=$(mktemp -d)
root=$work/root
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  umount "$root/proc" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "FAIL: $*"; exit 1; }

(cd "$build" && cpack -B "$work/packages" >"$work/cpack.log" 2>&1) || { cat "$work/cpack.log"; exit 1; }
deb=$(ls "$work"/packages/*.deb)
tgz=$(ls "$work"/packages/*.tar.gz)
name=$(dpkg-deb -f "$deb" Package)
du -h "$deb" "$tgz"

needed=$(dpkg-deb -f "$deb" Depends)
bound=$(sed -n 's/^libc6 (>= \([0-9.]*\))$/\1/p' <<<"$needed")
[ -n "$bound" ] || fail "the package depends on \"$needed\", not on libc6 alone"
dpkg-deb -x "$deb" "$work/files"
newest=$(objdump -T "$work"/files/usr/bin/nibble "$work"/files/usr/lib/nibble/*.so* 2>/dev/null |
         sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "$newest" "$bound" | sort -V | tail -n 1)" = "$bound" ] ||
  fail "asks for glibc $newest, and the package says $bound"
echo "newest glibc symbol: $newest; the package asks for $bound"

mkdir -p "$root"
tests/debian_root.sh "$root"
mount -t proc proc "$root/proc"  # the loader reads $ORIGIN from /proc/self/exe
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
find "$root" -xdev -not -path "$root/proc/*" | sort >"$work/before"
cp "$deb" "$root/tmp/nibble.deb"
inside dpkg -i /tmp/nibble.deb >/dev/null
rm "$root/tmp/nibble.deb"
inside nibble --version
[ "$(inside dpkg -V "$name")" = "" ] || fail "dpkg -V finds changed files"

# The service, as systemd reads it among its own units and beside the files that the package has.
unit=usr/lib/systemd/system/nibble.service
mkdir -p "$work/files/usr/lib/systemd"
cp -rn /usr/lib/systemd/system "$work/files/usr/lib/systemd/"
# The manual page is in that folder, where `man` does not look.
said=$(systemd-analyze --root="$work/files" --man=no verify nibble.service 2>&1) ||
  fail "systemd-analyze verify: $said"
[ -z "$said" ] || fail "systemd-analyze verify: $said"
exposure=$(systemd-analyze --offline=yes --threshold=20 security "$work/files/$unit" | tail -n 1) ||
  fail "systemd-analyze security: $exposure"
echo "$exposure"

# Work as a user without rights, who may write to one folder alone.
cp -r pebble/model "$root/srv/pebble"
mkdir "$root/srv/out"
chown -R 65534:65534 "$root/srv/out"
nobody() { chroot --userspec=65534:65534 "$root" /usr/bin/env -i PATH=/usr/bin HOME=/nonexistent "$@"; }
nobody nibble quantize /srv/pebble /srv/out/pebble >"$work/quantize.log" 2>&1 ||
  { cat "$work/quantize.log"; exit 1; }
sed -i 's|^# model = .*|model = "/srv/out/pebble"|; s|^port = .*|port = 0|' "$root/etc/nibble/nibble.toml"
answer() {  # starts the server with the settings of the package, asks, stops it
  : >"$work/serve.log"  # there before the server's shell opens it
  # No function here: the signal has to reach the server, not a shell around it.
  chroot --userspec=65534:65534 "$root" /usr/bin/env -i PATH=/usr/bin HOME=/nonexistent \
    nibble serve --config /etc/nibble/nibble.toml 2>"$work/serve.log" &
  server=$!
  local url='' text
  for _ in $(seq 300); do
    url=$(sed -n 's/^ready: \(http[^ ]*\) .*/\1/p' "$work/serve.log")
    [ -z "$url" ] || break
    kill -0 "$server" 2>/dev/null || { cat "$work/serve.log"; exit 1; }
    sleep 0.1
  done
  text=$(curl -sS "$url/completions" -H 'Content-Type: application/json' \
    -d '{"model":"pebble","prompt":"Compute 2 + 3.","max_tokens":4,"temperature":0}')
  [[ $text == *'"finish_reason":"'* ]] || fail "the server answered $text"
  kill -TERM "$server"
  wait "$server" || fail "the server ended with $?: $(cat "$work/serve.log")"
  server=
}
answer
echo "installed, started, quantized, served an answer"

# An upgrade keeps the settings that were changed.
dpkg-deb -R "$deb" "$work/newer"
sed -i 's/^Version: .*/&+1/' "$work/newer/DEBIAN/control"
dpkg-deb -b -Znone "$work/newer" "$root/tmp/newer.deb" >/dev/null
inside dpkg -i /tmp/newer.deb >/dev/null
rm "$root/tmp/newer.deb"
inside dpkg-query -W -f '${Version}\n' "$name" | grep -q '+1$' || fail "not upgraded"
grep -q '^model = "/srv/out/pebble"$' "$root/etc/nibble/nibble.toml" || fail "settings lost"
answer
echo "upgraded, settings kept"

inside dpkg -r "$name" >/dev/null
[ ! -e "$root/usr/bin/nibble" ] || fail "removed, and the program is still there"
[ -e "$root/etc/nibble/nibble.toml" ] || fail "remove takes the settings too"
inside dpkg -P "$name" >/dev/null
rm -rf "$root/srv/pebble" "$root/srv/out"
find "$root" -xdev -not -path "$root/proc/*" | sort >"$work/after"
left=$(comm -13 "$work/before" "$work/after" | grep -vE '/var/(lib/dpkg|log|cache)/' || true)
[ -z "$left" ] || fail "purge leaves $left"
echo "removed, purged, nothing left"

tar -xzf "$tgz" -C "$root/srv"
inside /srv/"$(basename "$tgz" .tar.gz)"/bin/nibble --version >/dev/null || fail "the .tgz does not start"
echo "the .tgz starts where it is unpacked"
