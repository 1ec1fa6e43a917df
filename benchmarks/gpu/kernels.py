"""Every kernel: its error against its twin, its time, and what part of the bandwidth it uses."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.timing import GpuPlace
from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.batch import Batch
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.gpu.choice import Needs, choose_attention
from draftwerk.model.gpu.kernels.fused import triton_ops
from draftwerk.model.gpu.kernels.gguf_blocks import FORMATS, arranged
from draftwerk.model.gpu.kernels.products import dense
from draftwerk.model.gpu.kernels.quantised import Quantised, to_int4, to_int8
from draftwerk.model.gpu.kernels.w8a8 import by_row, w8a8
from draftwerk.model.gpu.kernels.weight_only import FEW_ROWS, few_bits
from draftwerk.model.gpu.ops import TORCH_OPS
from draftwerk.model.gpu.sampler import choose_many
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.reference.sampler import choose_many as choose_many_twin
from draftwerk.speculative.protocol.rounds import NO_DRAFT, Draft, chain
from draftwerk.speculative.sampling.params import Sampling


class Shapes(NamedTuple):
    """The shapes of one layer, and the rounds to try."""

    heads: int = 32
    kv_heads: int = 8
    head_size: int = 128
    hidden: int = 4096
    ffn: int = 14336
    vocab: int = 128256
    context: int = 4096
    rows: tuple[int, ...] = (1, 16, 64)
    lengths: tuple[int, ...] = (1, 8)


SMOKE = Shapes(4, 2, 16, 256, 256, 301, 40, (1, 2), (1, 4))
GGUF_KINDS = ("Q4_K", "Q6_K", "Q4_0")
BACKENDS = ("triton", "flash_attn", "flash_attn_3")
PAGES = (16, 256)


def verify_round(shapes: Shapes, rows: int, length: int, page: int, tree: bool) -> Batch:
    """Return a round of rows with the same context and as many new tokens each."""
    drafted = length - 1
    draft: Draft = NO_DRAFT
    if drafted:
        draft = chain((1,) * drafted, "benchmark")
        if tree:
            parents = tuple((node - 1) // 2 if node else -1 for node in range(drafted))
            draft = Draft(tuple(range(drafted)), parents, draft.sources)
    builder, width = BatchBuilder(page), -(-(shapes.context + length) // page)
    for row in range(rows):
        blocks = tuple(range(row * width, (row + 1) * width))
        builder.add([1], shapes.context, blocks, draft, samples=True)
    return builder.batch(torch.device("cpu"))


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def attention_rows(shapes: Shapes, at: GpuPlace) -> list[dict[str, Any]]:
    """Measure every available backend, for chains and, where it takes them, trees."""
    found: list[dict[str, Any]] = []
    for exact in (False, True):
        for name in BACKENDS:
            for page in PAGES:
                try:
                    needs = Needs(at.device, page, exact, shapes.context + 16)
                    chosen = choose_attention(name, needs)
                except Refused as error:
                    print(f"attention {name}, pages of {page}, exact {exact}: {error}")
                    continue
                for rows in shapes.rows:
                    for length in shapes.lengths:
                        for tree in (False, True) if chosen.backend.trees else (False,):
                            case = verify_round(shapes, rows, length, page, tree)
                            if tree and not (case.facts and case.facts.masked):
                                continue
                            numbers = _attention(chosen.attention, shapes, case, page, at)
                            found.append(
                                {
                                    "kernel": f"attention {name}",
                                    "exact": exact,
                                    "page": page,
                                    "rows": rows,
                                    "length": length,
                                    "tree": tree,
                                    **numbers,
                                }
                            )
    return found


def _attention(
    attention: Any, shapes: Shapes, case: Batch, page: int, at: GpuPlace
) -> dict[str, float]:
    device, dtype = at.device, at.dtype
    blocks = int(case.block_tables.max()) + 1
    kv = (blocks, page, shapes.kv_heads, shapes.head_size)
    keys, values = (torch.randn(kv, device=device).to(dtype) for _ in range(2))
    query = torch.randn(len(case.tokens), shapes.heads, shapes.head_size, device=device).to(dtype)
    names = ("tokens", "positions", "slots", "row_starts", "kv_lengths", "block_tables")
    tensors = [getattr(case, name).to(device) for name in (*names, "ancestors", "outputs")]
    batch = Batch(*tensors, facts=case.facts)
    error = relative_error(
        attention(query, keys, values, batch), attend(query, keys, values, batch)
    )
    taken = at.clock.microseconds(lambda: attention(query, keys, values, batch))
    read = 2 * int(case.kv_lengths.sum()) * kv[2] * kv[3] * keys.element_size()
    read += 2 * query.numel() * query.element_size()
    return {"error": error, "us": taken, **at.over_floor(taken, read)}


def small_rows(shapes: Shapes, at: GpuPlace) -> list[dict[str, Any]]:
    """Measure the fused operations and the sampler at a few batch sizes."""
    device, dtype = at.device, at.dtype
    ours, found = triton_ops(), []
    for tokens in sorted({rows * length for rows in shapes.rows for length in shapes.lengths}):
        residual = torch.randn(tokens, shapes.hidden, device=device).to(dtype)
        delta, weight = torch.randn_like(residual), torch.randn_like(residual[0])
        gate_up = torch.randn(tokens, 2 * shapes.ffn, device=device).to(dtype)
        every = (shapes.heads + 2 * shapes.kv_heads) * shapes.head_size
        qkv = torch.randn(tokens, every, device=device).to(dtype)
        angles = torch.randn(tokens, shapes.head_size // 2, device=device)
        rotation = angles.cos(), angles.sin()
        slots = torch.arange(tokens, dtype=torch.int32, device=device)
        kv = (tokens, 1, shapes.kv_heads, shapes.head_size)
        keys, values = (torch.zeros(kv, dtype=dtype, device=device) for _ in range(2))
        size = residual.element_size()
        cases = {
            "add_norm": (
                lambda ops, a=residual, b=delta, w=weight: ops.add_norm(a.clone(), b, w, 1e-5),
                6 * residual.numel() * size,  # the clone that keeps runs alike is in it
            ),
            "silu_mul": (lambda ops, g=gate_up: ops.silu_mul(g), 3 * gate_up.numel() * size / 2),
            "rotate_and_store": (
                lambda ops, x=qkv, r=rotation, s=slots, k=keys, v=values: ops.rotate_and_store(
                    x, r, s, None, k, v
                ),
                2 * qkv.numel() * size,
            ),
        }
        for name, (run, moved) in cases.items():
            error = relative_error(run(ours), run(TORCH_OPS))
            found.append(_row(name, tokens, error, at, lambda r=run: r(ours), moved))
        logits = torch.randn(tokens, shapes.vocab, device=device) * 3
        requests = [
            SamplingRequest(row, row, Sampling(temperature=0.8, seed=row)) for row in range(tokens)
        ]
        differ = choose_many(logits, requests) != choose_many_twin(logits, requests)
        work, moved = lambda x=logits, a=requests: choose_many(x, a), 4 * logits.numel()
        found.append(_row("keyed argmax", tokens, float(differ), at, work, moved))
    return found


def product_rows(
    shapes: Shapes,
    at: GpuPlace,
    counts: Sequence[int] = (1, 8, FEW_ROWS, FEW_ROWS + 1, 2 * FEW_ROWS),
) -> list[dict[str, Any]]:
    """Measure products of few bits and of bytes beside the plain one, with `counts` of tokens."""
    device, dtype = at.device, at.dtype
    found: list[dict[str, Any]] = []
    sizes = {"gate_up": (2 * shapes.ffn, shapes.hidden), "down": (shapes.hidden, shapes.ffn)}
    for name, size in sizes.items():
        weight = torch.randn(size, device=device).to(dtype)
        kept = {"int8": to_int8(weight), "int4": to_int4(weight)}
        kept |= {kind: random_blocks(kind, size, device) for kind in GGUF_KINDS}
        made = {bits: few_bits(one, None, exact=False) for bits, one in kept.items()}
        bytes_product = w8a8(weight, None)
        for tokens in counts:
            values = torch.randn(tokens, size[1], device=device).to(dtype)
            kinds = {"plain": (dense(weight, None), weight.nbytes)}
            kinds |= {bits: (made[bits], one.byte_count) for bits, one in kept.items()}
            kinds["w8a8"] = bytes_product, weight.numel()
            for kind, (run, moved) in kinds.items():
                twin = kept[kind].product(values) if kind in kept else run(values)
                if kind == "w8a8":
                    twin = bytes_twin(values, weight)
                error = relative_error(run(values), twin)
                label = f"product {name} {kind}"
                found.append(_row(label, tokens, error, at, lambda r=run, v=values: r(v), moved))
    return found


def random_blocks(kind: str, shape: tuple[int, int], device: torch.device) -> Quantised:
    """Return any codes of a GGUF's type, with scales of one size."""
    own, columns = FORMATS[kind], 256 if kind.endswith("_K") else 32
    width = shape[1] // columns * own.byte_count
    data = np.random.default_rng(1).integers(0, 256, (shape[0], width), dtype=np.uint8)
    made = arranged(StoredMatrix(kind, shape, data), device)
    for tensor in made.tensors:
        if tensor is not None and tensor.dtype == torch.float16:
            tensor.fill_(0.01)
    return made


def bytes_twin(values: Tensor, weight: Tensor) -> Tensor:
    """Return the product of what w8a8 rounds both to."""
    (codes, scales), (rows, row_scales) = by_row(values), by_row(weight)
    sums = codes.double() @ rows.double().T
    return (sums * scales[:, None] * row_scales).to(values.dtype)


def _row(
    name: str, tokens: int, error: float, at: GpuPlace, work: Any, moved: float
) -> dict[str, Any]:
    taken = at.clock.microseconds(work)
    floor = at.over_floor(taken, moved)
    return {"kernel": name, "tokens": tokens, "error": error, "us": taken, **floor}
