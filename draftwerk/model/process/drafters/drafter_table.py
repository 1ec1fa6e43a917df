"""The table of draft heads that are layers: a new one is a file that binds it, and a row here.

`draft_head.head_memory` plans what each takes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from draftwerk.model.checkpoint.assistant_config import is_assistant
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.dflash_config import is_dflash
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.draft_head.head_memory import MTP, WITHOUT_FILE
from draftwerk.model.process.drafters.assistant_heads import assistant_head
from draftwerk.model.process.drafters.dflash_heads import dflash_head
from draftwerk.model.process.drafters.eagle_heads import eagle_head
from draftwerk.model.process.drafters.head_target import HeadTarget, native_target, torch_target
from draftwerk.model.process.drafters.mtp_heads import mtp_head
from draftwerk.model.process.parts import NativePart, TorchPart
from draftwerk.model.ranks.share import Share
from draftwerk.model.step.backend import BoundHead
from draftwerk.model.step.layer_heads.layer_head import RankTokens


class DrafterKind(NamedTuple):
    """A kind of draft head."""

    serves: Callable[[Path], bool]
    """Whether `--draft-head` names one."""
    bind: Callable[[HeadTarget, Path], BoundHead]
    """Returns it, bound to its target. Raises Refused, naming what does not fit."""


KINDS = (
    DrafterKind(lambda wanted: str(wanted) == MTP, mtp_head),
    DrafterKind(is_assistant, assistant_head),
    DrafterKind(is_dflash, dflash_head),
    DrafterKind(Path.is_dir, eagle_head),
)
"""The first that serves is taken."""


def torch_head(options: ModelOptions, part: TorchPart, share: Share) -> BoundHead | None:
    """Return a target's draft head in torch, if it has one."""
    return _head(torch_target(options, part, share), options, share)


def native_head(
    options: ModelOptions, part: NativePart, share: Share, rank: RankTokens
) -> BoundHead | None:
    """Return a target's draft head on the native kernels, if it has one."""
    return _head(native_target(options, part, share, rank), options, share)


def _head(target: HeadTarget, options: ModelOptions, share: Share) -> BoundHead | None:
    if head := draft_head_of(options, target.config, target.vocabulary):
        return BoundHead(step=target.own_step(head), forward=target.forward)
    if not has_layer(options):
        return None
    if share.shard is not None:
        raise Refused(f"draft_head {options.draft_head}: not of a model divided among processes")
    wanted = Path(options.draft_head)
    return next(kind for kind in KINDS if kind.serves(wanted)).bind(target, wanted)


def draft_head_of(options: ModelOptions, config: ModelConfig, weights: Weights) -> DraftHead | None:
    """Return the draft head that options name, if it is of the server's own kind."""
    if options.draft_head == "off" or has_layer(options):
        return None
    return find(options.draft_head, config, weights)


def has_layer(options: ModelOptions) -> bool:
    """Whether the draft head is a decoder layer: the model's own, or that in a folder."""
    if options.draft_head in WITHOUT_FILE:
        return False
    return options.draft_head == MTP or Path(options.draft_head).is_dir()


def refuse_layer_on(device: torch.device, options: ModelOptions) -> None:
    """Raise Refused where a decoder layer is to draft on a GPU."""
    if has_layer(options) and device.type != "cpu":
        raise Refused(f"draft_head {options.draft_head}: not on {device.type}")
