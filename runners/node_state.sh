#!/usr/bin/env bash
# What a node says of itself after a step: the kernel's last lines name a killed process or a broken
# GPU. A question that isn't answered is itself an answer.
set -uo pipefail

for question in 'uname -a' 'uptime' 'free -m' 'df -h /tmp' 'nvidia-smi' 'dmesg --ctime'; do
  printf '== %s\n' "$question"
  read -ra words <<<"$question"
  timeout 10 "${words[@]}" 2>&1 | tail -n 60
  printf '== ended with status %s\n' "${PIPESTATUS[0]}"
done
