"""What guessing costs: a draft model's chains, and a draft head's trees, each beside its floor.

Chains are measured as a draft model makes them, from the logits of what it has read to
the tokens on the host; beside them the same chains with a way to the host for every token.
"""

from collections.abc import Callable
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from benchmarks.gpu.steps import (
    random_model,
    shape_of_8b,
    token_bytes,
    verify_round,
    weight_bytes,
    weight_count,
)
from benchmarks.gpu.timing import GpuPlace
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.draft_head.chains import Wanted
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.draft_head.tree import EXPANDED, LEVELS, Start
from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.draft_tree import GpuDraftTree
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.backend import LoadedModel
from draftwerk.speculative.protocol.rounds import NO_DRAFT
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.sources.sequence_noise import SequenceNoise

SAMPLING = Sampling(temperature=0.8, seed=1)
INNER, VOCABULARY = 4096, 16_384
"""Of a head for an 8B model."""
SMOKE_HEAD = {"inner": 48, "vocabulary": 64}


def shape_of_1b() -> ModelConfig:
    """Return the shape of Llama-3.2-1B: a draft model for one of 8B."""
    sizes = {"hidden_size": 2048, "layer_count": 16, "head_size": 64, "ffn_size": 8192}
    return shape_of_8b(**sizes)


def chain_rows(
    config: ModelConfig,
    settings: GpuSettings,
    at: GpuPlace,
    cases: list[tuple[int, int, int]],
) -> list[dict[str, Any]]:
    """Measure chains of (rows, tokens, context)."""
    model = random_model(config, at.dtype, at.device)
    read, parameters = weight_bytes(model, settings.dtype), sum(weight_count(model))
    parts, _ = gpu_parts(model, settings._replace(drafts=True), at.recorder, progress=print)
    kv = token_bytes(config, parts)
    found: list[dict[str, Any]] = []
    for rows, length, context in cases:
        logits = parts.run(verify_round(settings.block_size, rows, 1, context)).clone()
        wanted = _wanted(rows, length, context, settings.block_size)
        fed = length - 1  # all tokens but the last
        work = fed * (read + rows * context * kv), fed * 2.0 * parameters * rows
        chain_us = at.clock.wall_us(_whole(parts, logits, wanted))
        found.append(
            {
                "drafts": "chain",
                "dtype": settings.dtype,
                "rows": rows,
                "length": length,
                "context": context,
                "chain_us": chain_us,
                "by_token_us": at.clock.wall_us(_by_token(parts, logits, wanted)),
                **at.over_floor(chain_us, *work),
            }
        )
    return found


def _wanted(rows: int, length: int, context: int, block_size: int) -> list[Wanted]:
    width = -(-(context + 1 + length) // block_size)
    return [
        Wanted(
            SamplingRequest(row, context + 1, SAMPLING),
            tuple(range(row * width, (row + 1) * width)),
            length,
        )
        for row in range(rows)
    ]


def _whole(parts: LoadedModel, logits: Tensor, wanted: list[Wanted]) -> Callable[[], object]:
    chains = parts.chains
    assert chains is not None
    return lambda: chains.begin(logits, wanted)()


def _by_token(parts: LoadedModel, logits: Tensor, wanted: list[Wanted]) -> Callable[[], object]:
    """Return what makes the same chains the other way, as `draft_runner` does for other
    distributions."""

    def work() -> None:
        known = logits
        for count in range(max(one.length for one in wanted)):
            requests = [
                SamplingRequest(row, one.request.position + count, SAMPLING)
                for row, one in enumerate(wanted)
            ]
            tokens = parts.backend.choose(known, requests)
            if count + 1 < wanted[0].length:
                builder = BatchBuilder(parts.pages.block_size)
                for one, token in zip(wanted, tokens, strict=True):
                    builder.add([token], one.request.position + count, one.blocks, NO_DRAFT, True)
                known = parts.run(builder)

    return work


def head_rows(
    config: ModelConfig,
    at: GpuPlace,
    counts: list[int],
    inner: int = INNER,
    vocabulary: int = VOCABULARY,
) -> list[dict[str, Any]]:
    """Measure trees of so many rows, for a target whose layers do not matter."""
    model = random_model(replace(config, layer_count=1), at.dtype, at.device)
    hidden = config.hidden_size
    head = DraftHead(
        vocabulary=torch.arange(vocabulary, dtype=torch.int32),
        gate_up=torch.randn(2 * inner, 2 * hidden) * (2 * hidden) ** -0.5,
        down=torch.randn(hidden, inner) * inner**-0.5,
        keep=torch.ones(hidden),
        state_norm=torch.ones(hidden),
        token_norm=torch.ones(hidden),
        norm=torch.ones(hidden),
    )
    draft_tree = GpuDraftTree(head, model.weights)
    if at.recorder is not None:
        draft_tree.record(counts, at.recorder, print)
    weights = 5 * hidden * inner + hidden * vocabulary
    found: list[dict[str, Any]] = []
    for rows in counts:
        states = torch.randn(rows, hidden, device=at.device)
        keyed = [(SequenceNoise(SAMPLING), row) for row in range(rows)]
        said = torch.ones(rows, dtype=torch.int32, device=at.device)
        starts = [Start(state, 1, row, SequenceNoise(SAMPLING)) for row, state in enumerate(states)]
        opened = rows * (1 + EXPANDED * (LEVELS - 1))
        read = LEVELS * weights * draft_tree.small.element_size()
        tree_us = at.clock.microseconds(
            lambda states=states, said=said, keyed=keyed: draft_tree.queue(states, said, keyed)
        )
        found.append(
            {
                "drafts": "head",
                "rows": rows,
                "tree_us": tree_us,
                "alone_us": at.clock.wall_us(lambda starts=starts: draft_tree.grow(starts)),
                **at.over_floor(tree_us, read, 2.0 * weights * opened),
            }
        )
    return found
