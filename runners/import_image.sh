#!/usr/bin/env bash
# On a node: import_image.sh URI FILE. One import at a time; whoever waited takes what he finds, if
# it is whole. A file appears under its name only once it was read to its end.
set -euo pipefail

uri=$1 file=$2
mkdir -p "${file%/*}"
exec {lock}>"$file.lock"
flock --timeout 3600 "$lock"
whole() { # <file>
  [[ -f $1 ]] && unsquashfs -l "$1" >/dev/null
}
# shellcheck disable=SC2310 # a predicate
if whole "$file"; then
  printf 'image: %s is there\n' "$file"
  exit 0
fi
rm -rf -- "$file" "$file".part.*
part=$file.part.$$
trap 'rm -f -- "$part"' EXIT
enroot import --output "$part" "$uri"
whole "$part"
mv -- "$part" "$file"
printf 'image: imported %s\n' "$file"
