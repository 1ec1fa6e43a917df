"""The tensors of a recurrent layer, and which of their rows a forward's inputs are made of."""

from collections.abc import Iterator

from draftwerk.model.checkpoint.families.architecture import Architecture, Json
from draftwerk.model.checkpoint.recurrent_layers import Recurrence

INPUTS = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
"""The matrices of a delta rule's inputs."""
BY_HEAD = ("in_proj_qkvz", "in_proj_ba")
"""Or with the rows of each key head together."""
MAMBA_INPUTS = "in_proj"
"""The one of Mamba-2: gates, values, keys, queries, steps."""
TensorShape = tuple[int, ...]
NamedSpans = list[tuple[str, range]]
"""Rows of tensors by name."""


def input_rows(row: Architecture, rule: Recurrence, of_gguf: bool) -> NamedSpans:
    """Return the rows of the inputs' matrix in the order of the rule's."""
    if rule.rule == "mamba":
        inner = [range(each.start + rule.width, each.stop + rule.width) for each in channels(rule)]
        steps = rule.width + rule.channels
        found = [*inner, range(rule.width), range(steps, steps + rule.value_heads)]
        return [(MAMBA_INPUTS, each) for each in found]
    apart = [(name, range(count)) for name, count in zip(INPUTS, rule.rows, strict=True)]
    if not row.has_inputs_by_head:
        return apart
    group = rule.value_heads // rule.key_heads
    values = group * rule.value_size
    wide = (rule.key_size, rule.key_size, values, values)
    # llama.cpp's converter divides the wide matrix and leaves the other.
    first = apart[:2] if of_gguf else list(_by_head(BY_HEAD[0], rule.key_heads, wide))
    return [*first, *_by_head(BY_HEAD[1], rule.key_heads, (group, group))]


def _by_head(name: str, heads: int, counts: tuple[int, ...]) -> Iterator[tuple[str, range]]:
    """Yield the first part of every head, and then the others'."""
    for part, count in enumerate(counts):
        firsts = range(sum(counts[:part]), heads * sum(counts), sum(counts))
        yield from ((name, range(at, at + count)) for at in firsts)


def channels(rule: Recurrence) -> list[range]:
    """Return where queries, keys and values are among the channels of the convolution."""
    if rule.rule == "delta":
        return [range(rule.channels)]
    keys = rule.width + rule.key_heads * rule.key_size
    return [range(keys, rule.channels), range(rule.width, keys), range(rule.width)]


def recurrent_tensors(
    hf: Json, row: Architecture, rule: Recurrence, of_gguf: bool
) -> dict[str, TensorShape]:
    """Return a layer's tensors with their shapes, without what stands before their names."""
    hidden, heads = hf["hidden_size"], rule.value_heads
    inputs: dict[str, int] = {}
    for name, rows in input_rows(row, rule, of_gguf):
        inputs[name] = inputs.get(name, 0) + len(rows)
    is_mamba = rule.rule == "mamba"
    by_head = (heads, 1) if is_mamba and of_gguf else (heads,)
    norm = (rule.width,) if is_mamba else (rule.value_size,)
    groups = (rule.key_heads, rule.width // rule.key_heads)
    found: dict[str, TensorShape] = {
        **{f"{name}.weight": (count, hidden) for name, count in inputs.items()},
        "conv1d.weight": (rule.channels, *(() if of_gguf else (1,)), rule.kernel_size),
        "A_log": by_head,
        "dt_bias": (heads,),
        "norm.weight": groups if is_mamba and of_gguf else norm,
        "out_proj.weight": (hidden, rule.width),
    }
    if is_mamba:
        found["D"] = by_head
    if row.recurrent_kernel_bias and hf.get(row.recurrent_kernel_bias):
        found["conv1d.bias"] = (rule.channels,)
    if row.recurrent_bias and hf.get(row.recurrent_bias):
        found |= {f"{name}.bias": (count,) for name, count in inputs.items()}
        found["out_proj.bias"] = (hidden,)
    return found
