"""A small model's steps launched one by one, and replayed from graphs: logits and tokens."""

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.gpu.row_file import Row
from benchmarks.gpu.steps import random_model, verify_round
from benchmarks.gpu.timing import GpuPlace
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.graphs import Recorder
from draftwerk.model.step.loaded_model import LoadedModel

BLOCK_SIZE, BLOCKS, ROWS = 16, 64, 4
CASES = ((1, 1, 40), (4, 4, 40), (1, 24, 0))
NEAR = 0.05
"""Of logits, beside the greatest: graphs split the keys otherwise."""


def capture_rows(config: ModelConfig, at: GpuPlace) -> Iterator[Row]:
    """Yield rounds of (rows, new tokens, context): how far graphs and plain launches are apart."""
    torch.manual_seed(1)
    model = random_model(config, at.dtype, at.device)
    name = {torch.bfloat16: "bf16", torch.float32: "fp32"}[at.dtype]
    settings = GpuSettings(name, "triton", block_count=BLOCKS, rows_max=ROWS)

    def parts(recorder: Recorder | None) -> LoadedModel:
        return gpu_parts(model, settings, recorder)[0]

    plain = parts(None)
    graphed = parts(at.recorder)
    for rows, length, context in CASES:
        ours, theirs = (_logits(each, rows, length, context) for each in (plain, graphed))
        apart = float((ours - theirs).abs().max() / ours.abs().max())
        yield {
            "rows": rows,
            "length": length,
            "context": context,
            "finite": bool(ours.isfinite().all()),
            "apart": apart,
            "near": apart <= NEAR,
            "same_tokens": bool((ours.argmax(-1) == theirs.argmax(-1)).all()),
            "greedy": ours.argmax(-1)[:4].tolist(),
        }


def _logits(parts: LoadedModel, rows: int, length: int, context: int) -> Tensor:
    parts.pages.keys.zero_()
    parts.pages.values.zero_()
    return parts.run(verify_round(BLOCK_SIZE, rows, length, context)).clone()
