"""From options to a running model: the factory a device process calls."""

from dataclasses import replace as replace_weights
from importlib.util import find_spec
from math import prod
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import msgspec
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
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import cache_directory, locate
from draftwerk.model.checkpoint.loader import Checkpoint, load, load_vocabulary
from draftwerk.model.checkpoint.packed_weights import WeightStore, weights_fingerprint
from draftwerk.model.checkpoint.shard import Grid, shard_of
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.native.build import Library, NativeUnavailable, obtain, source_key
from draftwerk.model.native.draft_head import NativeStep
from draftwerk.model.native.forward import NativeForward, page_format
from draftwerk.model.native.kv_pages import copy_blocks, move_slots
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.native.servable import check_formats
from draftwerk.model.native.trials import native_roofline, trial_s
from draftwerk.model.ranks.group import RankGroup
from draftwerk.model.ranks.leading import LeadingForward, Stage
from draftwerk.model.ranks.native_stage import NativeStage
from draftwerk.model.ranks.rank_round import RankRound, batch_of
from draftwerk.model.ranks.seats import Seats, group_bytes, take_seats
from draftwerk.model.reference.draft_head import TorchStep
from draftwerk.model.reference.forward import TorchForward, all_mine, prefer_speed
from draftwerk.model.reference.kv_pages import allocate, page_shape, private_pages
from draftwerk.model.reference.shared_pages import SharedPages, page_memory
from draftwerk.model.step.backend import Backend, BoundHead, LoadedModel
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.step.verify import rule_of
from draftwerk.model.text.grammar import Grammars, grammars_of
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.protocol.frames import OnProgress
from draftwerk.speculative.sampling.verification import Verify

CPU = torch.device("cpu")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
DEVICE_DTYPES = {
    "cpu": (*DTYPES, "int8", "int4"),
    "cuda": (*DTYPES, "int8", "int4", "fp16", "fp8"),
}
KV_DTYPES = ("auto", "int8", "fp8")
THREADS_S = 1.0
"""For finding the best number of threads, where there are many CPUs."""
READING_S = 0.3
TORCH_SLOWNESS = "3 to 5 times slower"
"""Measured: docs/measurements.md."""
NATIVE = "native"
"""The attention that comes with the C++ forward."""


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How one model is to run; plain data, so that it can cross to a device process."""

    source: str | None = None
    """A directory, GGUF file or hub name; None is the embedded default."""
    dtype: str = "bf16"
    device: str = "auto"
    attention: str = "auto"
    exact: bool = False
    """Whether a token's logits must not depend on its batch; on a CPU they never do by default."""
    threads: int = 0
    """0 means as many as are fastest, of the CPUs that affinity and the container's quota leave."""
    kv_dtype: str = "auto"
    """Of keys and values: auto (as the activations), int8 on a CPU, or fp8 on a GPU."""
    block_count: int = 256
    block_size: int = 16
    verify: Verify = "keyed"
    """The rule that verifies drafts."""
    draft_head: str = "off"
    """A file, "auto" for the one that came for this model if one did, or "off"."""
    survey: bool = False
    """Whether more steps are measured at start than serving needs."""
    successor_count: int = 0
    """How many of the best next tokens to report of every node computed."""
    pages_descriptor: int = -1
    """Of shared memory for the pages, which the parent owns; -1: the process has its own."""
    weights_descriptor: int = -1
    """Of shared memory for packed weights, likewise."""
    pipeline_parallel: int = 1
    """How many stages the layers are divided among, each in processes of its own."""
    tensor_parallel: int = 1
    """How many processes share the columns of a stage's products."""
    rank: int = 0
    """Which of these processes this is; rank 0 starts the others."""
    rendezvous: str = ""
    """A file by which torch's ranks find each other."""
    group_descriptor: int = -1
    """Of the memory in which ranks meet, which rank 0 owns."""
    rank_weights_descriptors: tuple[int, ...] = ()
    """Of memory for the packed weights of ranks 1, 2, ..., likewise the parent's."""
    measures: bool = True
    """Whether steps and memory are measured; one that succeeds another only warms up."""


class Built(NamedTuple):
    """A model, and what "auto" came to."""

    parts: LoadedModel
    device: str
    attention: str
    exact: bool
    """Whether a token's logits are the same bits whatever else is in the batch."""
    kernels: str = ""
    """The native kernels' instruction set and origin, or why there are none on a CPU."""
    threads: int = 0
    reading: tuple[int, float] = (0, 0.0)
    """Bytes that every step reads, and the milliseconds that this takes; 0 if not measured."""
    measured_s: float = 0.0
    """What measuring has taken so far."""
    roofline: Roofline | None = None
    """Where the machine's rates were measured."""
    fingerprint: str = ""
    """Of everything that decides the bytes of keys and values beside the tokens."""
    group: RankGroup | None = None
    """The other ranks of a divided model."""


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
    stage: Stage | TorchForward
    pages: Pages
    shared: SharedPages | None
    threads: int


class NativePart(NamedTuple):
    """What one rank has of a model on the native kernels, or all of it."""

    model: Checkpoint
    forward: NativeForward
    stage: Stage | NativeForward
    """The forward pass, and what is handed over before and after it."""
    pages: Pages
    shared: SharedPages | None
    pool: Pool
    threads: int
    measured_s: float


def build(
    options: ModelOptions, progress: OnProgress = lambda _: None, *, drafts: bool = False
) -> Built:
    """Load a model and make it ready to run, to draft for another or not. Raises Refused."""
    if options.kv_dtype not in KV_DTYPES:
        raise Refused(f"kv_dtype {options.kv_dtype!r} is not one of {', '.join(KV_DTYPES)}")
    device = _device(options.device)
    dtypes = DEVICE_DTYPES[device.type]
    if options.dtype not in dtypes:
        known = ", ".join(dtypes)
        raise Refused(f"dtype {options.dtype!r} is not one of {known} on {device.type}")
    if device.type == "cuda" and _grid(options).size > 1:
        raise Refused(
            "pipeline_parallel and tensor_parallel divide a model on a CPU: take device cpu"
        )
    if device.type == "cuda" and find_spec("triton") is not None:
        return _gpu(options, device, progress, drafts)
    if device.type == "cpu" and options.attention in ("auto", NATIVE):
        try:
            return _native(options, progress)
        except NativeUnavailable as error:
            if options.attention == NATIVE:
                raise Refused(f"attention native: {error}") from error
            check_formats(options.dtype, options.kv_dtype, str(error))
            progress(f"the native kernels cannot run here, torch will be slower: {error}")
            return _torch(options, device, progress, str(error))
    return _torch(options, device, progress)


def build_rank(options: ModelOptions, progress: OnProgress = lambda _: None) -> BuiltRank:
    """Return one of the ranks that rank 0 has started. Raises Refused."""
    if options.attention == NATIVE:
        torch.set_num_threads(1)
        part = _native_part(options, obtain(progress=progress), progress)
    else:
        part = _torch_part(options, CPU, progress)
    keys = part.pages.keys
    scratch = private_pages(tuple(keys.shape), keys.dtype)
    return BuiltRank(part.stage, part.pages, scratch, part.threads)


def build_runner(options: ModelOptions, progress: OnProgress = lambda _: None) -> TargetRunner:
    """Return a target model. Raises Refused."""
    return TargetRunner(
        build(options, progress).parts, options.successor_count, rule=rule_of(options.verify)
    )


def build_draft_runner(
    options: ModelOptions, target_vocab_size: int, progress: OnProgress = lambda _: None
) -> DraftRunner:
    """Return a draft model. Raises Refused, also for another vocabulary than the target's."""
    parts = build(options, progress, drafts=True).parts
    if parts.vocab_size != target_vocab_size:
        raise Refused(
            f"the draft model's vocabulary has {parts.vocab_size} tokens, the target's has "
            f"{target_vocab_size}; they must be the same"
        )
    return DraftRunner(parts, verify=options.verify)


def _native(options: ModelOptions, progress: OnProgress) -> Built:
    _check_kv_dtype(options, "int8")
    kernels = obtain(progress=progress)  # first: it fails before anything large is read
    torch.set_num_threads(1)  # a second pool of spinning threads would fight the first
    options, group = _lead(replace(options, attention=NATIVE), progress)
    part = _native_part(options, kernels, progress)
    model, pool, pages = part.model, part.pool, part.pages
    forward = part.stage if group is None else LeadingForward(part.stage, group, pages)
    sampler = NativeSampler(pool)
    backend = Backend(
        choose=sampler.choose_many,
        logprobs=sampler.logprobs,
        top_tokens=sampler.rank,
        candidates=sampler.candidates,
        copy_blocks=copy_blocks,
        move_slots=move_slots,
    )
    head = None
    vocabulary = _vocabulary(options, model.weights, part.forward.embedding)
    if weights := _draft_head(options, model.config, vocabulary):
        step = NativeStep(weights, vocabulary.embedding, vocabulary.lm_head, pool)
        head = BoundHead(step=step, forward=forward)
    parts = LoadedModel(
        forward=forward,
        pages=pages,
        vocab_size=model.config.vocab_size,
        backend=backend,
        grammars=_grammars(model),
        draft_head=head,
        shared=part.shared,
    )
    if group is not None:
        group.wait_until_ready()
    begun = perf_counter()
    reading, roofline = (0, 0.0), None
    if options.measures and group is None:  # a rank's rates are not the model's
        reading = part.forward.reading(READING_S)
        roofline = native_roofline(model.config, part.forward, pages, pool, reading)
    return Built(
        parts,
        "cpu",
        NATIVE,
        exact=True,
        kernels=f"{kernels.isa.name}, {kernels.origin}",
        threads=part.threads,
        reading=reading,
        measured_s=part.measured_s + perf_counter() - begun,
        roofline=roofline,
        fingerprint=_page_fingerprint(options, model.directory, _kernel_words(kernels)),
        group=group,
    )


def _native_part(options: ModelOptions, kernels: Library, progress: OnProgress) -> NativePart:
    """Return what this process has of the model: all of it, or a rank's share."""
    grid = _grid(options)
    shard, seats = None, Seats()
    if grid.size > 1:
        config = read_config(locate(options.source)[1])
        shard = shard_of(config, grid, options.rank)
        seats = take_seats(mapped(options.group_descriptor), config, grid, options.rank)
    store = _weight_store(options, kernels)
    tries_threads = not options.threads and usable_cpus() > ALWAYS_ALL
    has_matrices = store is None or not store.is_packed or tries_threads
    model = load(options.source, None, progress=progress, matrices=has_matrices, shard=shard)
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
    )
    shape = page_shape(model.config, options.block_count, options.block_size, forward.page_width)
    shared, pages = page_memory(shape, forward.page_dtype, options.pages_descriptor)
    stage = forward if shard is None else NativeStage(forward, shard, seats)
    return NativePart(model, forward, stage, pages, shared, pool, threads, measured_s)


def _grid(options: ModelOptions) -> Grid:
    return Grid(options.pipeline_parallel, options.tensor_parallel)


def _lead(options: ModelOptions, progress: OnProgress) -> tuple[ModelOptions, RankGroup | None]:
    """Start the other ranks of a divided model; returns the options of this one. Raises Refused."""
    grid = _grid(options)
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


def _vocabulary(
    options: ModelOptions, weights: Weights, embedding: Tensor, dtype: torch.dtype | None = None
) -> Weights:
    """Return the weights that a draft head reads of its target, whole, and this embedding's."""
    if _grid(options).size == 1:
        return replace_weights(weights, embedding=embedding)
    if options.draft_head == "off":
        return weights
    vocabulary = load_vocabulary(options.source, dtype)
    return replace_weights(vocabulary, embedding=vocabulary.embedding.to(embedding.dtype))


def _weight_store(options: ModelOptions, kernels: Library) -> WeightStore | None:
    """Return where packed weights are shared, if the parent has handed memory over."""
    if options.weights_descriptor < 0:
        return None
    _, directory = locate(options.source)
    cache = cache_directory()
    grid = _grid(options)
    share = (f"rank {options.rank} of {grid}",) if grid.size > 1 else ()
    words = (options.dtype, *_kernel_words(kernels), *share)
    fingerprint = weights_fingerprint(directory, cache, words)
    if fingerprint is None:
        return None
    return WeightStore(options.weights_descriptor, fingerprint, cache)


def _kernel_words(kernels: Library) -> tuple[str, str]:
    return kernels.isa.name, source_key(kernels.isa)


def _page_fingerprint(options: ModelOptions, directory: Path, words: tuple[str, ...]) -> str:
    """Return what tells these pages' bytes from all others; empty where nothing can."""
    if options.pages_descriptor < 0:
        return ""
    words = (options.dtype, options.kv_dtype, str(options.block_size), *words)
    found = weights_fingerprint(directory, cache_directory(), words)
    return "" if found is None else found.hex()


def _threads(model: Checkpoint, dtype: str) -> int:
    """Return the number of threads on which the model is fastest."""
    return fastest_count(
        usable_cpus(),
        lambda count: trial_s(model.config, model.weights, dtype, count),
        THREADS_S,
    )


def _gpu(options: ModelOptions, device: torch.device, progress: OnProgress, drafts: bool) -> Built:
    # Triton is not everywhere, and takes a second to import.
    from draftwerk.model.gpu.build import FORMATS, GpuSettings, gpu_parts
    from draftwerk.model.gpu.graphs import CudaRecorder

    _check_kv_dtype(options, "fp8")
    model = load(options.source, FORMATS[options.dtype].dtype, device, progress)
    settings = GpuSettings(
        options.dtype,
        options.attention,
        options.exact,
        options.block_count,
        options.block_size,
        kv_dtype=options.kv_dtype,
        drafts=drafts,
    )
    draft_head = _draft_head(options, model.config, model.weights)
    parts, chosen = gpu_parts(
        model, settings, CudaRecorder(), _grammars(model), progress, draft_head
    )
    return Built(parts, device.type, chosen.name, options.exact)


def _torch(
    options: ModelOptions, device: torch.device, progress: OnProgress, why: str = ""
) -> Built:
    """Build the fallback; `why` says what keeps the native kernels from a CPU."""
    if options.dtype not in DTYPES:
        needed = "Triton" if device.type == "cuda" else "the native kernels of a CPU"
        raise Refused(f"dtype {options.dtype!r} needs {needed}")
    _check_kv_dtype(options)
    name = choose_attention(options.attention, _needs(options, device)).name
    options, group = _lead(replace(options, attention=name), progress)
    part = _torch_part(options, device, progress)
    model, pages = part.model, part.pages
    forward = part.stage if group is None else LeadingForward(part.stage, group, pages)
    head = None
    embedding = model.weights.embedding
    vocabulary = _vocabulary(options, model.weights, embedding, embedding.dtype)
    if weights := _draft_head(options, model.config, vocabulary):
        head = BoundHead(step=TorchStep(weights, vocabulary), forward=forward)
    if group is not None:
        group.wait_until_ready()
    parts = LoadedModel(
        forward=forward,
        pages=pages,
        vocab_size=model.config.vocab_size,
        grammars=_grammars(model),
        draft_head=head,
        shared=part.shared,
    )
    kernels = f"none ({why}): torch serves, {TORCH_SLOWNESS}" if why else ""
    return Built(
        parts,
        device.type,
        name,
        exact=False,
        kernels=kernels,
        threads=part.threads,
        fingerprint=_page_fingerprint(options, model.directory, (name, torch.__version__)),
        group=group,
    )


def _needs(options: ModelOptions, device: torch.device) -> Needs:
    return Needs(device, options.block_size, options.exact and device.type == "cuda")


def _torch_part(options: ModelOptions, device: torch.device, progress: OnProgress) -> TorchPart:
    """Return what this process has of the model: all of it, or a rank's share."""
    dtype, grid, threads = DTYPES[options.dtype], _grid(options), 0
    if device.type == "cpu":
        threads = options.threads or usable_cpus()
        torch.set_num_threads(threads)
    attention = choose_attention(options.attention, _needs(options, device)).attention
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
    stage: Stage | TorchForward = forward
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


def _check_kv_dtype(options: ModelOptions, served: str = "auto") -> None:
    """Raise Refused for a format other than auto and the one that is served."""
    if options.kv_dtype not in ("auto", served):
        needed = {"int8": "the native kernels of a CPU", "fp8": "a GPU, and Triton"}
        raise Refused(f"kv_dtype {options.kv_dtype!r} needs {needed[options.kv_dtype]}")


def _draft_head(options: ModelOptions, config: ModelConfig, weights: Weights) -> DraftHead | None:
    if options.draft_head == "off":
        return None
    return find(options.draft_head, config, weights)


def _grammars(model: Checkpoint) -> Grammars | None:
    config = model.config
    return grammars_of(model.directory, config.vocab_size, config.eos_token_ids)


def _device(name: str) -> torch.device:
    if name not in ("auto", "cpu", "cuda"):
        raise Refused(f"device {name!r} is not one of auto, cpu, cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise Refused("device cuda: torch sees none here")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
