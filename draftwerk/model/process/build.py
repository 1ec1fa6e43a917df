"""From options to a running model: the factory a device process calls."""

from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from msgspec.structs import replace

from draftwerk.model.attention.choice import choose_attention
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.packed_weights import weights_fingerprint
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.native.build import NativeUnavailable, obtain
from draftwerk.model.native.draft_head import NativeStep
from draftwerk.model.native.kv_pages import NativeTurn, copy_blocks, move_slots
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.native.servable import check_formats
from draftwerk.model.native.stored import STORED
from draftwerk.model.native.trials import native_roofline
from draftwerk.model.ranks.group import RankGroup
from draftwerk.model.ranks.leading import LeadingForward
from draftwerk.model.ranks.parts import (
    DTYPES,
    NATIVE,
    grid_of,
    kernel_words,
    lead,
    native_part,
    needs_of,
    torch_part,
    vocabulary_of,
)
from draftwerk.model.reference.draft_head import TorchStep
from draftwerk.model.step.backend import Backend, BoundHead, LoadedModel
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.step.verify import rule_of
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
    blends: str = ""
    """Fingerprint of what decides how far blended texts are from exact ones; empty where segments
    cannot be reused."""
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
    dtypes = DEVICE_DTYPES[device.type]
    if options.dtype not in dtypes:
        known = ", ".join(dtypes)
        raise Refused(f"dtype {options.dtype!r} is not one of {known} on {device.type}")
    if device.type == "cuda" and grid_of(options).size > 1:
        raise Refused(
            "pipeline_parallel and tensor_parallel divide a model on a CPU: take device cpu"
        )
    if device.type == "cuda" and find_spec("triton") is not None:
        return _gpu(options, device, progress, drafts)
    if device.type == "cpu" and options.attention in ("auto", NATIVE):
        try:
            return _native(options, progress, grammars)
        except NativeUnavailable as error:
            if options.attention == NATIVE:
                raise Refused(f"attention native: {error}") from error
            check_formats(options.dtype, options.kv_dtype, str(error))
            progress(f"the native kernels cannot run here, torch will be slower: {error}")
            return _torch(options, device, progress, str(error))
    return _torch(options, device, progress)


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


def _native(options: ModelOptions, progress: OnProgress, grammars: Grammars | None) -> Built:
    _check_kv_dtype(options, "int8")
    kernels = obtain(progress=progress)  # first: it fails before anything large is read
    torch.set_num_threads(1)  # a second pool of spinning threads would fight the first
    options, group = lead(replace(options, attention=NATIVE), progress)
    part = native_part(options, kernels, progress)
    model, pool, pages = part.model, part.pool, part.pages
    forward = part.forward
    if group is not None and part.stage is not None:
        forward = LeadingForward(part.stage, group, pages)
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
    vocabulary = vocabulary_of(options, model.weights, part.forward.embedding)
    if weights := _draft_head(options, model.config, vocabulary):
        is_stored = group is None and part.forward.embedding is None
        embedding = part.forward if is_stored else vocabulary.embedding
        step = NativeStep(weights, embedding, vocabulary.lm_head, pool)
        head = BoundHead(step=step, forward=forward)
    parts = LoadedModel(
        forward=forward,
        pages=pages,
        vocab_size=model.config.vocab_size,
        backend=backend,
        grammars=grammars or _grammars(model),
        draft_head=head,
        shared=part.shared,
        turn_slots=_turn_slots(options, model.config, pool) if group is None else None,
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
        fingerprint=_page_fingerprint(options, model.directory, kernel_words(kernels)),
        blends=_fingerprint(options, model.directory, ("blend",)) if parts.turn_slots else "",
        group=group,
    )


def _turn_slots(options: ModelOptions, config: ModelConfig, pool: Pool) -> NativeTurn | None:
    """Return what turns copied keys to their places, where segments can be reused."""
    # Keys in one byte would be rounded twice.
    if options.kv_dtype == "int8" or config.layer_count <= CHECK_LAYER:
        return None
    return NativeTurn(pool, config.rope_inverse_frequencies)


def _page_fingerprint(options: ModelOptions, directory: Path, words: tuple[str, ...]) -> str:
    """Return what tells these pages' bytes from all others; empty where nothing can."""
    if options.pages_descriptor < 0:
        return ""
    return _fingerprint(options, directory, words)


def _fingerprint(options: ModelOptions, directory: Path, words: tuple[str, ...]) -> str:
    words = (options.dtype, options.kv_dtype, str(options.block_size), *words)
    found = weights_fingerprint(directory, cache_directory(), words)
    return "" if found is None else found.hex()


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
    name = choose_attention(options.attention, needs_of(options, device)).name
    options, group = lead(replace(options, attention=name), progress)
    part = torch_part(options, device, progress)
    model, pages = part.model, part.pages
    forward = part.forward
    if group is not None and part.stage is not None:
        forward = LeadingForward(part.stage, group, pages)
    head = None
    embedding = model.weights.embedding
    vocabulary = vocabulary_of(options, model.weights, embedding, embedding.dtype)
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
