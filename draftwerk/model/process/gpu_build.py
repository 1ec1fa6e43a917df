"""A model on a GPU."""

from dataclasses import replace
from typing import cast

import torch

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.built import Built, grammars_in
from draftwerk.model.process.drafters.bound_heads import draft_head_of, torch_head
from draftwerk.model.process.drafters.drafter_table import kind_of
from draftwerk.model.process.lora_cards import TakesAdapters, add_adapters, lora_cards
from draftwerk.model.process.option_checks import check_kv_dtype
from draftwerk.model.process.parts import TorchPart
from draftwerk.model.ranks.share import Share
from draftwerk.model.reference.forward import TorchForward
from draftwerk.speculative.protocol.frames import OnProgress


def build_gpu(
    options: ModelOptions, device: torch.device, progress: OnProgress, drafts: bool
) -> Built:
    """Build a model with Triton's kernels, to draft for another or not."""
    try:  # Triton is not everywhere, and takes a second to import
        from draftwerk.model.gpu.build import GpuSettings, gpu_parts, load_for_gpu
        from draftwerk.model.gpu.graphs import CudaRecorder
    except ImportError as error:
        raise Refused(f"device cuda: {error} (pip install triton)") from error

    check_kv_dtype(options, "fp8")
    _, directory = locate(options.source, progress, reads=True)
    has_layer = kind_of(options.draft_head) is not None
    merged = lora_cards(options.lora_merge, read_config(directory))
    model = load_for_gpu(options.source, options.dtype, device, progress, merged)
    settings = GpuSettings(
        options.dtype,
        options.attention,
        options.exact,
        options.block_count,
        options.block_size,
        kv_dtype=options.kv_dtype,
        drafts=drafts,
        state_slots=options.state_slots,
        extended=bool(options.lora) or has_layer,
    )
    draft_head = draft_head_of(options, model.config, model.weights)
    recorder = CudaRecorder() if device.type == "cuda" else None
    parts, chosen = gpu_parts(model, settings, recorder, grammars_in(model), progress, draft_head)
    if options.lora:
        forward = cast(TakesAdapters, parts.forward)
        parts = replace(parts, adapters=add_adapters(forward, options.lora, model.config))
    if has_layer:  # it keeps nothing of its target's layers
        bare = replace(model, weights=replace(model.weights, layers=[]))
        part = TorchPart(bare, cast(TorchForward, parts.forward), parts.pages, None, 0, {})
        parts = replace(parts, draft_head=torch_head(options, part, Share()))
    return Built(parts, device.type, chosen.name, options.exact)
