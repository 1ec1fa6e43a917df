"""A model that torch computes: the fallback, and models of Transformers."""

from importlib.metadata import version

import torch

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.built import (
    Built,
    grammars_in,
    page_fingerprint,
    state_words,
)
from draftwerk.model.process.drafters.bound_heads import torch_head
from draftwerk.model.process.parts import DTYPES, generic_part, torch_part
from draftwerk.model.ranks.share import Share, grid_of
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.whole_prompts import all_seen, seeing
from draftwerk.model.text.grammar import grammars_of
from draftwerk.speculative.protocol.frames import OnProgress

TORCH_SLOWNESS = "3 to 5 times slower"
"""Measured: docs/measurements.md."""


def build_torch(options: ModelOptions, share: Share, *, progress: OnProgress, why: str) -> Built:
    """Build the fallback of a CPU; `why` says what keeps the native kernels from it."""
    part = torch_part(options, share, progress)
    model, pages, forward = part.model, part.pages, part.forward
    parts = LoadedModel(
        forward=seeing(forward, model.config.graph.sees_all, all_seen),
        pages=pages,
        vocab_size=model.config.vocab_size,
        grammars=grammars_in(model),
        draft_head=torch_head(options, part, share),
        adapters=part.adapters,
        shared=part.shared,
    )
    kernels = f"none ({why}): torch serves, {TORCH_SLOWNESS}" if why else ""
    words = options.attention, torch.__version__, *state_words(model.config)
    return Built(
        parts,
        "cpu",
        options.attention,
        exact=False,
        kernels=kernels,
        threads=part.threads,
        fingerprint=page_fingerprint(options, model.directory, words),
    )


def build_generic(options: ModelOptions, device: torch.device, progress: OnProgress) -> Built:
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
        fingerprint=page_fingerprint(options, part.directory, (library, torch.__version__)),
    )
