#!/usr/bin/env bash
# Installs the Debian packages that are missing: install_packages.sh build|test|full|cuda|arm64. Needs
# root or sudo only if something is missing. Made for Debian 12, where it is tried; other systems of its
# kind may do. cuda and arm64 are for the presets of that name; nvcc is not in Debian, and cuda says where
# it comes from. arm64 unpacks libraries for arm64 into build/cache/arm64.
set -euo pipefail
cd "$(dirname "$0")/.."

build=(g++ cmake ninja-build curl pkg-config rapidjson-dev libutf8proc-dev libpcre2-dev
       libyaml-cpp-dev libtomlplusplus-dev libre2-dev libssl-dev libcurl4-openssl-dev
       libvalijson-dev libjpeg-dev libpng-dev libwebp-dev libgif-dev zlib1g-dev)
tests=(libgtest-dev ccache python3 python3-venv tmux man-db groff-base mandoc)
full=(ffmpeg bubblewrap chromium chromium-driver zsh fish systemd debootstrap buildah)
arm64=(g++-aarch64-linux-gnu qemu-user)
needs_boost=1.81

case "${1:-}" in
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${tests[@]}") ;;
  full) wanted=("${build[@]}" "${tests[@]}" "${full[@]}") ;;
  cuda) wanted=("${build[@]}" libgtest-dev) ;;
  arm64) wanted=("${build[@]}" "${arm64[@]}") ;;
  *) echo "usage: $0 build|test|full|cuda|arm64" >&2; exit 2 ;;
esac

installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }

missing=()
for package in "${wanted[@]}"; do installed "$package" || missing+=("$package"); done
# Debian 12 has Boost 1.81 beside its default 1.74; later systems have a newer default.
header=/usr/include/boost/version.hpp
have_boost() { [ -f "$header" ] && [ "$(awk '/define BOOST_VERSION/ {print $3}' "$header")" -ge 108100 ]; }
have_boost || missing+=(BOOST)
# Of package prometheus the one program that checks metrics: installed, it would start a service.
fetched=build/cache/promtool
[ "$1" != full ] || command -v promtool >/dev/null || [ -x $fetched/usr/bin/promtool ] ||
  missing+=(PROMTOOL)
if [ "$1" = cuda ] && ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  echo "$0: no nvcc in PATH or in /usr/local/cuda/bin: install CUDA 13.0 or newer, package" \
    "cuda-toolkit-13-0 of https://developer.nvidia.com/cuda-downloads" >&2
  exit 1
fi
# The libraries among the packages of a build, for arm64. valijson is headers that ask for all the
# libraries that it could be used with.
unpack_arm64() {
  [ "$1" = arm64 ] || return 0
  local libraries=(libstdc++6 libgtest-dev) package boost=libboost$needs_boost-dev
  apt-cache show $boost >/dev/null 2>&1 || boost=libboost-dev
  libraries+=("$boost")
  for package in "${build[@]}"; do
    case $package in libvalijson-dev) ;; *-dev) libraries+=("$package") ;; esac
  done
  tools/arm64_sysroot.sh build/cache/arm64 "${libraries[@]}" -- libvalijson-dev
}
[ ${#missing[@]} -gt 0 ] || { unpack_arm64 "$1"; exit; }

if [ "$(id -u)" -eq 0 ]; then as_root=(); elif command -v sudo >/dev/null; then as_root=(sudo); else
  echo "$0: these packages are missing and neither root nor sudo is at hand: ${missing[*]}" >&2
  exit 1
fi
command -v apt-get >/dev/null || { echo "$0: needs apt-get (made for Debian 12)" >&2; exit 1; }

echo "installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
for i in "${!missing[@]}"; do
  [ "${missing[$i]}" = PROMTOOL ] || continue
  unset "missing[$i]"
  mkdir -p $fetched
  (cd $fetched && apt-get download -qq prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb |
   tar -x ./usr/bin/promtool && rm -f prometheus_*.deb)
done
for i in "${!missing[@]}"; do
  [ "${missing[$i]}" = BOOST ] || continue
  if apt-cache show libboost$needs_boost-dev >/dev/null 2>&1; then
    missing[i]=libboost$needs_boost-dev
  else
    missing[i]=libboost-dev
  fi
done
[ ${#missing[@]} -eq 0 ] && exit 0
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
have_boost || { echo "$0: Boost is older than $needs_boost: this system is not supported" >&2; exit 1; }
unpack_arm64 "$1"
