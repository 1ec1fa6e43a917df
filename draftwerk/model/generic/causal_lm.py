"""A causal model that Transformers knows: its config, or a refusal that says what is in the way.

Nothing here is particular to a family: what a class computes is read off its code, which calls an
attention that is given to it.
"""

from collections.abc import Iterator
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import transformers
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.configuration_auto import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from draftwerk.model.checkpoint.config import KeyHeads, LayerGroup
from draftwerk.model.checkpoint.end_tokens import end_tokens
from draftwerk.model.checkpoint.families.architecture import Json, counted
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.files.shards import BYTES, stored_tensors
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.hf_config import QUANTISATION_FILES, read_generation
from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vector_form import vector_form

LAYERS = ("full_attention", "sliding_attention")
"""Kinds of layers whose only memory is keys and values."""
FOLLOWING_THE_LONGEST = ("dynamic", "longrope")
"""Rules of rotation that depend on the longest text of a batch."""


class LayerPages(NamedTuple):
    """Where a layer's keys and values lie, and what a token has of them."""

    plane: int
    """Its own, or that of the layer whose keys and values it attends to."""
    num_kv_heads: int
    head_size: int


class CausalLM(NamedTuple):
    """A model of Transformers, and what its pages are made by."""

    config: PreTrainedConfig
    """The configuration of the text, where a model has images or sound beside it."""
    model_class: Any
    """The class of Transformers."""
    beside_others: bool
    """Whether it is the text of a model with images or sound."""
    vocab_size: int
    context_max: int
    eos_token_ids: tuple[int, ...]
    layers: tuple[LayerPages, ...]
    plane_count: int
    num_kv_heads: int
    """The heads of a plane; 1 where layers differ, and all of a token counts as one head."""
    head_size: int
    """The size of keys and of values; a plane has room for the largest layer."""

    def planes_in(self, group: LayerGroup) -> int:
        """Return how many planes there are; no group of layers has its own."""
        return self.plane_count

    def widest_keys(self, group: LayerGroup) -> KeyHeads:
        """Return the heads of a plane."""
        return KeyHeads(self.num_kv_heads, self.head_size)


def read_causal(directory: Path) -> CausalLM:
    """Read a directory's `config.json`. Raises Refused for a model that does not run on pages."""
    if read_card(directory) is not None:
        raise Refused("backend transformers reads directories of safetensors, not GGUF files")
    hf = read_json(directory / "config.json")
    if hf is None:
        raise Refused(f"{directory}: no config.json")
    if "quantization_config" in hf or any(
        (directory / each).is_file() for each in QUANTISATION_FILES
    ):
        raise Refused("backend transformers serves whole weights, and these are quantised")
    whole = _config(directory)
    config = whole.get_text_config()
    if whole is not config:
        config.tie_word_embeddings = _field(whole, "tie_word_embeddings")
    model_class = _model_class(whole, config, hf)
    if reason := next(_in_the_way(config, model_class), ""):
        raise Refused(
            f"{model_class.__name__}: {reason}, which backend transformers does not serve"
        )
    vocab_size = _count(config, "vocab_size")
    eos = _field(whole, "eos_token_id")
    ends = {
        "eos_token_id": config.eos_token_id if eos is None else eos,
        "vocab_size": vocab_size,
    }
    layers = _layers(config)
    shapes = {each[1:] for each in layers}
    heads, size = shapes.pop() if len(shapes) == 1 else (1, max(map(prod, shapes)))
    return CausalLM(
        config,
        model_class,
        whole is not config,
        vocab_size,
        _count(config, "max_position_embeddings"),
        end_tokens(directory, ends, read_generation(directory)),
        layers,
        1 + max(each.plane for each in layers),
        heads,
        size,
    )


def read_causal_info(location: Location, pooling: str = "auto") -> ModelInfo:
    """Read a located model's card, as `read_info` does. Raises Refused."""
    model = read_causal(location.directory)
    stored = stored_tensors(location.directory)
    for name, held in stored.items():
        if held.dtype not in BYTES:
            raise Refused(f"{name} is {held.dtype}: quantised weights are not supported")
    sizes = {"hidden_size": _count(model.config, "hidden_size")}
    return ModelInfo(
        name=location.name,
        directory=str(location.directory),
        vocab_size=model.vocab_size,
        context_max=model.context_max,
        eos_token_ids=model.eos_token_ids,
        kv_heads_per_token=2 * model.plane_count * model.num_kv_heads,
        head_size=model.head_size,
        family=model.config.model_type,
        vectors=vector_form(location.directory, model.config.to_dict() | sizes, pooling),
        stored_bytes=sum(path.stat().st_size for path in {each.path for each in stored.values()}),
        elements=sum(prod(each.shape) for each in stored.values()),
    )


def _config(directory: Path) -> PreTrainedConfig:
    try:
        return AutoConfig.from_pretrained(directory, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # whatever a class makes of fields that it does not have
        reason = str(error).strip().partition("\n")[0]
        raise Refused(
            f"{directory / 'config.json'}: Transformers does not read it: {reason}"
        ) from error


def _layers(config: PreTrainedConfig) -> tuple[LayerPages, ...]:
    """Return where the layers' keys and values lie; those that share have one plane."""
    count = _count(config, "num_hidden_layers")
    own: Any = config.per_layer_config if config.is_heterogeneous else [config] * count
    modes = _field(config, "kv_sharing_modes") or [None] * count
    kinds = _field(config, "layer_types") or [LAYERS[0]] * count
    latest: dict[str, int] = {}
    found: list[LayerPages] = []
    for layer, (kind, mode) in enumerate(zip(kinds, modes, strict=True)):
        if mode != "reuse":
            latest[kind] = len(set(latest.values()) | {each.plane for each in found})
        found.append(LayerPages(latest[kind], *_heads(own[layer])))
    return tuple(found)


def _heads(config: PreTrainedConfig) -> tuple[int, int]:
    """Return how many keys a token has in a layer, and of what size."""
    heads = _count(config, "num_attention_heads")
    size = _field(config, "head_dim") or _count(config, "hidden_size") // heads
    if _field(config, "multi_query"):
        return 1, size
    return _field(config, "num_key_value_heads") or heads, size


def _model_class(whole: PreTrainedConfig, config: PreTrainedConfig, hf: Json) -> Any:
    """Return the class of the text: of a model with images or sound, its language model's."""
    names: Any = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    name = names if isinstance(names, str) or names is None else names[0]
    if name is None:
        raise Refused(
            f"model_type {config.model_type!r} has no causal model in Transformers "
            f"{version('transformers')}"
        )
    named = hf.get("architectures") or [name]
    if whole is config and name not in named:
        raise Refused(f"{named[0]} is not supported: of {config.model_type!r} only {name} is")
    return getattr(transformers, name)


def _in_the_way(config: PreTrainedConfig, model_class: Any) -> Iterator[str]:
    """Yield what keeps a model from pages that hold keys and values by token."""
    if config.is_encoder_decoder:
        yield "an encoder before the decoder"
    if _field(config, "is_causal") is False:
        yield "tokens that see those behind them (is_causal false)"
    if model_class._is_stateful:
        yield "a recurrent state"
    if not model_class._supports_attention_backend:
        yield "attention that is not called through Transformers' interface"
    if _field(config, "alibi"):
        yield "ALiBi"
    if _field(config, "num_kv_shared_layers") and _field(config, "kv_sharing_modes") is None:
        yield "layers with keys and values of others (num_kv_shared_layers)"
    for kind in _field(config, "layer_types") or ():
        if kind not in LAYERS:
            yield f"a layer of type {kind}"
    for rule in rope_types(_field(config, "rope_parameters") or {}):
        if rule in FOLLOWING_THE_LONGEST:
            yield f"rotation by the longest text of a batch (rope_type {rule})"


def rope_types(parameters: Json) -> Iterator[str]:
    """Yield the rules of rotation of a config, of all kinds of layers."""
    if "rope_type" in parameters:
        yield parameters["rope_type"]
    for each in parameters.values():
        if isinstance(each, dict):
            yield from rope_types(each)


def _field(config: PreTrainedConfig, name: str) -> Any:
    """Return a field, or None where there is none."""
    try:
        return getattr(config, name, None)
    except Exception as error:  # of fields that layers have each for themselves
        raise Refused(f"{name} is not the same in all layers") from error


def _count(config: PreTrainedConfig, name: str) -> int:
    return counted(name, _field(config, name))
