"""An EAGLE-3 head bound to its target."""

from functools import partial
from pathlib import Path

from draftwerk.model.attention.reference import attend
from draftwerk.model.checkpoint.eagle_head import read_eagle
from draftwerk.model.draft_head.head_windows import HeadWindows
from draftwerk.model.process.drafters.head_products import embedded, moved
from draftwerk.model.process.drafters.head_target import HeadTarget
from draftwerk.model.reference.rotation import Rotaries
from draftwerk.model.step.layer_heads.eagle import EagleLayer, KeptStates
from draftwerk.model.step.layer_heads.layer_head import LayerHead
from draftwerk.model.step.loaded_model import BoundHead


def bind(target: HeadTarget, folder: Path) -> BoundHead:
    """Return the head in a folder. Raises Refused."""
    eagle = moved(read_eagle(folder, target.config), target.device)
    layer = EagleLayer(
        {name: target.product(each) for name, each in eagle.matrices.items()},
        eagle.norms,
        eagle.vocabulary,
        partial(embedded, target.embedding if eagle.embedding is None else eagle.embedding),
        Rotaries(eagle.config, target.device),
        attend,
        epsilon=eagle.config.norm_eps,
        norms_residual=eagle.norms_residual,
    )
    windows = HeadWindows.of_head(reads_prompts=False)
    step = LayerHead(layer, target.pages(eagle.config, windows), target.rank, windows)
    states = KeptStates(target.forward, eagle.target_layers)
    return BoundHead(step=step, forward=states, windows=windows)
