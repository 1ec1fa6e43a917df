"""A model's layers rounded by a method, one after the other, each by what its matrices read.

A layer reads what the layers before it come to once they are rounded. Its scales are chosen and
moved first; that this changes nothing is checked. Then its matrices are rounded.
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.gguf_card import WHOLE
from draftwerk.model.checkpoint.gguf_source import flat_shape
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk_tools.quantising.block_codes import CODES, PackedBytes, values_of
from draftwerk_tools.quantising.gguf_output import packed_rows
from draftwerk_tools.quantising.methods.layer_inputs import LayerInputs
from draftwerk_tools.quantising.methods.method_table import InputRounding, Method
from draftwerk_tools.quantising.methods.scale_groups import (
    LayerValues,
    ScaleGroup,
    groups_of,
)
from draftwerk_tools.quantising.methods.scale_search import RoundedMatrix, best_scales
from draftwerk_tools.quantising.source_tensors import SourceTensors
from draftwerk_tools.quantising.sources import Source, layer_number

APART_MAX = 1e-3
"""How far what a layer comes to may be off once scales are moved, over its size."""


class LayerOutcome(NamedTuple):
    """The outcome of a layer for the model's own texts."""

    hidden: Tensor
    """[tokens, hidden]"""
    read: Mapping[str, Tensor]
    """The inputs of the layer's matrices [tokens, in], by their part."""


RunLayer = Callable[[int, SourceTensors, Tensor | None], LayerOutcome]
"""From a layer, its tensors, and what the layer before it came to: None for the first."""


class CalibratedLayers:
    """The layers of a source in the types of a file, by a method; asked for in their order."""

    def __init__(
        self,
        source: Source,
        config: ModelConfig,
        kinds: Mapping[str, str],
        method: Method,
        run: RunLayer,
    ) -> None:
        """Raises Refused for a model whose layers cannot be run alone."""
        if config.recurrence is not None:
            raise Refused(f"method {method.name}: layers with a recurrent state are not calibrated")
        self._source, self._config, self._kinds = source, config, kinds
        self._method, self._run = method, run
        self._layer = -1
        self._hidden: Tensor | None = None
        self._packed: dict[str, PackedBytes] = {}

    def __call__(self, name: str, kind: str, add: Callable[[int], None]) -> PackedBytes:
        """Return a tensor's data; `add` is told of the bytes that it is made of."""
        layer = layer_number(name)
        if not 0 <= layer < self._config.layer_count:
            return packed_rows(self._source.values(name), kind, add)
        if layer != self._layer:
            assert layer == self._layer + 1, "layers come in their order"
            self._packed = self._rounded(layer)
            self._layer = layer
        data = self._packed.pop(name)
        add(4 * prod(self._source.shapes[name]))
        return data

    def left(self) -> list[str]:
        """Return lines about matrices that the method does not reach."""
        found: dict[str, list[int]] = {}
        for layer in range(self._config.layer_count):
            for group in self._groups(layer):
                for reason in self._reasons(group):
                    found.setdefault(reason, []).append(layer)
        return [
            f"{self._method.name}: {reason}; {_layers_text(layers)}"
            for reason, layers in found.items()
        ]

    def _reasons(self, group: ScaleGroup) -> Iterator[str]:
        stems = dict.fromkeys(each.name.split(".", 2)[2] for each in group.readers)
        named = ", ".join(stem.removesuffix(".weight") for stem in stems)
        if self._method.scales and not group.writers:
            yield f"{named}: no scales, as {group.reason}"
        kinds = {self._kinds[each.name] for each in group.readers} - CODES.keys() - {*WHOLE}
        if self._method.rounding and kinds:
            yield f"{named}: rounded as without a method, being {', '.join(sorted(kinds))}"

    def _groups(self, layer: int) -> list[ScaleGroup]:
        row = BY_CLASS[self._config.architecture]
        return [*groups_of(self._config, row, layer, self._source.shapes)]

    def _rounded(self, layer: int) -> dict[str, PackedBytes]:
        """Return a layer's tensors as they are written, and go on behind it."""
        names = [name for name in self._source.shapes if layer_number(name) == layer]
        values: LayerValues = {name: self._values(name) for name in names}
        exact = self._outcome(layer, values)
        inputs = {part: LayerInputs.of(read) for part, read in exact.read.items()}
        groups = self._groups(layer)
        if self._method.scales is not None:
            for group in groups:
                self._scale(group, values, inputs)
            self._check(layer, exact.hidden, self._outcome(layer, values).hidden)
        packed = {name: packed_rows(values[name].numpy(), self._kinds[name]) for name in names}
        if self._method.rounding is not None:
            for group in groups:
                self._round(self._method.rounding, group, inputs, values, packed)
        for name, data in packed.items():
            read = values_of(data, self._kinds[name])
            values[name] = torch.from_numpy(read.reshape(values[name].shape))
        self._hidden = self._outcome(layer, values).hidden
        return packed

    def _outcome(self, layer: int, values: LayerValues) -> LayerOutcome:
        def read(name: str) -> Tensor:
            return values[name] if name in values else self._values(name)

        return self._run(layer, SourceTensors(self._source, self._config, read), self._hidden)

    def _values(self, name: str) -> Tensor:
        values = self._source.values(name).reshape(flat_shape(self._source.shapes[name]))
        return torch.from_numpy(values.copy())

    def _scale(
        self, group: ScaleGroup, values: LayerValues, inputs: dict[str, LayerInputs]
    ) -> None:
        """Move the best scales of a group."""
        rule, read = self._method.scales, inputs.get(group.part)
        if rule is None or read is None or not group.writers:
            return
        weights = [values[name][rows] for name, rows in group.readers]
        peaks = torch.stack([each.reshape(-1, each.shape[-1]).abs().amax(0) for each in weights])
        matrices = [
            RoundedMatrix(weight, self._kinds[each.name])
            for each, weight in zip(group.readers, weights, strict=True)
            if weight.ndim > 1
        ]
        tried = [group.pooled(rule(read, peaks.amax(0), each)) for each in self._method.alphas]
        if len(tried) > 1:
            tried.append(torch.ones_like(read.peaks))
        scales = best_scales(matrices, read, tried)
        group.scale(values, scales)
        inputs[group.part] = read.over(scales)

    def _check(self, layer: int, expected: Tensor, found: Tensor) -> None:
        apart = float((found - expected).norm() / expected.norm().clamp(min=1e-30))
        if not apart <= APART_MAX:
            raise Refused(
                f"method {self._method.name}: scales change what layer {layer} of a "
                f"{self._config.architecture} comes to, by {apart:.1e} of its size"
            )

    def _round(
        self,
        rounding: InputRounding,
        group: ScaleGroup,
        inputs: Mapping[str, LayerInputs],
        values: LayerValues,
        packed: dict[str, PackedBytes],
    ) -> None:
        """Round the matrices of a group anew, by what they read."""
        reached = [each for each in group.readers if self._kinds[each.name] in CODES]
        if group.part not in inputs or not reached:
            return
        rounded = rounding(inputs[group.part].squares)
        for name, rows in reached:
            packed[name][rows] = rounded(values[name][rows], self._kinds[name])


def _layers_text(layers: list[int]) -> str:
    """Return which layers, for people."""
    several = f"layers {layers[0]} to {layers[-1]} ({len(layers)} of them)"
    return f"layer {layers[0]}" if len(layers) == 1 else several
