"""Modules that compile kernels, run in processes of their own: this one's are interpreted."""

import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
import triton

ROOT = Path(__file__).parents[4]
SOURCES = (
    *(f"draftwerk/model/{name}" for name in ("gpu", "draft_head", "batch", "reference", "step")),
    "draftwerk/speculative",
    "tests/model/gpu/support",
    "validation/compile_kernels.py",
    "validation/kernel_cases.py",
)
"""Where the kernels are, the constants that they are compiled for, and what launches them."""


def output_of(config: pytest.Config, module: str, *arguments: str) -> str:
    """Return what a module prints; for the same sources what it has printed before."""
    cache = getattr(config, "cache", None)
    key = f"kernels/{module}-{'-'.join(arguments).replace('/', '')}-{_fingerprint()}"
    kept = cache.get(key, None) if cache is not None else None
    if kept is None:
        kept = _printed(module, arguments)
        if cache is not None:
            cache.set(key, kept)
    return kept


@cache
def _printed(module: str, arguments: tuple[str, ...]) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    ended = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=550,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def _fingerprint() -> str:
    """Return a hash of all that decides the compiler's output."""
    digest = sha256(triton.__version__.encode())
    for source in SOURCES:
        path = ROOT / source
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
