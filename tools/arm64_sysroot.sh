#!/usr/bin/env bash
# arm64_sysroot.sh FOLDER PACKAGE... [-- PACKAGE...]: unpacks these arm64 packages and all that they
# depend on into FOLDER, for cross builds; those after -- without what they depend on. apt keeps the
# books of the folder itself, so neither packages nor architectures of this system change: development
# packages of two architectures often cannot be installed side by side. No script of a package runs.
# `dpkg-query --admindir=FOLDER/var/lib/dpkg` knows which file is of which package. A folder that is
# complete for the same packages is left alone; to renew them, delete it.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 FOLDER PACKAGE... [-- PACKAGE...]" >&2; exit 2; }

script=$(realpath "$0")
folder=$1
shift
stamp=complete-$( (cat "$script"; printf '%s\n' "$@") | sha256sum | cut -c1-16)
[ -f "$folder/.apt/$stamp" ] && exit 0
for tool in apt-get dpkg-deb; do
  command -v $tool >/dev/null || { echo "$script: needs $tool (made for Debian 12)" >&2; exit 1; }
done

with=()
alone=()
into=with
for word in "$@"; do
  if [ "$word" = -- ]; then into=alone; else declare -n list=$into && list+=("$word"); fi
done

echo "unpacking arm64 packages into $folder: ${with[*]} ${alone[*]}" >&2
rm -rf "$folder"
mkdir -p "$folder"/.apt/{lists,archives}/partial "$folder"/usr/{bin,sbin,lib} \
  "$folder"/var/lib/dpkg/{info,updates}
cd "$folder"
for name in bin sbin lib; do ln -s usr/$name $name; done
: >.apt/status
cat >.apt/conf <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "";
Dir::State "$PWD/.apt";
Dir::State::status "$PWD/.apt/status";
Dir::Cache "$PWD/.apt";
CONF
export APT_CONFIG=$PWD/.apt/conf
apt-get update -qq
apt-get install -y -qq --download-only --no-install-recommends "${with[@]}" >/dev/null
[ ${#alone[@]} -eq 0 ] || (cd .apt/archives && apt-get download -qq "${alone[@]}")
books=var/lib/dpkg
for package in .apt/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner
  name=$(dpkg-deb --field "$package" Package)
  [ "$(dpkg-deb --field "$package" Multi-Arch)" != same ] || name=$name:arm64
  dpkg-deb --fsys-tarfile "$package" | tar -t | sed 's|^\./|/|; s|\(.\)/$|\1|; s|^/$|/.|' \
    >"$books/info/$name.list"
  { dpkg-deb --field "$package"; printf 'Status: install ok installed\n\n'; } >>$books/status
done
printf '1\n' >$books/info/format
# Links of development packages are absolute, which would lead out of the folder.
find . -type l -lname '/*' -not -path './.apt/*' | while read -r link; do
  ln -sfn "$(realpath -ms --relative-to="$(dirname "$link")" ".$(readlink "$link")")" "$link"
done
rm -rf .apt/archives .apt/lists .apt/*.bin
touch ".apt/$stamp"
