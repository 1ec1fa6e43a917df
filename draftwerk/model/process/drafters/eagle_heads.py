"""An EAGLE-3 head bound to its target."""

from functools import partial
from pathlib import Path

from draftwerk.model.attention.reference import attend
from draftwerk.model.checkpoint.eagle_head import read_eagle
from draftwerk.model.draft_head.head_windows import CAPACITY, HeadWindows
from draftwerk.model.process.drafters.head_products import embedded
from draftwerk.model.process.drafters.head_target import CPU, HeadTarget
from draftwerk.model.reference.rotation import Rotaries
from draftwerk.model.step.backend import BoundHead
from draftwerk.model.step.layer_heads.eagle import EagleLayer, KeptStates
from draftwerk.model.step.layer_heads.layer_head import LayerHead


def eagle_head(target: HeadTarget, folder: Path) -> BoundHead:
    """Return the head in a folder. Raises Refused."""
    eagle = read_eagle(folder, target.config)
    layer = EagleLayer(
        {name: target.product(each) for name, each in eagle.matrices.items()},
        eagle.norms,
        eagle.vocabulary,
        partial(embedded, target.embedding if eagle.embedding is None else eagle.embedding),
        Rotaries(eagle.config, CPU),
        attend,
        epsilon=eagle.config.norm_eps,
        norms_residual=eagle.norms_residual,
    )
    step = LayerHead(layer, target.pages(eagle.config), target.rank, HeadWindows(CAPACITY))
    states = KeptStates(target.forward, eagle.target_layers)
    numbers = sum(each.numel() for each in eagle.matrices.values())
    guessed = f"{len(eagle.vocabulary):,} tokens are guessed"
    name = f"an EAGLE-3 layer of {numbers / 1e6:,.1f} M weights; {guessed}"
    return BoundHead(step=step, forward=states, windows=step.windows, name=name)
