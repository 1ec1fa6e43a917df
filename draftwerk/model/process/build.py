"""From options to a running model: the factory a device process calls."""

from collections.abc import Callable
from dataclasses import replace as dataclass_replace
from functools import partial
from typing import NamedTuple, get_args

import torch
from msgspec.structs import replace

from draftwerk.cache.pages.kv_formats import NATIVE_KV_FORMATS, KvDtype
from draftwerk.model.batch.batch import Forward, Pages
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import NATIVE, TRANSFORMERS, ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.gpu.choice import choose_attention
from draftwerk.model.native.build import NativeUnavailable, obtain
from draftwerk.model.native.servable import check_formats
from draftwerk.model.process.built import Built
from draftwerk.model.process.gpu_build import build_gpu
from draftwerk.model.process.native_build import build_native
from draftwerk.model.process.option_checks import (
    DEVICE_DTYPES,
    check_adapters,
    check_kv_dtype,
    check_plain,
    check_torch,
    device_of,
)
from draftwerk.model.process.parts import DTYPES, native_part, needs_of, torch_part
from draftwerk.model.process.torch_build import build_generic, build_torch
from draftwerk.model.ranks.division import divide
from draftwerk.model.ranks.rank_round import RankRound, batch_of
from draftwerk.model.ranks.share import WHOLE, Share, grid_of, share_of
from draftwerk.model.reference.kv_pages import private_pages
from draftwerk.model.text.grammar import Grammars
from draftwerk.speculative.protocol.frames import OnProgress


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
    if options.kv_dtype not in get_args(KvDtype):
        known = ", ".join(get_args(KvDtype))
        raise Refused(f"kv_dtype {options.kv_dtype!r} is not one of {known}")
    device = device_of(options.device)
    if options.backend == TRANSFORMERS:
        return build_generic(options, device, progress)
    dtypes = DEVICE_DTYPES[device.type]
    if options.dtype not in dtypes:
        known = ", ".join(dtypes)
        raise Refused(f"dtype {options.dtype!r} is not one of {known} on {device.type}")
    if device.type == "cuda" and grid_of(options).size > 1:
        raise Refused(
            "pipeline_parallel and tensor_parallel divide a model on a CPU: take device cpu"
        )
    if options.lora or options.lora_merge:
        check_adapters(options)
    if device.type == "cuda" and options.window is not None:
        raise Refused("window needs the native kernels of a CPU: take device cpu")
    if device.type == "cuda":
        return build_gpu(options, device, progress, drafts)
    why = ""
    if options.attention in ("auto", NATIVE):
        check_kv_dtype(options, *NATIVE_KV_FORMATS)
        try:
            kernels = obtain(progress=progress)  # first: it fails before anything large is read
        except NativeUnavailable as error:
            if options.attention == NATIVE:
                raise Refused(f"attention native: {error}") from error
            check_formats(options.dtype, options.kv_dtype, str(error))
            progress(f"the native kernels cannot run here, torch will be slower: {error}")
            why = str(error)
        else:
            make = partial(build_native, kernels=kernels, progress=progress, grammars=grammars)
            return _whole_or_divided(replace(options, attention=NATIVE), make, progress)
    check_torch(options)
    name = choose_attention(options.attention, needs_of(options)).name
    make = partial(build_torch, progress=progress, why=why)
    return _whole_or_divided(replace(options, attention=name), make, progress)


def _whole_or_divided(
    options: ModelOptions, make: Callable[[ModelOptions, Share], Built], progress: OnProgress
) -> Built:
    """Build a model in this process, or this one's share of it with the other ranks around."""
    if grid_of(options).size == 1:
        return make(options, WHOLE)
    _, directory = locate(options.source, progress, reads=True)
    check_plain(read_config(directory), "by several ranks")
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
        part = torch_part(options, share, progress)
    keys = part.pages.keys
    scratch = private_pages(tuple(keys.shape), keys.dtype)
    return BuiltRank(share.stage(part.forward), part.pages, scratch, part.threads)
