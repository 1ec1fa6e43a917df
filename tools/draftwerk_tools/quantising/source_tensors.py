"""The tensors of a source as the loader asks for them, in float32 and exact."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.checkpoint_tensors import GgufTensors, Tensors
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.gguf_names import hf_name
from draftwerk.model.checkpoint.gguf_source import NO_WEIGHTS, flat_shape
from draftwerk.model.checkpoint.gguf_tensors import halves_of_neighbours
from draftwerk_tools.quantising.sources import Source, layer_number

CPU = torch.device("cpu")


class SourceTensors(GgufTensors):
    """Values under GGUF's names by the names of Transformers, rows in the loader's order."""

    def __init__(
        self, source: Source, config: ModelConfig, values: Callable[[str], Tensor]
    ) -> None:
        """`values` are those of `source`, which may be changed, in any shape."""
        Tensors.__init__(self, {}, torch.float32, CPU)
        self._row = BY_CLASS[config.architecture]
        self._config = config
        self._values = values
        names = [name for name in source.shapes if name not in NO_WEIGHTS]
        # Layers behind the model's own draft.
        own = [name for name in names if layer_number(name) < config.layer_count]
        self._names = {hf_name(self._row, name): name for name in own}
        self.stored: Mapping[str, StoredTensor] = {
            ours: StoredTensor(Path(), "F32", flat_shape(source.shapes[name]))
            for ours, name in self._names.items()
        }

    def take(self, name: str, rows: range | None = None) -> Tensor:
        if rows is not None and not rows:
            return torch.empty(0, *self.stored[name].shape[1:])
        values = self._values(self._names[name]).view(self.stored[name].shape)
        order = self._order(self._names[name], len(values))
        values = values if order is None else values[order]
        return values if rows is None else values[rows.start : rows.stop : rows.step]

    def exact(self, name: str) -> Tensor:
        return self.take(name)

    def matrix(self, parts: list[tuple[str, range]]) -> Tensor:
        return Tensors.matrix(self, parts)

    def _order(self, name: str, count: int) -> Tensor | None:
        """Return which of a file's rows each of queries or keys is; None where in order."""
        config, kind = self._config, name.split(".")[-2]
        if not (self._row.gguf and self._row.gguf.pairs_are_neighbours):
            return None
        if kind not in ("attn_q", "attn_k"):
            return None
        heads = config.num_heads if kind == "attn_q" else config.num_kv_heads
        rotary_size = 2 * len(config.rope_inverse_frequencies)
        return halves_of_neighbours(heads, count // heads, rotary_size)
