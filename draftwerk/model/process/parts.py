"""The parts of a model in one process on a CPU: weights, forward pass, pages."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from draftwerk.cache.kinds.window_table import WindowBlocks
from draftwerk.cache.pages.kv_formats import learns
from draftwerk.machine.host import memory_bytes as machine_bytes
from draftwerk.machine.threads import ALWAYS_ALL, fastest_count, usable_cpus
from draftwerk.model.attention.padded import PaddedAttention
from draftwerk.model.attention.tiled import TiledAttention
from draftwerk.model.batch.batch import Forward, Pages
from draftwerk.model.checkpoint.attention_window import windowed_config
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.loader import CPU, Checkpoint, load, load_vocabulary
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.packed_weights import (
    WeightStore,
    identity_fingerprint,
)
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import AnyWeights, Weights
from draftwerk.model.gpu.choice import Needs, choose_attention
from draftwerk.model.native.build import Library, source_key
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.learnt_keys import TEXT
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import dequantised, rows_of
from draftwerk.model.native.trials import trial_s
from draftwerk.model.process.lora_cards import add_adapters, lora_cards
from draftwerk.model.ranks.share import Share
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import page_shape
from draftwerk.model.reference.shared_pages import (
    NO_STATES,
    NO_WINDOW,
    SharedPages,
    page_memory,
)
from draftwerk.model.text.vocabulary import FILE, read_tokenizer
from draftwerk.model.text.vocabulary_text import VocabularyText
from draftwerk.speculative.protocol.frames import OnProgress

if TYPE_CHECKING:
    from draftwerk.model.generic.causal_lm import CausalLM

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FIRST_ROWS = 16
THREADS_S = 1.0
"""For finding the best number of threads, where there are many CPUs."""


class TorchPart(NamedTuple):
    """A model in torch, or a share of one."""

    model: Checkpoint
    forward: TorchForward
    pages: Pages
    shared: SharedPages | None
    threads: int
    adapters: dict[str, int]
    """Their numbers by their digests."""


class GenericPart(NamedTuple):
    """A model that Transformers computes."""

    model: "CausalLM"
    directory: Path
    forward: Forward
    pages: Pages
    shared: SharedPages | None
    threads: int


class NativePart(NamedTuple):
    """A model on the native kernels, or a share of one."""

    model: Checkpoint
    forward: NativeForward
    pages: Pages
    shared: SharedPages | None
    pool: Pool
    threads: int
    measured_s: float
    adapters: dict[str, int]
    """Their numbers by their digests."""
    store: WeightStore | None = None


def native_part(
    options: ModelOptions, kernels: Library, share: Share, progress: OnProgress
) -> NativePart:
    """Load a share of a model, and make it ready to run on the native kernels."""
    store = _weight_store(options, kernels, share)
    if store is None or not store.is_packed:
        locate(options.source, progress, reads=True)
    tries_threads = not options.threads and usable_cpus() > ALWAYS_ALL
    has_matrices = store is None or not store.is_packed or tries_threads
    config = read_config(locate(options.source)[1])
    model = load(
        options.source,
        None,
        progress=progress,
        matrices=has_matrices,
        shard=share.shard,
        keeps_blocks=options.dtype == STORED,
        dequantise=dequantised,
        merged=lora_cards(options.lora_merge, config),
        is_exact=options.dtype == "fp32",
    )
    if options.window is not None:
        model = replace(model, config=windowed_config(model.config, options.window))
    _check_blocks(options, model.weights)
    begun = perf_counter()
    threads = options.threads or _threads(model, options.dtype)
    measured_s = perf_counter() - begun
    pool = Pool(threads)
    text = _learnt_text(model.directory) if learns(options.kv_dtype) else []
    with model.being_read() if has_matrices else nullcontext():
        forward = NativeForward(
            model.config,
            model.weights,
            options.dtype,
            pool,
            options.kv_dtype,
            store,
            share.shard,
            share.seats.columns_handle,
            on_layer=model.layer_done,
            text=text,
        )
    adapters = add_adapters(forward, options.lora, config)
    shared, pages = _pages(options, model.config, forward.page_dtype, forward.page_width)
    return NativePart(model, forward, pages, shared, pool, threads, measured_s, adapters, store)


def _learnt_text(directory: Path) -> list[int]:
    """Return the tokens that int4 learns keys from; none where there is no tokenizer."""
    if not (directory / FILE).is_file():
        return []
    return VocabularyText(read_tokenizer(directory)).encode(TEXT)


def _pages(
    options: ModelOptions, config: ModelConfig, dtype: torch.dtype, width: int = 0
) -> tuple[SharedPages | None, Pages]:
    """Return keys, values and recurrent states, in memory that the parent may own."""
    size, apart, window = options.block_size, options.window_blocks, NO_WINDOW
    shape = page_shape(config, options.block_count, size, width, "others" if apart else "all")
    if apart:
        window = page_shape(config, apart, size, width, "windowed")
    states = (options.state_slots, config.state_size) if config.state_size else NO_STATES
    shared, pages = page_memory(shape, dtype, options.pages_descriptor, states, window)
    longest = max((each.window for each in config.layers), default=0)
    pages.window_blocks = WindowBlocks(apart, longest, kept=-(-config.kept // size))
    return shared, pages


def torch_part(options: ModelOptions, share: Share, progress: OnProgress) -> TorchPart:
    """Load a share of a model, and make it ready to run in torch."""
    dtype, threads = DTYPES[options.dtype], options.threads or usable_cpus()
    torch.set_num_threads(threads)
    attention = choose_attention(options.attention, needs_of(options)).attention
    is_exact = share.shard is not None or options.exact
    if is_exact and isinstance(attention, PaddedAttention):
        attention = TiledAttention()
    _, directory = locate(options.source, progress, reads=True)
    merged = lora_cards(options.lora_merge, read_config(directory))
    model = load(options.source, dtype, CPU, progress, shard=share.shard, merged=merged)
    forward = TorchForward(model.config, model.weights, attention, share.shard, share.gather)
    if not is_exact:
        forward.linear.prefer_speed(forward.weights, machine_bytes())
    adapters = add_adapters(forward, options.lora, model.config)
    shared, pages = _pages(options, model.config, dtype)
    return TorchPart(model, forward, pages, shared, threads, adapters)


def generic_part(options: ModelOptions, progress: OnProgress) -> GenericPart:
    """Load a causal model of Transformers; it must pass its test where it is to be measured."""
    # What few use takes seconds to import.
    from draftwerk.model.generic.causal_lm import read_causal
    from draftwerk.model.generic.generic_forward import GenericForward, load_causal
    from draftwerk.model.generic.self_test import check_model

    threads = options.threads or usable_cpus()
    torch.set_num_threads(threads)
    name, directory = locate(options.source, progress, reads=True)
    model, dtype = read_causal(directory), DTYPES[options.dtype]
    progress(f"reading {name} with Transformers")
    forward = GenericForward(load_causal(directory, model, dtype), TiledAttention(), model.layers)
    if options.measures:  # one that succeeds another has passed it
        progress("computing a text in several ways, which must all come to the same")
        check_model(forward, model)
    shape = page_shape(model, options.block_count, options.block_size)
    shared, pages = page_memory(shape, dtype, options.pages_descriptor)
    return GenericPart(model, directory, forward, pages, shared, threads)


def _check_blocks(options: ModelOptions, weights: AnyWeights) -> None:
    """Refuse to serve as stored what its file has not quantised."""
    if options.dtype == STORED and isinstance(weights.lm_head, Tensor):
        raise Refused(f"dtype {STORED!r} is the blocks of a quantised GGUF, which this is not")


def needs_of(options: ModelOptions) -> Needs:
    return Needs(CPU, options.block_size)


def vocabulary_of(
    options: ModelOptions,
    weights: Weights,
    embedding: Tensor | None,
    share: Share,
    dtype: torch.dtype | None = None,
) -> Weights:
    """Return the weights that a draft head reads of its target, whole, and this embedding's."""
    if share.shard is None:
        if embedding is None:  # a head is told by its target's first rows
            embedding = rows_of(weights.embedding, torch.arange(FIRST_ROWS))
        return replace(weights, embedding=embedding)
    if options.draft_head == "off":
        return weights
    vocabulary = load_vocabulary(options.source, dtype)
    if embedding is None:
        return vocabulary
    return replace(vocabulary, embedding=vocabulary.embedding.to(embedding.dtype))


def _weight_store(options: ModelOptions, kernels: Library, share: Share) -> WeightStore | None:
    """Return where packed weights are shared, if the parent has handed memory over."""
    if options.weights_descriptor < 0:
        return None
    _, directory = locate(options.source)
    words = (options.dtype, *kernel_words(kernels), *share.words, *merge_words(options))
    fingerprint = identity_fingerprint(directory, words)
    return WeightStore(options.weights_descriptor, fingerprint, options.weight_store)


def merge_words(options: ModelOptions) -> tuple[str, ...]:
    """Return what tells weights with merged adapters from others."""
    return tuple(f"merged {each.digest}" for each in options.lora_merge)


def kernel_words(kernels: Library) -> tuple[str, str]:
    return kernels.isa.name, source_key(kernels.isa)


def _threads(model: Checkpoint, dtype: str) -> int:
    """Return the number of threads on which the model is fastest."""
    return fastest_count(
        usable_cpus(),
        lambda count: trial_s(model.config, model.weights, dtype, count),
        THREADS_S,
    )
