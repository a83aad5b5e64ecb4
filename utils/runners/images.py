"""Names of container images: as docker says them, as enroot does, as a file."""

from __future__ import annotations

import re

from utils.errors import UsageError

_IMAGE = re.compile(r"[A-Za-z0-9][\w./:@#+-]*")


def enroot_uri(image: str) -> str:
    """What `enroot import` takes: docker://[registry#]name[:tag].

    Raises:
        UsageError: the text is no image.
    """
    if not _IMAGE.fullmatch(image):
        raise UsageError(f"IMAGE is {image!r}: want [registry/]name[:tag|@digest]")
    registry, slash, rest = image.partition("/")
    is_registry = slash and "#" not in registry and re.search(r"[.:]", registry)
    return f"docker://{registry}#{rest}" if is_registry else f"docker://{image}"


def file_name(image: str) -> str:
    """The image's file in a folder of them; two images never share one."""
    return re.sub(r"[/:@#]", lambda found: f"%{ord(found[0]):02x}", image) + ".sqsh"
