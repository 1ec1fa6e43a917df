"""A DFlash drafter bound to its target."""

from dataclasses import replace
from pathlib import Path

from draftwerk.model.attention.reference import attend_row
from draftwerk.model.checkpoint.checkpoint_tensors import GgufTensors, Tensors
from draftwerk.model.checkpoint.dflash_config import FC, drafter_tensors, read_dflash_config
from draftwerk.model.checkpoint.dflash_gguf import gguf_card
from draftwerk.model.checkpoint.gguf_tensors import GgufFiles
from draftwerk.model.checkpoint.hf_config import model_config
from draftwerk.model.checkpoint.loader import CPU, opened
from draftwerk.model.draft_head.head_windows import HeadWindows
from draftwerk.model.process.drafters.dflash2_parts import with_second
from draftwerk.model.process.drafters.head_products import scaled
from draftwerk.model.process.drafters.head_target import HeadTarget
from draftwerk.model.reference.rotation import Rotaries
from draftwerk.model.step.layer_heads.block_layers import MATRICES, BlockHead, BlockStack
from draftwerk.model.step.layer_heads.block_paths import independent_guesses
from draftwerk.model.step.layer_heads.eagle import KeptStates
from draftwerk.model.step.loaded_model import BoundHead


def bind(target: HeadTarget, folder: Path) -> BoundHead:
    """Return the drafter in a folder. Raises Refused."""
    said = read_dflash_config(folder, target.config)
    stored = drafter_tensors(folder, said)
    if folder.is_file():
        tensors: Tensors = GgufTensors(GgufFiles(gguf_card(folder, stored)), None, CPU)
        tensors.is_exact = True
    else:
        tensors = opened(stored, said.layers, None)
    config, windows = model_config(said.layers, {}), HeadWindows.of_head(reads_prompts=True)
    tokens, head = target.guessed()
    stack = BlockStack(
        said=said,
        config=config,
        layers=[
            target.products(tensors, MATRICES, f"model.layers.{index}.")
            for index in range(config.layer_count)
        ],
        fc=target.product(tensors.take(FC)),
        lm_head=target.product(head),
        norms={
            name: tensors.exact(name).to(target.device)
            for name in tensors.stored
            if name.endswith("norm.weight")
        },
        guesses=independent_guesses(tokens.tolist(), target.rank),
        embed=target.embed,
        rotaries=Rotaries(config, target.device),
        attend=attend_row,
    )
    if said.second is not None:
        stack = with_second(stack, tokens, tensors, target)
    else:
        graph = target.config.graph
        stack = replace(
            stack, lm_head=scaled(stack.lm_head, graph.logit_scale, graph.logit_softcap)
        )
    step = BlockHead(stack, target.pages(config, windows), windows)
    states = KeptStates(target.forward, tuple(layer + 1 for layer in said.target_layers))
    return BoundHead(step=step, forward=states, windows=windows)
