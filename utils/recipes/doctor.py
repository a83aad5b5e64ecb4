"""Look at a node before a recipe holds its GPUs: one line per finding, with the remedy.

The recipe's environment says what is needed. Nothing is started, written or downloaded.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from utils import errors, models
from utils.errors import NotMeasured, UsageError
from utils.evals.prompt_files import PROXY_CONFIG, prepared_path, read_prompts
from utils.recipes import model_folder, settings, surroundings
from utils.recipes.settings import Settings
from utils.serving import launch, nvidia_smi

GIB = 1 << 30
RESULTS_BYTES = 2 * GIB  # logs, samples and raw parts of a long sweep
# Beside the weights: the engine's processes, lm-eval, and page cache to load through.
SPARE_BYTES = 4 * GIB
SHARED_BYTES = GIB  # of /dev/shm, once ranks talk through it; Docker gives 64 MiB
OPEN_FILES = 1024  # beside one per request in flight
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
OK, PROBLEM, UNKNOWN = "ok", "problem", "unknown"
STATUS = {OK: errors.PASS, UNKNOWN: errors.NOT_MEASURED, PROBLEM: errors.USAGE}


@dataclass(frozen=True)
class Finding:
    """What one look came to; text ends with the remedy unless all is well."""

    state: str
    check: str
    text: str

    def __str__(self) -> str:
        return f"{self.state:<8} {self.check:<12} {self.text}"


Look = Callable[[Settings], Iterator[Finding]]


def command(recipe: Path, lenient: bool) -> int:
    """Print every finding; 2 with a problem, else 3 where something couldn't be looked at.

    lenient: that is no obstacle. So 3 is left to a crash, after which nobody should go on.
    """
    found = list(examine(settings.load(recipe, os.environ)))
    print("\n".join(map(str, found)))
    states = {finding.state for finding in found} - ({UNKNOWN} if lenient else set())
    return STATUS[next((state for state in (PROBLEM, UNKNOWN) if state in states), OK)]


def examine(asked: Settings) -> Iterator[Finding]:
    for look in LOOKS:
        yield from look(asked)


def port(asked: Settings) -> Iterator[Finding]:
    try:
        launch.check_port(asked["PORT"])
    except UsageError as error:
        yield Finding(PROBLEM, "port", str(error))
    else:
        yield Finding(OK, "port", f"{asked['PORT']} is free")


def open_files(asked: Settings) -> Iterator[Finding]:
    most = max(*asked["CONC"], *asked["EVAL_CONCURRENT_REQUESTS"])
    wanted, (soft, _) = most + OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= wanted
    text = f"{soft} files may be open, {wanted} are needed for {most} requests at once"
    yield Finding(
        OK if enough else PROBLEM, "ulimit", text + ("" if enough else ": ulimit -n 65536")
    )


def disk(asked: Settings) -> Iterator[Finding]:
    folder = Path(asked["RESULT_DIR"] or "/tmp").absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    yield _room("disk", f"{folder} has", free, RESULTS_BYTES, "free some, or set RESULT_DIR")
    if not os.access(folder, os.W_OK):
        yield Finding(PROBLEM, "disk", f"{folder} can't be written: set RESULT_DIR")


def memory(asked: Settings) -> Iterator[Finding]:
    sizes = model_folder.sizes(Path(asked["MODEL_PATH"]))
    # A CPU holds the weights; for GPUs each rank loads one file at a time.
    weights = sum(sizes) if asked.name.hw == "cpu" else max(sizes, default=0) * asked["TP"]
    free = _available()
    if free is None:
        yield Finding(UNKNOWN, "memory", "/proc/meminfo doesn't say what is available")
    else:
        remedy = "end other processes, or take a larger node"
        yield _room("memory", "available:", free, weights + SPARE_BYTES, remedy)


def _available() -> int | None:
    found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    return int(found[1]) * 1024 if found else None


def shared_memory(asked: Settings) -> Iterator[Finding]:
    if ranks(asked) == 1:
        return
    free = shutil.disk_usage("/dev/shm").free
    remedy = "start the container with --ipc=host or --shm-size"
    yield _room("/dev/shm", "/dev/shm has", free, SHARED_BYTES, remedy)


def _room(check: str, what: str, free: int, wanted: int, remedy: str) -> Finding:
    text = f"{what} {free / GIB:.1f} GiB, {wanted / GIB:.1f} are needed"
    enough = free >= wanted
    return Finding(OK if enough else PROBLEM, check, text if enough else f"{text}: {remedy}")


def ranks(asked: Settings) -> int:
    """GPUs that the topology takes."""
    return int(asked["TP"] if asked["DP_ATTENTION"] else asked["TP"] * asked["DP_SIZE"])


def gpus(asked: Settings) -> Iterator[Finding]:
    if asked.name.hw == "cpu":
        return
    program = nvidia_smi.program()
    if program is None:
        yield Finding(UNKNOWN, "gpu", "there is no nvidia-smi on the PATH: run this on the node")
        return
    try:
        there, busy = len(nvidia_smi.uuids(program)), nvidia_smi.processes(program)
    except NotMeasured as error:
        yield Finding(UNKNOWN, "gpu", f"{error}: mend the driver, or take another node")
        return
    wanted = ranks(asked)
    text = f"{there} GPUs, the topology takes {wanted}"
    if there < wanted:
        yield Finding(PROBLEM, "gpu", f"{text}: lower TP, or take a larger node")
    else:
        yield Finding(OK, "gpu", text)
    for process in busy:
        yield Finding(PROBLEM, "gpu", f"{process}: end it, its work would be measured with ours")


def image(asked: Settings) -> Iterator[Finding]:
    if asked.name.hw == "cpu":
        return
    given = os.environ.get("IMAGE")
    if not given:
        yield Finding(UNKNOWN, "image", "IMAGE says nothing: set it to the image with its digest")
    elif not DIGEST.search(given):
        text = f"{given} has no digest, and tags move: set IMAGE to name@sha256:…"
        yield Finding(PROBLEM, "image", text)
    else:
        yield Finding(OK, "image", given)


def model(asked: Settings) -> Iterator[Finding]:
    folder = Path(asked["MODEL_PATH"])
    try:
        surroundings.check_weights(str(folder))
    except UsageError as error:
        yield Finding(PROBLEM, "model", str(error))
        return
    if not folder.is_dir():
        text = f"MODEL_PATH {folder} is no folder here, so the engine would download it"
        if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
            yield Finding(PROBLEM, "model", f"{text}, which HF_HUB_OFFLINE forbids: name a folder")
        else:  # whether it may, only the hub knows
            yield Finding(UNKNOWN, "model", f"{text}: download it now; {_token()}")
        return
    broken = list(model_folder.problems(folder))
    for text in broken:
        yield Finding(PROBLEM, "model", text)
    if not broken:
        total = sum(model_folder.sizes(folder)) / GIB
        yield Finding(OK, "model", f"{folder} is whole, {total:.1f} GiB")


def data_set(asked: Settings) -> Iterator[Finding]:
    wanted = models.load(asked["MODEL_PREFIX"]).prompt_set
    path = prepared_path(Path(asked["SPEEDBENCH_DIR"]), wanted)
    try:
        read_prompts(path, wanted.category, wanted.prompts)
    except UsageError as error:
        access = "" if path.exists() or wanted.config == PROXY_CONFIG else f"; {_token()}"
        yield Finding(PROBLEM, "data set", f"{error}{access}")
    else:
        yield Finding(OK, "data set", f"{path}, {wanted.prompts} prompts")


def _token() -> str:
    if has_token(os.environ):
        return "there is a token"
    return "there is no token, set HF_TOKEN where it is not public"


def has_token(environ: Mapping[str, str]) -> bool:
    home = Path(environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return any(environ.get(name) for name in TOKENS) or (home / "token").is_file()


LOOKS: tuple[Look, ...] = (
    port,
    open_files,
    disk,
    memory,
    shared_memory,
    gpus,
    image,
    model,
    data_set,
)
