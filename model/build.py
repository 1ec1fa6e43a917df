"""From options to a running model: the factory a device process calls."""

from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import msgspec
import torch

from draftwerk.machine.host import memory_bytes
from draftwerk.machine.threads import ALWAYS_ALL, fastest_count, usable_cpus
from draftwerk.model.attention.choice import Needs, choose_attention
from draftwerk.model.checkpoint.hub import cache_directory, locate
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.packed_weights import WeightStore, weights_fingerprint
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.native.build import Library, NativeUnavailable, obtain, source_key
from draftwerk.model.native.draft_head import NativeStep
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.kv_pages import NativeTurn, copy_blocks, move_slots
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.native.servable import check_formats
from draftwerk.model.native.trials import native_roofline, trial_s
from draftwerk.model.reference.draft_head import TorchStep
from draftwerk.model.reference.forward import TorchForward, prefer_speed
from draftwerk.model.reference.kv_pages import allocate, page_shape
from draftwerk.model.reference.shared_pages import page_memory
from draftwerk.model.step.backend import Backend, BoundHead, LoadedModel
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.step.verify import rule_of
from draftwerk.model.text.grammar import Grammars, grammars_of
from draftwerk.speculative.blend.rules import CHECK_LAYER
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.protocol.frames import OnProgress
from draftwerk.speculative.sampling.verification import Verify

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
    blends: str = ""
    """Fingerprint of what decides how far blended texts are from exact ones; empty where segments
    cannot be reused."""


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
    store = _weight_store(options, kernels)
    tries_threads = not options.threads and usable_cpus() > ALWAYS_ALL
    has_matrices = store is None or not store.is_packed or tries_threads
    model = load(options.source, None, progress=progress, matrices=has_matrices)
    begun = perf_counter()
    threads = options.threads or _threads(model, options.dtype)
    measured_s = perf_counter() - begun
    pool = Pool(threads)
    forward = NativeForward(
        model.config, model.weights, options.dtype, pool, options.kv_dtype, store
    )
    sampler = NativeSampler(pool)
    backend = Backend(
        choose=sampler.choose_many,
        logprobs=sampler.logprobs,
        top_tokens=sampler.rank,
        candidates=sampler.candidates,
        copy_blocks=copy_blocks,
        move_slots=move_slots,
    )
    shared, pages = page_memory(
        page_shape(model.config, options.block_count, options.block_size, forward.page_width),
        forward.page_dtype,
        options.pages_descriptor,
    )
    head = None
    if weights := _draft_head(options, model):
        step = NativeStep(weights, forward.embedding, model.weights.lm_head, pool)
        head = BoundHead(step=step, forward=forward)
    parts = LoadedModel(
        forward=forward,
        pages=pages,
        vocab_size=model.config.vocab_size,
        backend=backend,
        grammars=_grammars(model),
        draft_head=head,
        shared=shared,
        # Keys in one byte would be rounded twice.
        turn_slots=NativeTurn(pool, model.config.rope_inverse_frequencies)
        if options.kv_dtype != "int8" and model.config.layer_count > CHECK_LAYER
        else None,
    )
    begun = perf_counter()
    reading = forward.reading(READING_S) if options.measures else (0, 0.0)
    roofline = None
    if options.measures:
        roofline = native_roofline(model.config, forward, pages, pool, reading)
    return Built(
        parts,
        "cpu",
        NATIVE,
        exact=True,
        kernels=f"{kernels.isa.name}, {kernels.origin}",
        threads=threads,
        reading=reading,
        measured_s=measured_s + perf_counter() - begun,
        roofline=roofline,
        fingerprint=_page_fingerprint(options, model.directory, _kernel_words(kernels)),
        blends=_fingerprint(options, model.directory, ("blend",)) if parts.turn_slots else "",
    )


def _weight_store(options: ModelOptions, kernels: Library) -> WeightStore | None:
    """Return where packed weights are shared, if the parent has handed memory over."""
    if options.weights_descriptor < 0:
        return None
    _, directory = locate(options.source)
    cache = cache_directory()
    words = (options.dtype, *_kernel_words(kernels))
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
    return _fingerprint(options, directory, words)


def _fingerprint(options: ModelOptions, directory: Path, words: tuple[str, ...]) -> str:
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
    draft_head = _draft_head(options, model)
    parts, chosen = gpu_parts(
        model, settings, CudaRecorder(), _grammars(model), progress, draft_head
    )
    return Built(parts, device.type, chosen.name, options.exact)


def _torch(
    options: ModelOptions, device: torch.device, progress: OnProgress, why: str = ""
) -> Built:
    """Build the fallback; `why` says what keeps the native kernels from a CPU."""
    dtype = DTYPES.get(options.dtype)
    if dtype is None:
        needed = "Triton" if device.type == "cuda" else "the native kernels of a CPU"
        raise Refused(f"dtype {options.dtype!r} needs {needed}")
    _check_kv_dtype(options)
    threads = 0
    if device.type == "cpu":
        threads = options.threads or usable_cpus()
        torch.set_num_threads(threads)
    needs = Needs(device, options.block_size, options.exact and device.type == "cuda")
    name, attention, _ = choose_attention(options.attention, needs)
    model = load(options.source, dtype, device, progress)
    forward = TorchForward(model.config, model.weights, attention)
    if not options.exact:
        prefer_speed(forward, memory_bytes())
    shared = None
    if device.type == "cpu":
        shape = page_shape(model.config, options.block_count, options.block_size)
        shared, pages = page_memory(shape, dtype, options.pages_descriptor)
    else:
        pages = allocate(model.config, options.block_count, options.block_size, dtype, device)
    head = None
    if weights := _draft_head(options, model):
        head = BoundHead(step=TorchStep(weights, model.weights), forward=forward)
    parts = LoadedModel(
        forward=forward,
        pages=pages,
        vocab_size=model.config.vocab_size,
        grammars=_grammars(model),
        draft_head=head,
        shared=shared,
    )
    kernels = f"none ({why}): torch serves, {TORCH_SLOWNESS}" if why else ""
    return Built(
        parts,
        device.type,
        name,
        exact=False,
        kernels=kernels,
        threads=threads,
        fingerprint=_page_fingerprint(options, model.directory, (name, torch.__version__)),
    )


def _check_kv_dtype(options: ModelOptions, served: str = "auto") -> None:
    """Raise Refused for a format other than auto and the one that is served."""
    if options.kv_dtype not in ("auto", served):
        needed = {"int8": "the native kernels of a CPU", "fp8": "a GPU, and Triton"}
        raise Refused(f"kv_dtype {options.kv_dtype!r} needs {needed[options.kv_dtype]}")


def _draft_head(options: ModelOptions, model: Checkpoint) -> DraftHead | None:
    if options.draft_head == "off":
        return None
    return find(options.draft_head, model.config, model.weights)


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
