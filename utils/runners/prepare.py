"""Before anything is allocated: check what a launch was asked for, make its folder and run.env."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utils import errors, models, records
from utils.errors import UsageError
from utils.recipes import names, settings
from utils.recipes.settings import Settings
from utils.runners import images

ROOT = Path(__file__).resolve().parents[2]
MODEL_PATHS = ROOT / "runners" / "model_paths.yaml"
NO_CONTAINER = "none"
CONTAINERS = ("pyxis", "docker", NO_CONTAINER)
ANY_HARDWARE = "cpu"  # recipes that run on every node
DRY_RUN_DIR = "/tmp/specgate-launch.DRY_RUN"
# Beside settings.VARIABLES, what may leave the launcher: all else of its environment stays behind.
FURTHER = ("IMAGE", "PLAN_FILE", "ENGINE_PYTHON", "HF_HUB_CACHE")
SECRETS = ("HF_TOKEN",)


@dataclass(frozen=True)
class Cluster:
    """What a launcher says of its cluster; image_dir and runs_dir are folders of its nodes."""

    name: str
    hw: str
    gpus_per_node: int
    container: str
    image_dir: str
    runs_dir: str


def environment_of(recipe: Path, cluster: Cluster, given: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment with the model's id and the place of its weights filled in.

    Raises:
        UsageError: the recipe is for other hardware, or nobody says where the weights are.
    """
    name = names.parse(recipe.name)
    if name.hw not in (cluster.hw, ANY_HARDWARE):
        raise UsageError(f"{recipe.name} is for {name.hw}, {cluster.name} has {cluster.hw}")
    found = {"MODEL": models.load(name.model).checkpoint(name.precision), **given}
    if not found.get("MODEL_PATH"):
        found["MODEL_PATH"] = _staged(cluster.name, f"{name.model}_{name.precision}")
    return found


def _staged(cluster: str, model: str) -> str:
    rows = records.read_yaml(MODEL_PATHS, "model_paths")["clusters"].get(cluster, {})
    if model not in rows:
        raise UsageError(
            f"{cluster} has no weights of {model} (there are {', '.join(rows) or 'none'}): stage"
            f" them and add a row to runners/{MODEL_PATHS.name}, or set MODEL_PATH"
        )
    return str(rows[model])


def check_gpus(asked: Settings, cluster: Cluster) -> int:
    """GPUs that the topology takes, of one node unless prefill and decode are apart.

    Raises:
        UsageError: a node has fewer.
    """
    gpus = int(asked["TP"]) * int(asked["DP_SIZE"])
    if gpus > cluster.gpus_per_node and not asked.name.disaggregated:
        raise UsageError(
            f"TP {asked['TP']} times DP_SIZE {asked['DP_SIZE']} takes {gpus} GPUs, a node of"
            f" {cluster.name} has {cluster.gpus_per_node}"
        )
    return gpus


def handed_over(asked: Settings, given: Mapping[str, str], python: str) -> dict[str, str]:
    """run.env: the checked settings and what else is allowed, secrets included."""
    further = {key: given[key] for key in (*FURTHER, *SECRETS) if given.get(key)}
    return asked.exports() | further | {"HARNESS_PYTHON": python}


def write_run_env(path: Path, environment: Mapping[str, str]) -> None:
    """For `source`; readable by its owner alone, because a token may be in it."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{key}={shlex.quote(text)}\n" for key, text in environment.items())


def readable(environment: Mapping[str, str]) -> list[str]:
    """What the step reads beside its run's own folders."""
    named = ("MODEL_PATH", "SPEEDBENCH_DIR", "HF_HUB_CACHE", "PLAN_FILE")
    given = [environment.get(key, "") for key in named]
    return list(dict.fromkeys([str(ROOT), *(path for path in given if path.startswith("/"))]))


def mounts(environment: Mapping[str, str], run_dir: str) -> list[str]:
    """SOURCE:TARGET[:ro], the same path on both sides; only the two folders of the run are ours."""
    writable = (run_dir, environment["RESULT_DIR"])
    found = [f"{path}:{path}:ro" for path in readable(environment)]
    return found + [f"{path}:{path}" for path in writable]


def check_paths(paths: Iterable[str]) -> None:
    """That no path has what takes the words of a list of mounts apart.

    Raises:
        UsageError: one has.
    """
    for path in paths:
        if re.search(r"[,:\s]", path):
            raise UsageError(f"{path!r} can't be mounted: no comma, colon or blank, please")


def check_runs_dir(folder: str) -> None:
    """That no folder would be made under /workspace.

    Raises:
        UsageError: one would.
    """
    if Path(folder).is_relative_to("/workspace") and not Path(folder).is_dir():
        raise UsageError(f"RUNS_DIR {folder} would be a new folder under /workspace")


def prepare(recipe: Path, cluster: Cluster, given: Mapping[str, str]) -> list[str]:
    """Words for the launcher: NAME=value, setting=NAME=value, mount=SOURCE:TARGET.

    Raises:
        UsageError: anything that the launch was asked for can't be.
    """
    image = given.get("IMAGE", "")
    if cluster.container not in CONTAINERS:
        raise UsageError(
            f"CONTAINER is {cluster.container!r}: {models.near(cluster.container, CONTAINERS)}"
        )
    check_runs_dir(cluster.runs_dir)
    if not image and cluster.container != NO_CONTAINER:
        raise UsageError(f"set IMAGE, the container image that {cluster.container} runs")
    environment = environment_of(recipe, cluster, given)
    asked = settings.load(recipe, environment)
    gpus = check_gpus(asked, cluster)
    python = environment.get("HARNESS_PYTHON") if cluster.container == NO_CONTAINER else None
    handed = handed_over(asked, environment, python or "python3")
    check_paths([*readable(handed), handed["RESULT_DIR"], cluster.runs_dir])
    run_dir = DRY_RUN_DIR
    if asked["DRY_RUN"] != "1":
        runs = settings.make_folder(cluster.runs_dir, "RUNS_DIR")
        results = asked["RESULT_DIR"] or tempfile.mkdtemp(prefix="specgate.", dir=runs)
        handed["RESULT_DIR"] = str(settings.create_result_dir(results))
        run_dir = tempfile.mkdtemp(prefix="specgate-launch.", dir=runs)
        write_run_env(Path(run_dir) / "run.env", handed)
    words = {
        "run_dir": run_dir,
        "result_dir": handed["RESULT_DIR"],
        "job_name": f"specgate-{secrets.token_hex(4)}" if run_dir != DRY_RUN_DIR else "specgate",
        "gpus": str(gpus),
        "image_uri": images.enroot_uri(image) if image else "",
        "image_file": f"{cluster.image_dir}/{images.file_name(image)}" if image else "",
    }
    shown = [f"{key}={text}" for key, text in words.items()]
    shown += [f"setting={key}={handed[key]}" for key in handed if key not in SECRETS]
    return shown + [f"mount={text}" for text in mounts(handed, run_dir)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="utils.runners.prepare", description=__doc__)
    add = parser.add_argument
    add("--recipe", type=Path, required=True)
    add("--cluster", required=True, help="its name in runners/model_paths.yaml")
    add("--hw", required=True, help="as recipes' names say it")
    add("--gpus-per-node", type=int, required=True)
    add("--container", required=True, help="what runs the image, or none")
    add("--image-dir", required=True, help="where image files are kept")
    add("--runs-dir", required=True, help="a folder that every node sees")
    options = vars(parser.parse_args(argv))
    options["name"] = options.pop("cluster")
    recipe = options.pop("recipe")
    words = prepare(recipe, Cluster(**options), os.environ)
    sys.stdout.write("".join(f"{word}\0" for word in words))
    return errors.PASS


if __name__ == "__main__":
    raise SystemExit(errors.run(main))
