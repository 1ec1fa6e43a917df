"""From options to a running model: the factory a device process calls."""

from collections.abc import Callable
from dataclasses import replace as dataclass_replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from msgspec.structs import replace

from draftwerk.model.batch.batch import Forward, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import cache_directory, locate
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.model_options import NATIVE, TRANSFORMERS, ModelOptions
from draftwerk.model.checkpoint.packed_weights import identity_fingerprint, weights_fingerprint
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.draft_head.torch_step import TorchStep
from draftwerk.model.gpu.choice import choose_attention
from draftwerk.model.native.build import Library, NativeUnavailable, obtain
from draftwerk.model.native.draft_head import NativeStep
from draftwerk.model.native.kv_pages import NativeTurn, copy_blocks, move_slots
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.native.servable import check_formats
from draftwerk.model.native.stored import STORED
from draftwerk.model.native.trials import native_roofline
from draftwerk.model.process.parts import (
    DTYPES,
    generic_part,
    kernel_words,
    merge_words,
    native_part,
    needs_of,
    torch_part,
    vocabulary_of,
)
from draftwerk.model.ranks.division import divide
from draftwerk.model.ranks.group import RankGroup
from draftwerk.model.ranks.rank_round import RankRound, batch_of
from draftwerk.model.ranks.share import WHOLE, Share, grid_of, share_of
from draftwerk.model.reference.kv_pages import private_pages
from draftwerk.model.step.backend import Backend, BoundHead, LoadedModel
from draftwerk.model.text.grammar import Grammars, grammars_of
from draftwerk.speculative.blend.rules import CHECK_LAYER
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.protocol.forks import NurseryModel
from draftwerk.speculative.protocol.frames import OnProgress

DEVICE_DTYPES = {
    "cpu": (*DTYPES, "int8", "int4", STORED),
    "cuda": (*DTYPES, "int8", "int4", "fp16", "fp8"),
}
KV_DTYPES = ("auto", "int8", "fp8")
READING_S = 0.3
TORCH_SLOWNESS = "3 to 5 times slower"
"""Measured: docs/measurements.md."""


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
    blends: bool = False
    """Whether segments of prompts can be reused."""
    group: RankGroup | None = None
    """The other ranks of a divided model."""


def build(
    options: ModelOptions,
    progress: OnProgress = lambda _: None,
    *,
    drafts: bool = False,
    grammars: Grammars | None = None,
) -> Built:
    """Load a model and make it ready to run, to draft for another or not. Raises Refused.

    `grammars` over its tokens, where they were made before, need not be made again.
    """
    if options.kv_dtype not in KV_DTYPES:
        raise Refused(f"kv_dtype {options.kv_dtype!r} is not one of {', '.join(KV_DTYPES)}")
    device = _device(options.device)
    if options.backend == TRANSFORMERS:
        return _transformers(options, device, progress)
    dtypes = DEVICE_DTYPES[device.type]
    if options.dtype not in dtypes:
        known = ", ".join(dtypes)
        raise Refused(f"dtype {options.dtype!r} is not one of {known} on {device.type}")
    if device.type == "cuda" and grid_of(options).size > 1:
        raise Refused(
            "pipeline_parallel and tensor_parallel divide a model on a CPU: take device cpu"
        )
    if options.lora or options.lora_merge:
        _check_adapters(options, device)
    if device.type == "cuda" and find_spec("triton") is not None:
        return _gpu(options, device, progress, drafts)
    why = ""
    if device.type == "cpu" and options.attention in ("auto", NATIVE):
        _check_kv_dtype(options, "int8")
        try:
            kernels = obtain(progress=progress)  # first: it fails before anything large is read
        except NativeUnavailable as error:
            if options.attention == NATIVE:
                raise Refused(f"attention native: {error}") from error
            check_formats(options.dtype, options.kv_dtype, str(error))
            progress(f"the native kernels cannot run here, torch will be slower: {error}")
            why = str(error)
        else:
            make = partial(_native, kernels=kernels, progress=progress, grammars=grammars)
            return _whole_or_divided(replace(options, attention=NATIVE), make, progress)
    _check_torch(options, device)
    name = choose_attention(options.attention, needs_of(options, device)).name
    make = partial(_torch, device=device, progress=progress, why=why)
    return _whole_or_divided(replace(options, attention=name), make, progress)


def _check_adapters(options: ModelOptions, device: torch.device) -> None:
    """Raise Refused where adapters are not served."""
    if device.type == "cuda":
        raise Refused("lora and lora_merge are not served on a GPU yet: take device cpu")
    if grid_of(options).size > 1:
        raise Refused(
            "lora and lora_merge do not go together with pipeline_parallel and tensor_parallel yet"
        )


def _whole_or_divided(
    options: ModelOptions, make: Callable[[ModelOptions, Share], Built], progress: OnProgress
) -> Built:
    """Build a model in this process, or this one's share of it with the other ranks around."""
    if grid_of(options).size == 1:
        return make(options, WHOLE)
    _, directory = locate(options.source, progress, reads=True)
    _check_plain(read_config(directory), "by several ranks")
    division = divide(options, progress)
    share = share_of(division.options, DTYPES.get(options.dtype, torch.float32))
    built = make(division.options, share)
    forward = division.around(built.parts.forward, built.parts.pages, share)
    parts = dataclass_replace(built.parts, forward=forward)
    return built._replace(parts=parts, group=division.group)


def build_rank(options: ModelOptions, progress: OnProgress = lambda _: None) -> BuiltRank:
    """Return one of the ranks that rank 0 has started. Raises Refused."""
    share = share_of(options, DTYPES.get(options.dtype, torch.float32))
    if options.attention == NATIVE:
        torch.set_num_threads(1)
        part = native_part(options, obtain(progress=progress), share, progress)
    else:
        part = torch_part(options, torch.device("cpu"), share, progress)
    keys = part.pages.keys
    scratch = private_pages(tuple(keys.shape), keys.dtype)
    return BuiltRank(share.stage(part.forward), part.pages, scratch, part.threads)


def _native(
    options: ModelOptions,
    share: Share,
    *,
    kernels: Library,
    progress: OnProgress,
    grammars: Grammars | None,
) -> Built:
    torch.set_num_threads(1)  # a second pool of spinning threads would fight the first
    part = native_part(options, kernels, share, progress)
    model, pool, pages, forward = part.model, part.pool, part.pages, part.forward
    is_whole = share.shard is None
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
    vocabulary = vocabulary_of(options, model.weights, forward.embedding, share)
    if weights := _draft_head(options, model.config, vocabulary):
        is_stored = is_whole and forward.embedding is None
        embedding = forward if is_stored else vocabulary.embedding
        step = NativeStep(weights, embedding, vocabulary.lm_head, pool)
        head = BoundHead(step=step, forward=forward)
    parts = LoadedModel(
        forward=forward,
        pages=pages,
        vocab_size=model.config.vocab_size,
        backend=backend,
        grammars=grammars or _grammars(model),
        draft_head=head,
        adapters=part.adapters,
        shared=part.shared,
        turn_slots=_turn_slots(options, model.config, pool) if is_whole else None,
    )
    begun = perf_counter()
    reading, roofline = (0, 0.0), None
    if options.measures and is_whole:  # a rank's rates are not the model's
        reading = forward.reading(READING_S)
        roofline = native_roofline(model.config, forward, pages, pool, reading)
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
        fingerprint=_page_fingerprint(options, model.directory, kernel_words(kernels)),
        blends=parts.turn_slots is not None,
    )


def _turn_slots(options: ModelOptions, config: ModelConfig, pool: Pool) -> NativeTurn | None:
    """Return what turns copied keys to their places, where segments can be reused."""
    # Keys in one byte would be rounded twice; turning knows one rotation for all layers.
    rounded = options.kv_dtype == "int8"
    if rounded or config.layer_count <= CHECK_LAYER or config.unlike_llama():
        return None
    return NativeTurn(pool, config.rope_inverse_frequencies)


def _page_fingerprint(options: ModelOptions, directory: Path, words: tuple[str, ...]) -> str:
    """Return what tells these pages' bytes from all others; empty where nothing can."""
    if options.pages_descriptor < 0:
        return ""
    words = (options.dtype, options.kv_dtype, str(options.block_size), *words)
    words += merge_words(options)
    if read_card(directory) is not None:  # hashing it would take longer than packing it
        return identity_fingerprint(directory, words).hex()
    found = weights_fingerprint(directory, cache_directory(), words)
    return "" if found is None else found.hex()


def _gpu(options: ModelOptions, device: torch.device, progress: OnProgress, drafts: bool) -> Built:
    # Triton is not everywhere, and takes a second to import.
    from draftwerk.model.gpu.build import FORMATS, GpuSettings, gpu_parts
    from draftwerk.model.gpu.graphs import CudaRecorder

    _check_kv_dtype(options, "fp8")
    _, directory = locate(options.source, progress, reads=True)
    _check_plain(read_config(directory), "on a GPU: take device cpu")
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


def _check_plain(config: ModelConfig, where: str) -> None:
    """Raise Refused for a model that is more than Llama's plain graph."""
    if switch := config.unlike_llama():
        raise Refused(f"{config.architecture}: {switch} is not served {where}")


def _check_torch(options: ModelOptions, device: torch.device) -> None:
    """Raise Refused for a format that torch alone does not serve."""
    if options.dtype not in DTYPES:
        needed = "Triton" if device.type == "cuda" else "the native kernels of a CPU"
        raise Refused(f"dtype {options.dtype!r} needs {needed}")
    _check_kv_dtype(options)


def _torch(
    options: ModelOptions, share: Share, *, device: torch.device, progress: OnProgress, why: str
) -> Built:
    """Build the fallback; `why` says what keeps the native kernels from a CPU."""
    if device.type == "cuda":
        _, directory = locate(options.source, progress, reads=True)
        _check_plain(read_config(directory), "on a GPU: take device cpu")
    part = torch_part(options, device, share, progress)
    model, pages, forward = part.model, part.pages, part.forward
    head = None
    embedding = model.weights.embedding
    vocabulary = vocabulary_of(options, model.weights, embedding, share, embedding.dtype)
    if weights := _draft_head(options, model.config, vocabulary):
        head = BoundHead(step=TorchStep(weights, vocabulary), forward=forward)
    parts = LoadedModel(
        forward=forward,
        pages=pages,
        vocab_size=model.config.vocab_size,
        grammars=_grammars(model),
        draft_head=head,
        adapters=part.adapters,
        shared=part.shared,
    )
    kernels = f"none ({why}): torch serves, {TORCH_SLOWNESS}" if why else ""
    words = options.attention, torch.__version__
    return Built(
        parts,
        device.type,
        options.attention,
        exact=False,
        kernels=kernels,
        threads=part.threads,
        fingerprint=_page_fingerprint(options, model.directory, words),
    )


def _transformers(options: ModelOptions, device: torch.device, progress: OnProgress) -> Built:
    """Build a model of Transformers, on a CPU."""
    if device.type != "cpu" or options.dtype not in DTYPES or options.kv_dtype != "auto":
        raise Refused("backend transformers serves bf16 or fp32 on device cpu alone")
    if options.lora or options.lora_merge or grid_of(options).size > 1:
        raise Refused("backend transformers serves no adapters, and a model whole")
    part = generic_part(options, progress)
    model = part.model
    parts = LoadedModel(
        forward=part.forward,
        pages=part.pages,
        vocab_size=model.vocab_size,
        grammars=grammars_of(part.directory, model.vocab_size, model.eos_token_ids),
        shared=part.shared,
    )
    library = f"Transformers {version('transformers')}"
    return Built(
        parts,
        device.type,
        "tiled",
        exact=True,
        kernels=f"none: {library} computes, slower than a declared architecture is",
        threads=part.threads,
        fingerprint=_page_fingerprint(options, part.directory, (library, torch.__version__)),
    )


def _check_kv_dtype(options: ModelOptions, served: str = "auto") -> None:
    """Raise Refused for a format other than auto and the one that is served."""
    if options.kv_dtype not in ("auto", served):
        needed = {"int8": "the native kernels of a CPU", "fp8": "a GPU, and Triton"}
        raise Refused(f"kv_dtype {options.kv_dtype!r} needs {needed[options.kv_dtype]}")


def _draft_head(options: ModelOptions, config: ModelConfig, weights: Weights) -> DraftHead | None:
    if options.draft_head == "off":
        return None
    return find(options.draft_head, config, weights)


def grammars_for(model: NurseryModel) -> Grammars | None:
    """Return the grammars over a model's tokens, before anything else of it is read."""
    return grammars_of(Path(model.directory), model.vocab_size, model.stop_token_ids)


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
