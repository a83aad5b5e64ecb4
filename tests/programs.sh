#!/usr/bin/env bash
# Install what tests want of the system, Slurm and a browser; without them they are skipped.
set -euo pipefail
cd "$(dirname "$0")"

mapfile -t needed <apt-packages.txt
needed+=(chromium)
if ! dpkg-query --show "${needed[@]}" >/dev/null; then
  as_root=()
  ((EUID == 0)) || as_root=(sudo)
  "${as_root[@]}" apt-get update --quiet
  "${as_root[@]}" apt-get install --quiet --yes --no-install-recommends "${needed[@]}"
fi
