"""Draft heads bound to their targets: of the table's kinds, or of the server's own."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.process.drafters.drafter_table import kind_of, planned
from draftwerk.model.process.drafters.head_target import HeadTarget, native_target, torch_target
from draftwerk.model.process.parts import NativePart, TorchPart
from draftwerk.model.ranks.share import Share
from draftwerk.model.step.layer_heads.layer_head import RankTokens
from draftwerk.model.step.loaded_model import BoundHead


class DrafterModule(Protocol):
    """A file that binds a kind of draft head."""

    def bind(self, target: HeadTarget, folder: Path, /) -> BoundHead:
        """Return the head in a folder, bound to its target. Raises Refused."""
        ...


def torch_head(options: ModelOptions, part: TorchPart, share: Share) -> BoundHead | None:
    """Return a target's draft head in torch, if it has one."""
    return _head(torch_target(options, part, share), options, share)


def native_head(
    options: ModelOptions, part: NativePart, share: Share, rank: RankTokens
) -> BoundHead | None:
    """Return a target's draft head on the native kernels, if it has one."""
    return _head(native_target(options, part, share, rank), options, share)


def _head(target: HeadTarget, options: ModelOptions, share: Share) -> BoundHead | None:
    wanted = options.draft_head
    if (kind := kind_of(wanted)) is None:
        own = draft_head_of(options, target.config, target.vocabulary)
        return own and BoundHead(step=target.own_step(own), forward=target.forward)
    if share.shard is not None:
        raise Refused(f"draft_head {wanted}: not of a model divided among processes")
    plan = planned(kind, wanted, target.directory, target.config)
    bound = cast(DrafterModule, import_module(kind.module)).bind(target, Path(wanted))
    return replace(bound, name=plan.name)


def draft_head_of(options: ModelOptions, config: ModelConfig, weights: Weights) -> DraftHead | None:
    """Return the draft head that options name, if it is of the server's own kind."""
    if options.draft_head == "off" or kind_of(options.draft_head) is not None:
        return None
    return find(options.draft_head, config, weights)
