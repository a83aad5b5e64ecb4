"""A child's output, to ours and to a file of the results."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

DRAIN_S = 1.0  # after the child's end: somebody else may hold its pipe open


class Copier:
    """Copies in a thread of its own while the block runs."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child = child
        self._log = log
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(DRAIN_S)

    def _copy(self) -> None:
        pipe = self._child.stdout
        assert pipe is not None
        sinks = [sys.stdout.buffer]
        try:
            sinks.append(self._log.open("wb"))
        except OSError as error:
            print(f"launch: {self._log}: {error.strerror}", file=sys.stderr)
        while block := pipe.read1(1 << 16):  # type: ignore[attr-defined]  # a BufferedReader
            for sink in list(sinks):
                try:
                    sink.write(block)
                    sink.flush()
                except OSError as error:  # a full disk must not stop the child
                    sinks.remove(sink)
                    print(f"launch: its output is lost: {error.strerror}", file=sys.stderr)
