"""FlashAttention-2 as a visit needs it: the library's own sources, cut to what paged calls launch.

    python -m benchmarks.gpu.flash_attention_2 WORK [--kernels NAME ...]

Where there is a block table both of its functions launch split kernels alone: for bf16 and heads of
64 and 128 these are four files, where the whole is hours of compiling. Each takes minutes and 4 GB
of memory, so they are compiled one after another, and what is there already is kept. Needs nvcc and
the torch that it is for; the result lies in WORK/site, and is put into no repository.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

RELEASE = "2.8.3.post2"
HEADS = (64, 128)
KERNELS = tuple(
    f"flash_fwd_split_hdim{size}_bf16{kind}_sm80" for size in HEADS for kind in ("_causal", "")
)
LEFT_OUT = ("BACKWARD", "DROPOUT", "ALIBI", "UNEVEN_K", "SOFTCAP", "LOCAL")
"""Each of the last two would double the time; the shapes that a visit times have neither."""
MODULE = "flash_attn_2_cuda"
FP16_SWITCH = """#define FP16_SWITCH(COND, ...) \\
    [&] { using elem_type = cutlass::bfloat16_t; return __VA_ARGS__(); }()
"""
HEADDIM_SWITCH = """#define HEADDIM_SWITCH(HEADDIM, ...) \\
    [&] { \\
        if (HEADDIM <= 64) { constexpr static int kHeadDim = 64; return __VA_ARGS__(); } \\
        else { constexpr static int kHeadDim = 128; return __VA_ARGS__(); } }()
"""
"""Every other dtype and size would ask for kernels that are not built."""
STUB = (
    "template<> void run_mha_{way}_<cutlass::bfloat16_t, {size}, {causal}>"
    "(Flash_{way}_params &, cudaStream_t) {{ std::abort(); }}\n"
)
STUBS = """#include "namespace_config.h"
#include <cstdlib>
#include <cutlass/numeric_types.h>
#include "flash.h"
namespace FLASH_NAMESPACE {
%s}
"""
CUDA_FLAGS = (
    *(
        "--expt-relaxed-constexpr",
        "--expt-extended-lambda",
        "--use_fast_math",
        "-Xcompiler",
        "-fPIC",
    ),
    *("-gencode", "arch=compute_90,code=sm_90"),
    *(f"-U__CUDA_NO_{name}__" for name in ("HALF_OPERATORS", "HALF_CONVERSIONS")),
    *(f"-U__CUDA_NO_{name}__" for name in ("HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")),
)


def sources(work: Path) -> Path:
    """Fetch and unpack the release; return its folder, cut to the kernels that are built."""
    root = work / f"flash_attn-{RELEASE}"
    archive = work / f"flash_attn-{RELEASE}.tar.gz"
    if not archive.exists():
        words = ("--no-deps", "--no-build-isolation", "--no-binary", ":all:", "-d", str(work))
        name = f"flash-attn=={RELEASE}"
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", *words, name], check=True)
    if not root.exists():
        with tarfile.open(archive) as packed:
            packed.extractall(work, filter="data")
        cut(root / "csrc/flash_attn/src")
    return root


def cut(folder: Path) -> None:
    """Have switches name nothing but the kernels that are built, and the others abort."""
    switches = folder / "static_switch.h"
    text = switches.read_text("utf-8")
    text = re.sub(r"#define FP16_SWITCH.*?\}\(\)\n", lambda _: FP16_SWITCH, text, flags=re.S)
    text = re.sub(r"#define HEADDIM_SWITCH.*?\}\(\)", lambda _: HEADDIM_SWITCH, text, flags=re.S)
    switches.write_text(text, "utf-8")
    stubs = "".join(
        STUB.format(way=way, size=size, causal=causal)
        for way in ("fwd", "bwd")
        for size in HEADS
        for causal in ("false", "true")
    )
    (folder / "stubs.cu").write_text(STUBS % stubs, "utf-8")


def compiled(source: Path, includes: Sequence[Path]) -> Path:
    """Compile a file unless that was done; return the object."""
    target = source.with_suffix(".o")
    if target.exists():
        return target
    begun, part = perf_counter(), target.with_suffix(".part")
    words = [f"-DFLASHATTENTION_DISABLE_{name}" for name in LEFT_OUT]
    words += [f"-DTORCH_EXTENSION_NAME={MODULE}", *(f"-I{each}" for each in includes)]
    subprocess.run(
        # Of C++ too: it knows where CUDA's headers are.
        [
            "nvcc",
            *CUDA_FLAGS,
            "-O3",
            "-std=c++17",
            "-w",
            *words,
            "-c",
            str(source),
            "-o",
            str(part),
        ],
        check=True,
    )
    os.replace(part, target)
    print(f"{source.name}: {perf_counter() - begun:.0f} s", flush=True)
    return target


def link(objects: Sequence[Path], root: Path, site: Path) -> Path:
    """Link the extension, and lay the library's Python beside it."""
    import torch

    site.mkdir(exist_ok=True)
    ignored = shutil.ignore_patterns("cute")
    shutil.copytree(root / "flash_attn", site / "flash_attn", dirs_exist_ok=True, ignore=ignored)
    target = site / f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"
    folder = Path(torch.__file__).parent / "lib"
    names = ("torch", "torch_cpu", "torch_cuda", "c10", "c10_cuda", "torch_python")
    words = ["-o", str(target), f"-L{folder}", *(f"-l{name}" for name in names)]
    subprocess.run(["g++", "-shared", *map(str, objects), *words], check=True)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path, help="a folder for sources, objects and the result")
    parser.add_argument("--kernels", nargs="*", choices=KERNELS, help="these alone, not linked")
    given = parser.parse_args()
    from torch.utils.cpp_extension import include_paths

    given.work.mkdir(parents=True, exist_ok=True)
    root = sources(given.work)
    folder = root / "csrc/flash_attn"
    includes = [folder / "src", folder, root / "csrc/cutlass/include"]
    includes += [*map(Path, include_paths("cuda")), Path(sysconfig.get_paths()["include"])]
    if given.kernels:
        for name in given.kernels:
            compiled(folder / f"src/{name}.cu", includes)
        return
    files = [folder / "flash_api.cpp", folder / "src/stubs.cu"]
    files += [folder / f"src/{name}.cu" for name in KERNELS]
    made = link([compiled(each, includes) for each in files], root, given.work / "site")
    print(f"{made}: {made.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main()
