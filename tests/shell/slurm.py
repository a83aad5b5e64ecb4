"""A real Slurm of one node on this machine, for tests: free ports, a folder of its own, no root.

Stopped by process id. Its node pretends to have eight GPUs and more cores than there are, and its
partitions share them whatever a job asks for, so that two launches can run at once.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from getpass import getuser
from pathlib import Path

from tests import needs
from tests.shell.conftest import free_port
from tests.waiting import until

PARTITIONS = ("batch_1", "batch")  # as the launchers name them
KILL_WAIT_S = 8  # longer than a recipe takes to stop
CONFIGURATION = """\
ClusterName=specgate
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
ReturnToService=2
SlurmdParameters=config_overrides
KillWait={kill_wait}
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=16 Gres=gpu:no_consume:8
"""
PARTITION = "PartitionName={name} Nodes=node1 OverSubscribe=FORCE:8\n"


@dataclass
class Cluster:
    """`environment` makes Slurm's commands talk to it."""

    folder: Path
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        programs = {name: needs.program(name) for name in ("munged", "slurmctld", "slurmd")}
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        self._configure()
        folder = self.folder
        munge = ["--foreground", "--force", "--key-file", folder / "munge.key"]
        for option in ("socket", "pid-file", "log-file", "seed-file"):
            munge += [f"--{option}", folder / f"munge.{option.partition('-')[0]}"]
        munge[munge.index("--socket") + 1] = folder / "munge.sock"
        self._run([programs["munged"], *munge])
        self._wait("munge's socket", lambda: (folder / "munge.sock").exists())
        self._run([programs["slurmctld"], "-D", "-c"])
        self._run([programs["slurmd"], "-D"])
        self._wait("an idle node", lambda: self.ask("sinfo", "-h", "-o", "%t") == "idle")

    def _configure(self) -> None:
        folder = self.folder
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o600)
        for number in range(8):
            (folder / f"gpu{number}").touch()
        (folder / "gres.conf").write_text(f"NodeName=node1 Name=gpu File={folder}/gpu[0-7]\n")
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=socket.gethostname().partition(".")[0],
                user=getuser(),
                folder=folder,
                controller_port=free_port(),
                node_port=free_port(),
                kill_wait=KILL_WAIT_S,
            )
            + "".join(PARTITION.format(name=name) for name in PARTITIONS)
        )

    def _run(self, command: Sequence[object]) -> None:
        words = [str(word) for word in command]
        with (self.folder / f"{Path(words[0]).name}.out").open("wb") as out:
            environment = {**os.environ, **self.environment}
            self.daemons.append(
                subprocess.Popen(
                    words,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )

    def _wait(self, what: str, condition: Callable[[], object]) -> None:
        outputs = self.folder.glob("*.out")
        until(condition, 20, lambda: (what, [path.read_text()[-2000:] for path in outputs]))

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(
            words,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            daemon.wait(15)
