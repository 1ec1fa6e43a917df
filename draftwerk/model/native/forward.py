"""The whole decoder as one native call, bit for bit independent of what else is in the batch."""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from math import inf
from statistics import median
from time import perf_counter

import torch
from msgspec.structs import replace
from torch import Tensor

from draftwerk.cache.pages.kv_formats import learns
from draftwerk.model.batch.batch import Batch, Pages, logit_count_of
from draftwerk.model.batch.batch_state import BatchState
from draftwerk.model.checkpoint.config import LayerGroup, ModelConfig
from draftwerk.model.checkpoint.lora.lora_card import PARTS
from draftwerk.model.checkpoint.lora.lora_weights import Adapter
from draftwerk.model.checkpoint.packed_weights import WeightStore
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import AnyWeights
from draftwerk.model.native.calls.round_arrays import StateRows, arrays_of, check_tensor, set_states
from draftwerk.model.native.calls.structs import AdapterModule, LayerShape, PathRow, RoundArrays
from draftwerk.model.native.learnt_keys import learn_keys, tokens_of_all_parts
from draftwerk.model.native.native_shape import (
    check_model,
    columns_of,
    format_of,
    kv_format,
    layer_shape,
    page_format,
    shape_of,
)
from draftwerk.model.native.packing import Packing
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.kv_pages import page_shape

READINGS = 5


class NativeForward:
    """A `Forward` for every family on a CPU; not for two threads at once.

    `dtype` names the weights' format: fp32, bf16 (every intermediate value rounded where Hugging
    Face's bf16 model rounds it), int8 or int4 (quantised here, see `QUANTISED`), or stored:
    quantised by the file already, each part in its own type; with 8-bit activations. Matrices are
    repacked; of `weights` only an embedding that is not stored is kept.

    `kv_dtype` names the format of keys and values: as the activations, or a row of
    source/attention/kv_formats.cpp.
    Pages are [layers, blocks, slots, KV heads, `page_width`] of `page_dtype`.

    With a `store` the packed weights are in its memory; where it has them already, matrices may be
    without data (`meta`).

    Of a `shard` the weights are those that a rank has, and pages those of its layers with all
    heads; `meeting` is the handle of where it gets the other columns, if its stage has more ranks.
    `on_layer` is told of each layer of the model once it is packed.

    A model that keeps nothing reads the pages of its `host`, to which its layers' `kv_from` refer.
    Formats that learn do so from a `text`; without one, from tokens of all parts.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: AnyWeights,
        dtype: str = "bf16",
        pool: Pool | None = None,
        kv_dtype: str = "auto",
        store: WeightStore | None = None,
        shard: Shard | None = None,
        meeting: int | None = None,
        on_layer: Callable[[int], None] = lambda index: None,
        host: ModelConfig | None = None,
        text: Sequence[int] = (),
    ) -> None:
        check_model(config, dtype, kv_dtype)
        if learns(kv_dtype) and (shard is not None or host is not None):
            raise Refused(f"kv_dtype {kv_dtype}: keys are learnt by a model that is whole")
        own = shard.layers if shard else range(config.layer_count)
        planes = config.layer_planes(own, host)
        shapes = (layer_shape(config, *each) for each in zip(own, planes, strict=True))
        layers = (LayerShape * len(own))(*shapes)
        kv_dtype = kv_format(dtype, kv_dtype)
        self.page_dtype, self.page_width = page_format(host or config, dtype, kv_dtype)
        self.dtype, self.kv_dtype, self.format = dtype, kv_dtype, format_of(dtype)
        self._shard = shard or whole(config)
        config = replace(config, layer_count=len(self._shard.layers))
        self._config, self._paged = config, host or config
        self._pool = pool or Pool()
        spelt = [each for rotary in config.rotaries for each in rotary.inverse_frequencies]
        frequencies = (ctypes.c_float * len(spelt))(*spelt)
        self._library = self._pool.library
        shape = shape_of(config, dtype, kv_dtype)
        self.embedding_multiplier: float = shape.embedding_multiplier
        self.handle: int = self._library.model_create(self._pool.handle, shape, layers, frequencies)
        weakref.finalize(self, self._library.model_destroy, self.handle)
        if shard is not None:
            self._library.model_split(self.handle, columns_of(shard), meeting)
        self.states: Tensor | None = None
        """The states that the head read in the latest call, float32 [S, hidden]."""
        self.kept_layers: tuple[int, ...] = ()
        self.kept: Tensor | None = None
        self._node_starts: dict[int, int] = {}
        """The nodes' beginnings in the latest batch, by a row's first token."""
        self._page_shapes: dict[LayerGroup, tuple[int, ...]] = {}
        """The page shapes of groups that were asked for, without blocks: they never change, and
        take a while."""
        packing = Packing(self.handle, self._pool, config, dtype, self._shard, store, on_layer)
        self.embedding = packing.pack(weights)
        self._kept = packing.kept
        """[vocab, hidden]; None where it is stored."""
        self.learnt_from: Sequence[int] = ()
        """Tokens whose keys decide how all keys are kept."""
        if learns(kv_dtype):
            learn = partial(self._library.model_learn, self.handle)
            self.learnt_from = text or tokens_of_all_parts(config.vocab_size)
            learn_keys(self, config, self.learnt_from, (self.page_dtype, self.page_width), learn)

    def embedded(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of tokens as the layers are given them, float32 [T, hidden]."""
        rows = torch.empty(len(tokens), self.hidden_size)
        numbers = tokens.to(torch.int32).contiguous()
        self._library.model_embed(self.handle, numbers.data_ptr(), len(numbers), rows.data_ptr())
        rows *= self.embedding_multiplier
        return rows.bfloat16().float() if self.dtype == "bf16" else rows

    def add_adapter(self, adapter: Adapter) -> None:
        """Add an adapter behind those there are; batches name it by its number."""
        modules = (AdapterModule * len(adapter))()
        for to, one in zip(modules, adapter, strict=True):
            to.a, to.b = one.a.data_ptr(), one.b.data_ptr()
            to.layer, to.part, to.first = one.layer, PARTS.index(one.part), one.first
            (to.rank, to.inputs), to.columns = one.a.shape, len(one.b)
            to.scale = one.scale
        self._library.model_add_adapter(self.handle, modules, len(adapter))

    def reading(self, limit_s: float = inf) -> tuple[int, float]:
        """Return the bytes of all matrices, and the milliseconds that reading them takes."""
        times: list[float] = []
        size = 0
        for _ in range(READINGS):
            begun = perf_counter()
            size = self._library.measure_stream(self.handle)
            times.append(1e3 * (perf_counter() - begun))
            if sum(times) >= 1e3 * limit_s:
                break
        return size, median(times)

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Return float32 logits [S, vocab]; the batch's keys and values are in the pages."""
        return self.run_stage(batch, pages, None)

    def run_stage(self, batch: Batch, pages: Pages, hidden: Tensor | None) -> Tensor:
        """Return the logits, or before the last stage what the layers have come to [T, hidden].

        `hidden` is what the stage before has come to; without one the tokens are embedded.
        """
        self._check_pages(pages)
        outputs, logit_count = batch.outputs.shape[0], logit_count_of(batch)
        is_last, config = self._shard.is_last, self._config
        logits = torch.empty(logit_count if is_last else 0, config.vocab_size)
        self.states = torch.empty(outputs if is_last else 0, config.hidden_size)
        arrays = arrays_of(batch, pages, logits, self.states)
        if self.kept_layers:
            self.kept = torch.empty(outputs, len(self.kept_layers) * config.hidden_size)
            before = (ctypes.c_int32 * len(self.kept_layers))(*self.kept_layers)
            arrays.kept, arrays.kept_layers = self.kept.data_ptr(), ctypes.addressof(before)
            arrays.kept_count = len(before)
        state_rows = StateRows(batch, pages, config) if config.recurrence is not None else None
        if state_rows is not None:
            state_rows.describe(arrays)
            self._node_starts = state_rows.node_starts
        arrays.layers = config.layer_count if batch.layers is None else batch.layers
        result = logits if is_last else torch.empty(len(batch.tokens), config.hidden_size)
        if not is_last:
            arrays.hidden_out = result.data_ptr()
        if hidden is not None:
            check_tensor("hidden", hidden, torch.float32)
            arrays.hidden_in = hidden.data_ptr()
        self._library.model_forward(self.handle, arrays)
        return result

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]], pages: Pages) -> None:
        """Take states of the latest batch along the nodes that were accepted."""
        arrays, kept = RoundArrays(), list[object]()
        set_states(arrays, pages, self._config)
        paths = (PathRow * len(rows))()
        for path, (state, nodes) in zip(paths, rows, strict=True):
            first = self._node_starts[state.first]
            numbers = (ctypes.c_int32 * len(nodes))(*(first + node for node in nodes))
            wanted = (ctypes.c_int32 * (2 * len(state.saves)))(*chain.from_iterable(state.saves))
            kept += [numbers, wanted]
            path.nodes = ctypes.addressof(numbers)
            path.wanted = ctypes.addressof(wanted)
            path.count, path.saves = len(nodes), len(state.saves)
            path.target, path.position = state.target, state.start + state.count
        self._library.model_advance(self.handle, arrays, paths, len(rows))

    @property
    def hidden_size(self) -> int:
        return self._config.hidden_size

    @property
    def vocabulary(self) -> tuple[int, int]:
        """How many tokens it embeds, and how wide."""
        return self._config.vocab_size, self._config.hidden_size

    def _check_pages(self, pages: Pages) -> None:
        self._check_planes(pages, "all" if pages.window is None else "others")
        if pages.window is not None:
            self._check_planes(pages.window, "windowed")

    def _check_planes(self, pages: Pages, group: LayerGroup) -> None:
        for name, tensor in (("keys", pages.keys), ("values", pages.values)):
            check_tensor(name, tensor, self.page_dtype)
            planes, _, _, kv_heads, width = tensor.shape
            if (planes, 0, 0, kv_heads, width) != self._page_shape(group):
                raise ValueError(f"{name} are pages of another model: {tuple(tensor.shape)}")

    def _page_shape(self, group: LayerGroup) -> tuple[int, ...]:
        """Return the shape of a group's pages without blocks."""
        if group not in self._page_shapes:
            self._page_shapes[group] = page_shape(self._paged, 0, 0, self.page_width, group)
        return self._page_shapes[group]
