"""A model on the native kernels of a CPU."""

from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from draftwerk.cache.pages.kv_formats import KV_FORMATS
from draftwerk.machine.host import free_bytes
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.model_options import NATIVE, ModelOptions
from draftwerk.model.native.build import Library
from draftwerk.model.native.kv_pages import NativeTurn, copy_blocks, move_slots
from draftwerk.model.native.learnt_keys import learnt_words
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import BROKEN, NativeSampler
from draftwerk.model.native.trials import foretold_ms, native_roofline
from draftwerk.model.process.built import (
    Built,
    grammars_in,
    page_fingerprint,
    state_words,
)
from draftwerk.model.process.drafters.bound_heads import native_head
from draftwerk.model.process.parts import NativePart, kernel_words, native_part
from draftwerk.model.ranks.share import Share
from draftwerk.model.step.backend import Backend
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.presampled import Presampled, RoundRequests
from draftwerk.model.step.whole_prompts import one_by_one, seeing
from draftwerk.model.text.grammar import Grammars
from draftwerk.speculative.options.blend.rules import CHECK_LAYER
from draftwerk.speculative.protocol.frames import OnProgress

READING_S = 0.3


def build_native(
    options: ModelOptions,
    share: Share,
    *,
    kernels: Library,
    progress: OnProgress,
    grammars: Grammars | None,
) -> Built:
    """Build a model, or a share of it; `grammars` need not be made again."""
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
        presample=partial(_presample, sampler),
    )
    parts = LoadedModel(
        forward=seeing(forward, model.config.graph.sees_all, one_by_one),
        pages=pages,
        vocab_size=model.config.vocab_size,
        backend=backend,
        grammars=grammars or grammars_in(model),
        draft_head=native_head(options, part, share, sampler.rank),
        adapters=part.adapters,
        shared=part.shared,
        turn_slots=_turn_slots(options, model.config, pool) if is_whole else None,
    )
    begun = perf_counter()
    reading, roofline = (0, 0.0), None
    if options.measures and is_whole:  # a rank's rates are not the model's
        reading = _reading(options, part)
        roofline = native_roofline(model.config, forward, pages, pool, reading)
    words = (
        *kernel_words(kernels),
        *state_words(model.config),
        *learnt_words(forward.learnt_from),
    )
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
        fingerprint=page_fingerprint(options, model.directory, words),
        blends=parts.turn_slots is not None,
    )


def _presample(sampler: NativeSampler, logits: Tensor, questions: RoundRequests) -> Presampled:
    """Follow the drafts and rank tokens, in one call."""
    ranked = list(questions.topk_rows)
    tokens, best = sampler.answer(logits, questions.drafts, ranked, questions.best_count)
    return Presampled(
        frozenset(row for row, token in enumerate(tokens) if token == BROKEN),
        {row: token for row, token in enumerate(tokens) if token >= 0},
        dict(zip(ranked, best, strict=True)),
    )


def _reading(options: ModelOptions, part: NativePart) -> tuple[int, float]:
    """Return the bytes of the matrices that a token reads, and the milliseconds that this takes."""
    pages, store = part.pages, part.store
    room = free_bytes() - pages.keys.nbytes - pages.values.nbytes
    if store is None or not options.weight_store or store.size <= room:
        return part.forward.reading(READING_S)
    store.drop()
    size, from_disk = part.forward.reading(0.0)
    _, again = part.forward.reading(0.0)
    return size, foretold_ms(max(0.0, room / store.size), from_disk, again)


def _turn_slots(options: ModelOptions, config: ModelConfig, pool: Pool) -> NativeTurn | None:
    """Return what turns copied keys to their places, where segments can be reused."""
    # Keys in few bits would be rounded twice; turning knows one rotation for all layers.
    rounded = options.kv_dtype in KV_FORMATS
    if rounded or config.layer_count <= CHECK_LAYER or config.unlike_llama():
        return None
    return NativeTurn(pool, config.rope_inverse_frequencies)
