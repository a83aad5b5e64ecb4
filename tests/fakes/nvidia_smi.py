"""A stand-in for nvidia-smi: GPUs, their power and their processes, as told.

FAKE_NVIDIA_SMI is a JSON object; without it there is no driver.
  gpus: how many               power: watts, a number or what the driver says instead of one
  processes: [[pid, gpu number, name], …]
  free: MiB of 80000, of every GPU
  throttle: bits               lines: end after so many samples        first_s: start that late
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running."
)


def main(argv: list[str]) -> int:
    text = os.environ.get("FAKE_NVIDIA_SMI")
    if text is None:
        print(NO_DRIVER)
        return 9
    told = json.loads(text)
    uuids = [f"GPU-{number}" for number in range(told.get("gpus", 1))]
    options = " ".join(argv)
    if "--query-compute-apps" in options:
        for pid, number, name in told.get("processes", []):
            print(f"{pid}, {uuids[number]}, {name}")
        return 0
    if "memory.free" in options:
        for number, uuid in enumerate(uuids):
            print(f"{number}, {uuid}, {told.get('free', 79000)}, 80000")
        return 0
    loop = re.search(r"--loop-ms=(\d+)", options)
    if not loop:
        print("\n".join(uuids))
        return 0
    time.sleep(told.get("first_s", 0))
    lines = told.get("lines", 10**6)
    while lines > 0:
        for uuid in uuids:
            power, throttle = told.get("power", 400.0), told.get("throttle", 0)
            print(f"{uuid}, {power}, 1000, 1900, 2600, 90, 60, 0x{throttle:016x}", flush=True)
        lines -= 1
        time.sleep(int(loop[1]) / 1000)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
