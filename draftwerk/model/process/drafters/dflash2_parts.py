"""What a DFlash 2 has beside a DFlash drafter, bound to its target."""

from dataclasses import replace

from torch import Tensor

from draftwerk.model.checkpoint.checkpoint_tensors import Tensors
from draftwerk.model.checkpoint.dflash2_config import (
    CONVOLUTIONS,
    KERNEL,
    PREDECESSORS,
    PROJECTION,
    SELECTOR,
    SUCCESSORS,
)
from draftwerk.model.process.drafters.head_products import scaled
from draftwerk.model.process.drafters.head_target import HeadTarget
from draftwerk.model.step.layer_heads.block_layers import PARTS, BlockStack
from draftwerk.model.step.layer_heads.grouped_convolution import GroupedConvolution
from draftwerk.model.step.layer_heads.path_selector import PathSelector


def with_second(
    stack: BlockStack, tokens: Tensor, tensors: Tensors, target: HeadTarget
) -> BlockStack:
    """Return a DFlash 2's stack; `tokens` are by row of the lm_head, which is not scaled yet."""
    second = stack.said.second
    assert second is not None

    def convolution(name: str) -> GroupedConvolution:
        base, projection = (tensors.take(f"{name}.{each}") for each in (KERNEL, PROJECTION))
        kernels = base.view(2, second.kernel_size, -1).float().to(target.device)
        return GroupedConvolution(kernels, target.product(projection), second.group_size)

    convolutions = {
        f"model.layers.{index}.{norm}": convolution(f"layers.{index}.{name}")
        for index in range(stack.config.layer_count)
        for norm, name in zip(PARTS, CONVOLUTIONS, strict=True)
    }
    predecessors, successors = (
        tensors.take(each).to(target.device) for each in (PREDECESSORS, SUCCESSORS)
    )
    project = target.product(tensors.take(SELECTOR))
    return replace(
        stack,
        lm_head=scaled(stack.lm_head, second.output_multiplier, second.softcap),
        guesses=PathSelector(predecessors, successors, project, second.top_k, tokens),
        embed=lambda said: stack.embed(said) * second.embedding_scale,
        around=lambda norm, part, rows, size: convolutions[norm].around(part, rows, size),
    )
