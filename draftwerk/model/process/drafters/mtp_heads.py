"""A model's own MTP layer, bound to it."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from msgspec.structs import replace as with_fields

from draftwerk.model.checkpoint.mtp_layer import read_mtp
from draftwerk.model.checkpoint.shard import whole
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head_memory import NO_MTP
from draftwerk.model.draft_head.head_windows import CAPACITY, HeadWindows
from draftwerk.model.native.stored import rows_of
from draftwerk.model.process.drafters.head_products import embedded
from draftwerk.model.process.drafters.head_target import HeadTarget
from draftwerk.model.step.backend import BoundHead
from draftwerk.model.step.layer_heads.layer_head import LayerHead
from draftwerk.model.step.layer_heads.mtp import MtpLayer, guessed

MTP_NAME = "the MTP layer of the model's files"


def mtp_head(target: HeadTarget, _: Path) -> BoundHead:
    """Return the layer as a draft head: a model that embeds no tokens, with some rows of the head.

    Raises Refused where there is none.
    """
    if (mtp := read_mtp(target.directory, **target.reading)) is None:
        raise Refused(NO_MTP)
    tokens = guessed(target.config.vocab_size, target.config.eos_token_ids)
    head = rows_of(target.vocabulary.lm_head, tokens)
    config = with_fields(mtp.config, vocab_size=len(head))
    nothing = torch.empty(0, config.hidden_size, dtype=target.dtype)
    weights = Weights(nothing, [mtp.layer], mtp.norm, head)
    stage = target.stage(config, weights, replace(whole(config), is_first=False))
    norms, embed = (mtp.embedding_norm, mtp.hidden_norm), partial(embedded, target.embedding)
    fc = target.product(mtp.fc)
    layer = MtpLayer(norms, mtp.config.norm_eps, tokens, embed, fc, stage)
    step = LayerHead(layer, target.pages(config, stage), target.rank, HeadWindows(CAPACITY))
    return BoundHead(step=step, forward=target.forward, windows=step.windows, name=MTP_NAME)
