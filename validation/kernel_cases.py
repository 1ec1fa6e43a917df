"""What `validation.compile_kernels` compiles: kernels at the shapes of models."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from draftwerk.model.draft_head.chains import LENGTH_MAX
from draftwerk.model.draft_head.tree import EXPANDED
from draftwerk.model.gpu.chains import follow_kernel
from draftwerk.model.gpu.commit import BLOCK, compact_kernel, walk_kernel
from draftwerk.model.gpu.commit import LANES as NODES
from draftwerk.model.gpu.draft_tree import LANES, draft_tree_kernel
from draftwerk.model.gpu.kernels import w8a8
from draftwerk.model.gpu.kernels.attention import stages_of as attention_stages
from draftwerk.model.gpu.kernels.launch import power_of_two
from draftwerk.model.gpu.kernels.norm import add_norm_kernel
from draftwerk.model.gpu.kernels.rotary import rotate_kernel
from draftwerk.model.gpu.kernels.silu_and_mul import silu_mul_kernel
from draftwerk.model.gpu.kernels.split_attention import attend_kernel, merge_kernel
from draftwerk.model.gpu.kernels.w8a8 import (
    byte_product_kernel,
    round_kernel,
    scale_parts_kernel,
)
from draftwerk.model.gpu.kernels.weight_only import (
    BLOCK_N,
    MERGE_LANES,
    add_parts_kernel,
    product_kernel,
    stages_of,
    warps_of,
)
from draftwerk.model.gpu.kernels.widening import DEQUANTISE_ROWS, dequantise_kernel
from draftwerk.model.gpu.sampler import choose_kernel, greatest_kernel, keyed_kernel

FP8_PAGES = {"keys": "*fp8e4nv", "values": "*fp8e4nv"}


class Case(NamedTuple):
    """A kernel and one set of its constants."""

    kernel: Any
    constants: dict[str, Any]
    warps: int = 4
    stages: int = 2
    types: Mapping[str, str] = MappingProxyType({})
    """Exceptions from TYPES and TENSORS."""
    variant: str = ""
    """What the kernel is compiled for, where it has several forms."""


def cases() -> Iterator[Case]:
    """Yield the kernels at the shapes of an 8B model and of the default model."""
    for size, heads, group in ((128, 32, 4), (64, 9, 3), (64, 32, 1), (128, 16, 16)):
        for page in (16, 256):
            for height in (16, 32, 64):
                shape = {"HEADS": heads, "GROUP": group, "SIZE": size, "BLOCK_D": size}
                tile = {"PAGE": page, "BLOCK_M": height, "BLOCK_N": 64 if size > 64 else 128}
                for paths in (False, True) if height == 64 else (False,):
                    constants = {**shape, **tile, "PATHS": paths, "BY_ROW": False, "WHOLE": False}
                    yield Case(attend_kernel, constants)
                    if page == 16:
                        stages = attention_stages(height, item_size=1)
                        yield Case(attend_kernel, constants, stages=stages, types=FP8_PAGES)
        for by_row in (False, True):
            shape = {"HEADS": heads, "SIZE": size, "BLOCK_D": size}
            yield Case(merge_kernel, shape | {"BY_ROW": by_row, "KEEP": not by_row})
    for width, block, warps in ((4096, 4096, 8), (576, 1024, 4)):
        constants = {"WIDTH": width, "BLOCK": block, "ADD": True}
        yield Case(add_norm_kernel, constants, warps)
    for heads, kv_heads, size in ((32, 8, 128), (9, 3, 64)):
        shape = {"HEADS": heads, "KV_HEADS": kv_heads, "SIZE": size}
        blocks = {"BLOCK_H": 16, "BLOCK_D": size // 2}
        for norm in (False, True):
            constants = {**shape, **blocks, "NORM": norm}
            yield Case(rotate_kernel, constants | {"FP8": False})
            yield Case(rotate_kernel, constants | {"FP8": True}, types=FP8_PAGES)
    yield Case(silu_mul_kernel, {"BLOCK": 1024})
    yield from weight_only_cases()
    yield from w8a8_cases()
    yield from step_cases()


def step_cases() -> Iterator[Case]:
    """Yield the kernels around the forward pass: choice, tree walk, chains and draft trees."""
    yield Case(greatest_kernel, {"CHUNK": 2048}, types=typed(i64="rows"))
    yield Case(keyed_kernel, {"CHUNK": 2048, "CHUNKS": 64}, types=typed(i64="rows keys"))
    yield Case(choose_kernel, {"CHUNKS": 64}, types=typed(i32="out"))
    types = typed(i32="chosen left positions found", i64="keys")
    for rows in (1, 128):
        constants = {"PAGE": 16, "LENGTH": LENGTH_MAX, "BLOCK": rows}
        yield Case(follow_kernel, constants, max(1, rows // 32), types=types)
    numbers = "vocabulary parents found next_sources next_tokens next_parents"
    wide = {"i64": "indices keys", "fp32": "logprobs", "fp64": "chances next_chances"}
    for opened in (1, EXPANDED):
        constants = {"OPEN": opened, "LANES": LANES}
        yield Case(draft_tree_kernel, constants, warps=1, types=typed(i32=numbers, **wide))
    types = typed(i32="answers begins parents ends keys values")
    yield Case(walk_kernel, {"LANES": NODES}, warps=1, types=types)
    yield Case(compact_kernel, {"BLOCK": BLOCK}, types=types | {"layer_stride": "i64"})


def typed(**names: str) -> dict[str, str]:
    """Return types by argument: pointers to each kind, named with spaces between."""
    return {name: f"*{kind}" for kind, several in names.items() for name in several.split()}


class CodeFormat(NamedTuple):
    """What the kernels of few bits are compiled for."""

    bits: int
    group: int
    offset: int
    minima: bool
    scales: str = "fp16"
    """Or the type of whole numbers of steps."""


CODE_FORMATS = {
    "Q8_0, int8": CodeFormat(8, 32, 0, False),
    "Q4_1, int4": CodeFormat(4, 32, 0, True),
    "Q4_0": CodeFormat(4, 32, 8, False),
    "Q5_0": CodeFormat(5, 32, 16, False),
    "Q4_K": CodeFormat(4, 32, 0, True, "u8"),
    "Q5_K": CodeFormat(5, 32, 0, True, "u8"),
    "Q6_K": CodeFormat(6, 16, 32, False, "i8"),
}


def weight_only_cases() -> Iterator[Case]:
    """Yield the products of few bits: whole, and in parts as a small matrix needs."""
    for name, code in CODE_FORMATS.items():
        constants = {
            "BITS": code.bits,
            "GROUP": code.group,
            "OFFSET": code.offset,
            "MINIMA": code.minima,
            "STEPS": code.scales != "fp16",
        }
        types = {"codes": "*i8" if code.bits == 8 else "*u8"}
        types |= {"scales": f"*{code.scales}", "minima": f"*{code.scales}"}
        for rows, columns, splits in ((28_672, 4096, 1), (4096, 14_336, 8)):
            shape = {"ROWS": rows, "COLUMNS": columns, **constants}
            parts = {"out": "*fp32"} if splits > 1 else {}
            units = columns * (1 if code.bits == 8 else 0.5) // 32
            for height in (16, 32, 64):
                tile = {
                    "UNITS": int(units),
                    "SPLIT": int(units) // splits,
                    "BLOCK_M": height,
                    "BLOCK_N": BLOCK_N,
                }
                warps, stages = warps_of(height), stages_of(code.bits, code.offset, height)
                yield Case(product_kernel, shape | tile, warps, stages, types | parts, name)
        shape = {"ROWS": 28_672, "COLUMNS": 4096, "BLOCK_N": DEQUANTISE_ROWS, **constants}
        for chosen in (False, True):
            yield Case(dequantise_kernel, shape | {"CHOSEN": chosen}, types=types, variant=name)
    yield Case(add_parts_kernel, {"PARTS": 7, "LANES": MERGE_LANES})


def w8a8_cases() -> Iterator[Case]:
    """Yield the products of signed bytes, and the rounding before them."""
    types = {"sums": "*i32"} | typed(i8="codes tokens weights")
    types |= typed(fp32="token_scales weight_scales scales")
    for width in (4096, 14_336):
        constants = {"WIDTH": width, "BLOCK": power_of_two(width)}
        yield Case(round_kernel, constants, 8, types=types)
    shape = {"ROWS": 4096, "COLUMNS": 14_336, "BLOCK_N": w8a8.BLOCK_N, "BLOCK_K": w8a8.BLOCK_K}
    for height in (16, 32, 64, 128):
        for whole in (False, True):
            constants = shape | {"SPLIT": 2048, "WHOLE": whole, "BLOCK_M": height}
            out = {} if whole else {"out": "*i32"}
            warps = w8a8.warps_of(height)
            yield Case(byte_product_kernel, constants, warps, 3, types | out)
    constants = {"ROWS": 4096, "PARTS": 7, "LANES": w8a8.MERGE_LANES}
    yield Case(scale_parts_kernel, constants, types=types)
