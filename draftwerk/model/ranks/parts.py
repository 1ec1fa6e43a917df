"""What one process has of a model on a CPU: all of it, or a rank's share."""

from dataclasses import replace as replace_weights
from math import prod
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from msgspec import to_builtins
from msgspec.structs import replace
from torch import Tensor

from draftwerk.cache.page_layout import memory_bytes
from draftwerk.machine.host import memory_bytes as machine_bytes
from draftwerk.machine.shared_memory import SharedMemory, mapped
from draftwerk.machine.threads import ALWAYS_ALL, fastest_count, usable_cpus
from draftwerk.model.attention.choice import Needs, choose_attention
from draftwerk.model.batch.batch import Forward, Pages
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import cache_directory, locate
from draftwerk.model.checkpoint.loader import Checkpoint, load, load_vocabulary
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.packed_weights import (
    WeightStore,
    identity_fingerprint,
    weights_fingerprint,
)
from draftwerk.model.checkpoint.shard import Grid, shard_of
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import AnyWeights, Weights
from draftwerk.model.native.build import Library, obtain, source_key
from draftwerk.model.native.forward import NativeForward, page_format
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import STORED, dequantised, rows_of
from draftwerk.model.native.trials import trial_s
from draftwerk.model.ranks.group import RankGroup
from draftwerk.model.ranks.leading import Stage
from draftwerk.model.ranks.native_stage import NativeStage
from draftwerk.model.ranks.rank_round import RankRound, batch_of
from draftwerk.model.ranks.seats import Seats, group_bytes, take_seats
from draftwerk.model.reference.forward import TorchForward, all_mine, prefer_speed
from draftwerk.model.reference.kv_pages import allocate, page_shape, private_pages
from draftwerk.model.reference.shared_pages import SharedPages, page_memory
from draftwerk.speculative.protocol.frames import OnProgress

CPU = torch.device("cpu")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
THREADS_S = 1.0
"""For finding the best number of threads, where there are many CPUs."""
FIRST_ROWS = 16
NATIVE = "native"
"""The attention that comes with the C++ forward."""


class BuiltRank(NamedTuple):
    """A rank but the first, ready to compute."""

    stage: Forward
    pages: Pages
    scratch: Pages
    """For steps that only measure."""
    threads: int

    def compute(self, round_: RankRound) -> None:
        """Do this rank's part of a step. Raises ValueError or RuntimeError once one is lost."""
        self.stage(batch_of(round_), self.scratch if round_.on_scratch else self.pages)


class TorchPart(NamedTuple):
    """What one rank has of a model in torch, or all of it."""

    model: Checkpoint
    forward: TorchForward
    stage: Stage | None
    """The forward pass with what is handed over before and after it; None of all of it."""
    pages: Pages
    shared: SharedPages | None
    threads: int


class NativePart(NamedTuple):
    """What one rank has of a model on the native kernels, or all of it."""

    model: Checkpoint
    forward: NativeForward
    stage: Stage | None
    """As of a `TorchPart`."""
    pages: Pages
    shared: SharedPages | None
    pool: Pool
    threads: int
    measured_s: float


def build_rank(options: ModelOptions, progress: OnProgress = lambda _: None) -> BuiltRank:
    """Return one of the ranks that rank 0 has started. Raises Refused."""
    if options.attention == NATIVE:
        torch.set_num_threads(1)
        part = native_part(options, obtain(progress=progress), progress)
    else:
        part = torch_part(options, CPU, progress)
    keys = part.pages.keys
    scratch = private_pages(tuple(keys.shape), keys.dtype)
    assert part.stage is not None, "a rank of one"
    return BuiltRank(part.stage, part.pages, scratch, part.threads)


def native_part(options: ModelOptions, kernels: Library, progress: OnProgress) -> NativePart:
    """Return what this process has of the model: all of it, or a rank's share."""
    grid = grid_of(options)
    shard, seats = None, Seats()
    if grid.size > 1:
        config = read_config(locate(options.source)[1])
        shard = shard_of(config, grid, options.rank)
        seats = take_seats(mapped(options.group_descriptor), config, grid, options.rank)
    store = _weight_store(options, kernels)
    tries_threads = not options.threads and usable_cpus() > ALWAYS_ALL
    has_matrices = store is None or not store.is_packed or tries_threads
    model = load(
        options.source,
        None,
        progress=progress,
        matrices=has_matrices,
        shard=shard,
        keeps_blocks=options.dtype == STORED,
        dequantise=dequantised,
    )
    _check_blocks(options, model.weights)
    begun = perf_counter()
    threads = options.threads or _threads(model, options.dtype)
    measured_s = perf_counter() - begun
    pool = Pool(threads)
    forward = NativeForward(
        model.config,
        model.weights,
        options.dtype,
        pool,
        options.kv_dtype,
        store,
        shard,
        seats.columns_handle,
        on_layer=model.layer_done,
    )
    if has_matrices:
        model.all_done()
    shape = page_shape(model.config, options.block_count, options.block_size, forward.page_width)
    shared, pages = page_memory(shape, forward.page_dtype, options.pages_descriptor)
    stage = None if shard is None else NativeStage(forward, shard, seats)
    return NativePart(model, forward, stage, pages, shared, pool, threads, measured_s)


def torch_part(options: ModelOptions, device: torch.device, progress: OnProgress) -> TorchPart:
    """Return what this process has of the model: all of it, or a rank's share."""
    dtype, grid, threads = DTYPES[options.dtype], grid_of(options), 0
    if device.type == "cpu":
        threads = options.threads or usable_cpus()
        torch.set_num_threads(threads)
    attention = choose_attention(options.attention, needs_of(options, device)).attention
    shard, gather, connected = None, all_mine, None
    if grid.size > 1:
        # Not every build of torch has it, and it takes a while to import.
        from draftwerk.model.ranks.torch_stage import connect

        config = read_config(locate(options.source)[1])
        shard = shard_of(config, grid, options.rank)
        connected = connect(Path(options.rendezvous), config, grid, options.rank, dtype)
        gather = connected.gather
    model = load(options.source, dtype, device, progress, shard=shard)
    forward = TorchForward(model.config, model.weights, attention, shard, gather)
    stage = None
    if shard is not None and connected is not None:
        from draftwerk.model.ranks.torch_stage import TorchStage

        stage = TorchStage(forward, shard, connected)
    elif not options.exact:
        prefer_speed(forward, machine_bytes())
    if device.type == "cpu":
        shape = page_shape(model.config, options.block_count, options.block_size)
        shared, pages = page_memory(shape, dtype, options.pages_descriptor)
    else:
        shared = None
        pages = allocate(model.config, options.block_count, options.block_size, dtype, device)
    return TorchPart(model, forward, stage, pages, shared, threads)


def _check_blocks(options: ModelOptions, weights: AnyWeights) -> None:
    """Refuse to serve as stored what its file has not quantised."""
    if options.dtype == STORED and isinstance(weights.lm_head, Tensor):
        raise Refused(f"dtype {STORED!r} is the blocks of a quantised GGUF, which this is not")


def needs_of(options: ModelOptions, device: torch.device) -> Needs:
    return Needs(device, options.block_size, options.exact and device.type == "cuda")


def grid_of(options: ModelOptions) -> Grid:
    return Grid(options.pipeline_parallel, options.tensor_parallel)


def lead(options: ModelOptions, progress: OnProgress) -> tuple[ModelOptions, RankGroup | None]:
    """Start the other ranks of a divided model; returns the options of this one. Raises Refused."""
    grid = grid_of(options)
    if grid.size == 1:
        return options, None
    config = read_config(locate(options.source, progress)[1])
    for rank in range(grid.size):
        shard_of(config, grid, rank)
    dtype, width = page_format(config, options.dtype, options.kv_dtype)
    shape = page_shape(config, options.block_count, options.block_size, width)
    group = RankGroup(grid, progress)
    own = replace(
        options,
        # Stages take turns: only the ranks of one compute at a time.
        threads=options.threads or max(1, usable_cpus() // grid.tensor),
        rendezvous="" if options.attention == NATIVE else str(group.rendezvous()),
        group_descriptor=group.keep(SharedMemory.make(group_bytes(config, grid))),
        pages_descriptor=options.pages_descriptor,
    )
    if own.pages_descriptor < 0:
        size = 2 * prod(shape) * dtype.itemsize
        own = replace(own, pages_descriptor=group.keep(SharedMemory.make(memory_bytes(size))))
    weights = dict(enumerate(options.rank_weights_descriptors, 1))
    others = {
        rank: replace(
            own, rank=rank, weights_descriptor=weights.get(rank, -1), rank_weights_descriptors=()
        )
        for rank in range(1, grid.size)
    }
    descriptors = (own.group_descriptor, own.pages_descriptor, *weights.values())
    group.start({rank: to_builtins(told) for rank, told in others.items()}, descriptors)
    return own, group


def vocabulary_of(
    options: ModelOptions,
    weights: Weights,
    embedding: Tensor | None,
    dtype: torch.dtype | None = None,
) -> Weights:
    """Return the weights that a draft head reads of its target, whole, and this embedding's."""
    if grid_of(options).size == 1:
        if embedding is None:  # a head is told by its target's first rows
            embedding = rows_of(weights.embedding, torch.arange(FIRST_ROWS))
        return replace_weights(weights, embedding=embedding)
    if options.draft_head == "off":
        return weights
    vocabulary = load_vocabulary(options.source, dtype)
    if embedding is None:
        return vocabulary
    return replace_weights(vocabulary, embedding=vocabulary.embedding.to(embedding.dtype))


def _weight_store(options: ModelOptions, kernels: Library) -> WeightStore | None:
    """Return where packed weights are shared, if the parent has handed memory over."""
    if options.weights_descriptor < 0:
        return None
    _, directory = locate(options.source)
    cache = cache_directory()
    grid = grid_of(options)
    share = (f"rank {options.rank} of {grid}",) if grid.size > 1 else ()
    words = (options.dtype, *kernel_words(kernels), *share)
    # A GGUF is dequantised or packed about as quickly as a file of the same weights is read.
    card = read_card(directory)
    keeps = card is None or options.dtype not in (*DTYPES, STORED)
    if keeps:
        fingerprint = weights_fingerprint(directory, cache, words)
    else:
        fingerprint = identity_fingerprint(directory, words)
    if fingerprint is None:
        return None
    return WeightStore(options.weights_descriptor, fingerprint, cache, keeps)


def kernel_words(kernels: Library) -> tuple[str, str]:
    return kernels.isa.name, source_key(kernels.isa)


def _threads(model: Checkpoint, dtype: str) -> int:
    """Return the number of threads on which the model is fastest."""
    return fastest_count(
        usable_cpus(),
        lambda count: trial_s(model.config, model.weights, dtype, count),
        THREADS_S,
    )
