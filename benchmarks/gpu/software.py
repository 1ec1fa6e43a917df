"""What a machine with a card has: versions, and which modules of ours can be imported."""

import importlib
import os
import pkgutil
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.gpu.row_file import Row

PACKAGES = (
    *("torch", "triton", "transformers", "tokenizers", "numpy", "msgspec", "starlette", "uvicorn"),
    *("httptools", "websockets", "llguidance", "gguf", "flash-attn", "pytest"),
)
SHARED_MEMORY = Path("/dev/shm")


def software_rows() -> Iterator[Row]:
    """Yield the machine, the version of each package, and each module with what became of it."""
    import torch

    has_card = torch.cuda.is_available()
    room = shutil.disk_usage(SHARED_MEMORY).free >> 20 if SHARED_MEMORY.exists() else 0
    yield {
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "card": torch.cuda.get_device_name() if has_card else "none",
        "capability": ".".join(map(str, torch.cuda.get_device_capability())) if has_card else "",
        "shared_memory_mib": room,
        "compiler": shutil.which("g++") or "none",
    }
    for name in PACKAGES:
        try:
            yield {"package": name, "version": version(name)}
        except PackageNotFoundError:
            yield {"package": name, "version": "none"}
    from draftwerk.model import gpu

    for module in pkgutil.walk_packages(gpu.__path__, f"{gpu.__name__}."):
        try:
            importlib.import_module(module.name)
            yield {"module": module.name, "imported": "yes"}
        except Exception as error:  # whatever it is, the others go on
            yield {"module": module.name, "imported": f"{type(error).__name__}: {error}"}
