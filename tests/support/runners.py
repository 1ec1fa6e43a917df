"""The model under test, made from a directory, and the kernels that some tests need."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.model.attention.reference import attend
from draftwerk.model.attention.signature import Attention
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.batch.option_forwards import StatesForward
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.draft_head.torch_step import TorchStep
from draftwerk.model.native.build import NativeUnavailable, library_path
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.process.build import build
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.loaded_model import BoundHead, LoadedModel
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.step.whole_prompts import all_seen, seeing
from draftwerk.model.text.grammar import grammars_of
from draftwerk.speculative.rounds import NO_DRAFT

CPU = torch.device("cpu")
FP32 = torch.float32
STATE_SLOTS = 40
"""Of a model with recurrent layers."""


def require_kernels() -> None:
    """Skip a test where there are no native kernels, and say why."""
    try:
        library_path()
    except NativeUnavailable as error:
        pytest.skip(f"no native kernels here: {error}")


def cache_with_kernels(home: Path) -> Path:
    """Return a home of caches that holds this machine's compiled kernels, and nothing else."""
    compiled = library_path()
    cache = home / "draftwerk"
    cache.mkdir(parents=True)
    (cache / compiled.name).symlink_to(compiled)
    return home


def build_runner(options: ModelOptions) -> TargetRunner:
    """Return a target model. Raises Refused."""
    return target_runner(build(options).parts, options.successor_count)


def build_draft_runner(options: ModelOptions) -> DraftRunner:
    """Return a draft model. Raises Refused."""
    return DraftRunner(build(options, drafts=True).parts)


def plain_logits(config: ModelConfig, weights: Weights, tokens: list[int]) -> Tensor:
    """Return those of a whole text's tokens, as the reference computes them in float32."""
    layout = BatchBuilder(16)
    layout.add(tokens, 0, tuple(range(32)), NO_DRAFT, samples=True, state=RowState(-1, 1))
    layout.outputs = list(range(len(tokens)))
    forward = seeing(TorchForward(config, weights, attend), config.graph.sees_all, all_seen)
    return forward(layout.batch(CPU), allocate(config, 64, 16, FP32, CPU))


def make_runner(directory: Path, block_count: int = 128, block_size: int = 4) -> TargetRunner:
    """Return a float32 runner with small blocks, so that every text crosses many."""
    model = load(str(directory), FP32)
    return target_runner(_parts(model, block_count, block_size))


def make_guessing_runner(
    directory: Path, make_head: Callable[[Weights], DraftHead]
) -> TargetRunner:
    """Return such a runner with a draft head."""
    model = load(str(directory), FP32)
    parts, forward = _parts(model, 128, 4), TorchForward(model.config, model.weights, attend)
    head = BoundHead(step=TorchStep(make_head(model.weights), model.weights), forward=forward)
    return target_runner(replace(parts, forward=forward, draft_head=head))


def make_drafter(directory: Path, block_count: int = 128, block_size: int = 4) -> DraftRunner:
    """Return a float32 draft model with pages like those of `make_runner`."""
    model = load(str(directory), FP32)
    return DraftRunner(_parts(model, block_count, block_size))


def _parts(model: Checkpoint, block_count: int, block_size: int) -> LoadedModel:
    forward = TorchForward(model.config, model.weights, attend)
    pages = allocate(model.config, block_count, block_size, FP32, CPU, state_slots=STATE_SLOTS)
    config = model.config
    grammars = grammars_of(model.directory, config.vocab_size, config.eos_token_ids)
    return LoadedModel(
        forward=forward, pages=pages, vocab_size=config.vocab_size, grammars=grammars
    )


def kernel_parts(
    directory: Path,
    blocks: int,
    pool: Pool | None,
    dtype: str = "fp32",
    attention: Attention = attend,
) -> LoadedModel:
    """Return a model with so many blocks of 16, computed by kernels, or by torch without a pool."""
    model = load(str(directory), FP32)
    page_dtype, width = FP32, 0
    forward: StatesForward = TorchForward(model.config, model.weights, attention)
    if pool is not None:
        native = NativeForward(model.config, model.weights, dtype, pool)
        forward, page_dtype, width = native, native.page_dtype, native.page_width
    pages = allocate(model.config, blocks, 16, page_dtype, CPU, width)
    return LoadedModel(forward=forward, pages=pages, vocab_size=model.config.vocab_size)


def make_runner_with_layer(
    directory: Path, head: str, native: bool, dtype: str, kv_dtype: str = "auto"
) -> TargetRunner:
    """Return a runner of a model with a draft head that is a layer: "mtp", or a folder."""
    options = ModelOptions(
        source=str(directory),
        dtype=dtype,
        kv_dtype=kv_dtype,
        attention="native" if native else "padded",
        block_count=128,
        block_size=4,
        state_slots=STATE_SLOTS,
        draft_head=head,
        threads=2,
        measures=False,
    )
    return target_runner(build(options).parts)
