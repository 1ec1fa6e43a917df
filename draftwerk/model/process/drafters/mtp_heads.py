"""A model's own MTP layer, bound to it."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from msgspec.structs import replace as with_fields

from draftwerk.model.checkpoint.mtp_config import NO_MTP
from draftwerk.model.checkpoint.mtp_layer import read_mtp
from draftwerk.model.checkpoint.shard import whole
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head_windows import HeadWindows
from draftwerk.model.process.drafters.head_products import embedded, moved
from draftwerk.model.process.drafters.head_target import HeadTarget
from draftwerk.model.step.layer_heads.layer_head import LayerHead
from draftwerk.model.step.layer_heads.mtp import MtpLayer
from draftwerk.model.step.loaded_model import BoundHead


def bind(target: HeadTarget, _: Path) -> BoundHead:
    """Return the layer as a draft head: a model that embeds no tokens, with some rows of the head.

    Raises Refused where there is none.
    """
    if (mtp := moved(read_mtp(target.directory, **target.reading), target.device)) is None:
        raise Refused(f"draft head mtp: {NO_MTP}")
    tokens, head = target.guessed()
    config = with_fields(mtp.config, vocab_size=len(head))
    nothing = torch.empty(0, config.hidden_size, dtype=target.dtype, device=target.device)
    weights = Weights(nothing, [mtp.layer], mtp.norm, head)
    stage = target.stage(config, weights, replace(whole(config), is_first=False))
    norms, embed = (mtp.embedding_norm, mtp.hidden_norm), partial(embedded, target.embedding)
    layer = MtpLayer(norms, mtp.config.norm_eps, tokens, embed, target.product(mtp.fc), stage)
    windows = HeadWindows.of_head(reads_prompts=False)
    step = LayerHead(layer, target.pages(config, windows, stage), target.rank, windows)
    return BoundHead(step=step, forward=target.forward, windows=windows)
