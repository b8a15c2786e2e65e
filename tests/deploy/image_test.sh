#!/usr/bin/env bash
# image_test.sh HADOLINT [BUILD_FOLDER]: lints both Dockerfiles, builds deploy/docker/Dockerfile by buildah
# without a registry, on a base that debootstrap made and that has the official name, and starts the image
# as its own user on a read-only root: it answers, and its health check says so. The first stage installs
# its packages and compiles the program from source; with BUILD_FOLDER it is left out, and what it would
# install comes from there, which is for work on the second stage. The image with CUDA is linted alone.
# Needs root, buildah, debootstrap and the network.
set -euo pipefail
cd "$(dirname "$0")/../.."
"$1" deploy/docker/Dockerfile deploy/docker/Dockerfile.cuda
if [ "$(id -u)" -ne 0 ]; then echo "skipped: a root of Debian needs root"; exit 0; fi
work=$(mktemp -d)
root=$work/root
server=
image() {
  buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"
}
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  for at in proc mnt ''; do umount "$root/$at" 2>/dev/null || true; done
  image umount --all >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "FAIL: $*"; exit 1; }

mkdir -p "$work/base" "$work/source" "$root"
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$work/policy.json"
tests/debian_root.sh "$work/base"
printf 'FROM scratch\nCOPY . /\nCMD ["bash"]\n' >"$work/Base"
image bud --signature-policy "$work/policy.json" --isolation chroot -t docker.io/library/debian:12-slim -f "$work/Base" "$work/base" >"$work/log" 2>&1 ||
  { tail -n 40 "$work/log"; fail "the base was not imported"; }

build() {  # its arguments are the last of buildah's
  image bud --signature-policy "$work/policy.json" --isolation chroot --pull=never --format docker -t nibble "$@" >"$work/log" 2>&1 ||
    { tail -n 40 "$work/log"; fail "the image was not built"; }
}
# The first stage takes from ccache what another build here has compiled with the same compiler.
volumes=()
if command -v ccache >/dev/null; then
  printf 'cache_dir = /ccache\nbase_dir = /\nhash_dir = false\n' >"$work/ccache.conf"
  volumes=(-v "$work/ccache.conf:/etc/ccache.conf:ro" -v "$(ccache --get-config cache_dir):/ccache")
  for file in "$(command -v ccache)" $(ldd "$(command -v ccache)" | awk '/hiredis/ {print $3}'); do
    volumes+=(-v "$file:$file:ro")
  done
fi
if [ $# -lt 2 ]; then
  # Nothing that a build here has left may be used: the files of the repository alone.
  git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$work/source"
  build "${volumes[@]}" -f "$work/source/deploy/docker/Dockerfile" "$work/source"
  echo "both stages are built from source"
else
  cmake --install "$2" --prefix "$work/source/nibble" --strip >/dev/null
  # The text from the last FROM on, with the folder of the context in place of the other stage.
  awk '/^FROM/ {text = ""} {text = text $0 "\n"} END {printf "%s", text}' deploy/docker/Dockerfile |
    sed 's|^COPY --from=build /opt/nibble |COPY nibble |' >"$work/Dockerfile"
  grep -q '^COPY nibble /opt/nibble$' "$work/Dockerfile" || fail "the second stage copies something else"
  build -f "$work/Dockerfile" "$work/source"
fi

fact() { image inspect --type image --format "{{$1}}" nibble; }
user=$(fact .Docker.Config.User)
[[ $user =~ ^[1-9][0-9]*:[1-9][0-9]*$ ]] || fail "the user is \"$user\", expected numbers that are not 0"
[ "$(fact .Docker.Config.Entrypoint)" = "[nibble serve]" ] || fail "entry point $(fact .Docker.Config.Entrypoint)"
mapfile -t environment < <(image inspect --type image nibble |
  python3 -c 'import json, sys; print("\n".join(json.load(sys.stdin)["Docker"]["config"]["Env"]))')
healthy=$(image inspect --type image nibble | python3 -c '
import json, sys
test = json.load(sys.stdin)["Docker"]["config"]["Healthcheck"]["Test"]
assert test[:3] == ["CMD", "bash", "-c"], test
print(test[3])')
du -sh --exclude=proc "$(image mount "$(image from --signature-policy "$work/policy.json" --pull=never nibble)")" | sed 's/\t.*/ of files in the image/'

mount --bind "$(image mount | awk '{print $2}')" "$root"
mount -o remount,ro,bind "$root"
mount -t proc proc "$root/proc"
mount --bind pebble/model "$root/mnt"
mount -o remount,ro,bind "$root/mnt"
inside() { exec chroot --userspec="$user" "$root" /usr/bin/env -i "${environment[@]}" "$@"; }
(inside bash -c 'touch /tmp/x' 2>/dev/null) && fail "the root is not read-only"
inside nibble serve /mnt --port 0 2>"$work/serve.log" &
server=$!
url=
for _ in $(seq 600); do
  url=$(sed -n 's/^ready: \(http[^ ]*\) .*/\1/p' "$work/serve.log")
  [ -z "$url" ] || break
  kill -0 "$server" 2>/dev/null || { cat "$work/serve.log"; fail "the server ended"; }
  sleep 0.1
done
port=$(sed 's/.*:\([0-9]*\).*/\1/' <<<"$url")
[[ $url == http://0.0.0.0:* ]] || fail "it listens on $url"
text=$(curl -sS "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' \
  -d '{"prompt":"Compute 2 + 3.","max_tokens":4,"temperature":0}')
[[ $text == *'"finish_reason":"'* ]] || fail "the server answered $text"
check=${healthy//127.0.0.1\/8000/127.0.0.1\/$port}
(inside bash -c "$check") || fail "the health check refuses a server that answers: $check"
kill -TERM "$server"
wait "$server" || fail "the server ended with $?: $(cat "$work/serve.log")"
server=
(inside bash -c "$check" 2>/dev/null) && fail "the health check takes a server that has ended"
echo "built, started as $user on a read-only root, answered; the health check tells a server that has ended"
