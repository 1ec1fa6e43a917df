"""The tensors that a config calls for, and whether a checkpoint holds them, without torch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from draftwerk.model.checkpoint.architectures import architecture_of
from draftwerk.model.checkpoint.config import LayerKind
from draftwerk.model.checkpoint.families.architecture import Architecture, Json
from draftwerk.model.checkpoint.files.shards import BYTES, StoredTensor
from draftwerk.model.checkpoint.recurrent_tensors import TensorShape, recurrent_tensors
from draftwerk.model.checkpoint.supported import experts_of, recurrence_of, sizes_of
from draftwerk.model.checkpoint.text_part import EMBEDDING, HEAD
from draftwerk.model.checkpoint.unsupported import Refused

STACKED = ("gate_exps", "up_exps", "down_exps")
"""The matrices of all experts in a GGUF."""
FUSED = "gate_up_exps"
"""The first two, where they are one: an expert's gates, its ups, the next one's gates."""


class Inventory(NamedTuple):
    """Tensors by name, with their shapes."""

    required: dict[str, TensorShape]
    optional: dict[str, TensorShape]
    unread: dict[str, TensorShape]
    """Which checkpoints may have, and no program reads."""


def inventory(hf: Json, of_gguf: bool = False, is_fused: bool = False) -> Inventory:
    """Return what a config calls for; the config has passed `check_supported`.

    A GGUF has one matrix of all experts, one above the other; of gates and ups if it `is_fused`.
    """
    row, hidden = architecture_of(hf), hf["hidden_size"]
    names = row.tensor_names(of_gguf)
    required: dict[str, TensorShape] = {EMBEDDING: (hf["vocab_size"], hidden)}
    optional: dict[str, TensorShape] = {}
    unread: dict[str, TensorShape] = {}
    (optional if hf.get("tie_word_embeddings") else required)[HEAD] = (hf["vocab_size"], hidden)
    _add_norms(row, hidden, [names.last_norm], required)
    kinds, graph = row.layers(hf), row.graph(hf)
    if size := graph.per_layer_size:
        width = hf["num_hidden_layers"] * size
        required[f"{names.layer_embedding}.weight"] = (hf["vocab_size"], width)
        required[f"{names.layer_projection}.weight"] = (width, hidden)
        _add_norms(row, size, [names.layer_norm], required)
    for index in range(hf["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        _add_norms(row, hidden, [layer + name for name in names.norms], required)
        if kinds[index].mixer == "convolution":
            _add_convolution(hf, layer, required, of_gguf)
        elif kinds[index].mixer == "recurrence":
            _add_recurrence(hf, layer, required, of_gguf)
        else:
            _add_attention(hf, kinds[index], layer, required, optional, of_gguf)
            if kinds[index].kv_from >= 0:
                unread |= _keys_of(hf, kinds[index], layer)
        has_experts = kinds[index].has_experts
        if has_experts:
            size = _add_experts(hf, layer, required, of_gguf, is_fused)
        else:
            size = kinds[index].ffn_size or hf["intermediate_size"]
        if size:
            _add_ffn(hf, layer, size, names.dense(has_experts), required)
        if graph.per_layer_size:
            required[f"{layer}{names.layer_gate}.weight"] = (graph.per_layer_size, hidden)
            required[f"{layer}{names.layer_output}.weight"] = (hidden, graph.per_layer_size)
            _add_norms(row, hidden, [layer + names.after_input], required)
        if graph.has_layer_scalar:
            required[f"{layer}{names.layer_scalar}.weight"] = (1,)
    return Inventory(required, optional, unread)


def _add_norms(
    row: Architecture, hidden: int, names: Sequence[str], required: dict[str, TensorShape]
) -> None:
    for kind in ("weight", "bias")[: 1 + row.has_norm_bias]:
        required |= {f"{name}.{kind}": (hidden,) for name in names}


def _add_attention(
    hf: Json,
    kind: LayerKind,
    layer: str,
    required: dict[str, TensorShape],
    optional: dict[str, TensorShape],
    of_gguf: bool,
) -> None:
    row, sizes, hidden = architecture_of(hf), sizes_of(hf), hf["hidden_size"]
    size = kind.head_size or sizes.head_size
    query, key = sizes.num_heads * size, (kind.kv_heads or sizes.num_kv_heads) * size
    gates = 1 + row.graph(hf).has_output_gate
    rows = _fused(row.names.qkv, (gates * query, key, key))
    names = row.names.qkv[:1] if kind.kv_from >= 0 else row.names.qkv[: 3 - kind.keys_are_values]
    rows = {name: count for name, count in rows.items() if name in names}
    required |= {f"{layer}{name}.weight": (count, hidden) for name, count in rows.items()}
    output = f"{layer}{row.names.output}"
    required[f"{output}.weight"] = (hidden, query)
    if row.has_qkv_bias or _says(hf, row.qkv_bias):
        required |= {f"{layer}{name}.bias": (count,) for name, count in rows.items()}
    if _says(hf, row.output_bias):
        # Transformers fills in zeros where a checkpoint has biases for the other three alone.
        optional[f"{output}.bias"] = (hidden,)
    if row.graph(hf).has_sinks:
        required[f"{layer}{row.names.sinks}.weight"] = (sizes.num_heads,)
    if row.query_key_norm(hf):
        over_all = row.graph(hf).head_norm == "projection"
        norms = ((row.names.query_norm, query), (row.names.key_norm, key))
        for name, count in norms[: 1 + (kind.kv_from < 0)]:
            if "{}" in name and not of_gguf:
                own = (f"{layer}{name.format(head)}.weight" for head in range(count // size))
                required |= dict.fromkeys(own, (size,))
            elif "{}" in name:
                required[f"{layer}{name}.weight"] = (count // size, size)
            else:
                required[f"{layer}{name}.weight"] = (count if over_all else size,)


def _keys_of(hf: Json, kind: LayerKind, layer: str) -> dict[str, TensorShape]:
    """Return what makes keys and values in a layer that reads another's."""
    names, sizes = architecture_of(hf).names, sizes_of(hf)
    size = kind.head_size or sizes.head_size
    rows = (kind.kv_heads or sizes.num_kv_heads) * size
    found = {f"{layer}{name}.weight": (rows, hf["hidden_size"]) for name in names.qkv[1:]}
    return {**found, f"{layer}{names.key_norm}.weight": (size,)}


def _add_convolution(hf: Json, layer: str, required: dict[str, TensorShape], of_gguf: bool) -> None:
    row, hidden, kernel_size = (
        architecture_of(hf),
        hf["hidden_size"],
        architecture_of(hf).kernel_size(hf),
    )
    names = row.names
    shapes = {
        names.convolution_input: (3 * hidden, hidden),
        names.convolution: (hidden, kernel_size) if of_gguf else (hidden, 1, kernel_size),
        names.convolution_output: (hidden, hidden),
    }
    required |= {f"{layer}{name}.weight": shape for name, shape in shapes.items()}
    if _says(hf, row.convolution_bias):
        required |= {f"{layer}{name}.bias": shape[:1] for name, shape in shapes.items()}


def _add_recurrence(hf: Json, layer: str, required: dict[str, TensorShape], of_gguf: bool) -> None:
    row, rule = architecture_of(hf), recurrence_of(hf)
    assert rule is not None
    shapes = recurrent_tensors(hf, row, rule, of_gguf)
    required |= {f"{layer}{row.names.recurrence}{name}": shape for name, shape in shapes.items()}


def is_fused(names: Iterable[str]) -> bool:
    """Whether a GGUF has gates and ups of experts in one matrix, by its tensors' names."""
    return any(name.endswith(f".{FUSED}.weight") for name in names)


def _add_experts(
    hf: Json, layer: str, required: dict[str, TensorShape], of_gguf: bool, is_fused: bool
) -> int:
    """Add a layer's experts; returns the size of the FFN beside them, 0 for none."""
    row, hidden, found = architecture_of(hf), hf["hidden_size"], experts_of(hf)
    assert found is not None
    count, size, names = found.count, found.ffn_size, row.tensor_names(of_gguf)
    required[f"{layer}{names.router}.weight"] = (count, hidden)
    gate_up, down = expert_names(row, of_gguf, is_fused)
    shapes = {name: (rows, hidden) for name, rows in _fused(gate_up, (size, size)).items()}
    shapes[down] = (hidden, size)
    if found.has_choice_bias:
        required[f"{layer}{names.choice_bias}"] = (count,)
    if names.expert_norm:
        own = (names.expert_norm, names.after_experts, names.after_dense, names.router_scale)
        required |= {f"{layer}{name}.weight": (hidden,) for name in own}
        required[f"{layer}{names.expert_scale}.weight"] = (count,)
    if found.shared_is_gated:
        required[f"{layer}{names.shared_gate}.weight"] = (hidden,) if of_gguf else (1, hidden)
    if row.has_expert_biases:
        required[f"{layer}{names.router}.bias"] = (count,)
        required |= {f"{layer}{name}.bias": (count, rows) for name, (rows, _) in shapes.items()}
    for name, (rows, columns) in shapes.items():
        if of_gguf:
            required[f"{layer}{name}.weight"] = (count * rows, columns)
        elif row.experts_interleave:
            required[f"{layer}{name}.weight"] = (count, columns, rows)
        elif "{}" not in name:
            required[f"{layer}{name}.weight"] = (count, rows, columns)
        else:
            own = {f"{layer}{name.format(each)}.weight": (rows, columns) for each in range(count)}
            required |= own
    return found.shared_ffn_size


def expert_names(row: Architecture, of_gguf: bool, is_fused: bool) -> tuple[tuple[str, ...], str]:
    """Return what experts' gates and ups, and downs, are called."""
    if of_gguf:
        return (FUSED,) if is_fused else STACKED[:2], STACKED[2]
    return row.names.expert_gate_up, row.names.expert_down


def _add_ffn(
    hf: Json,
    layer: str,
    ffn: int,
    names: tuple[tuple[str, ...], str],
    required: dict[str, TensorShape],
) -> None:
    row, hidden = architecture_of(hf), hf["hidden_size"]
    gate_up, down = names
    parts = (ffn, ffn) if row.graph(hf).is_gated else (ffn,)
    rows = {name: (count, hidden) for name, count in _fused(gate_up, parts).items()}
    rows[down] = (hidden, ffn)
    required |= {f"{layer}{name}.weight": shape for name, shape in rows.items()}
    if _says(hf, row.ffn_bias):
        required |= {f"{layer}{name}.bias": shape[:1] for name, shape in rows.items()}


def _fused(names: Sequence[str], counts: Sequence[int]) -> dict[str, int]:
    """Return the rows of each matrix, or of the one that holds all."""
    return {names[0]: sum(counts)} if len(names) == 1 else dict(zip(names, counts, strict=True))


def _says(hf: Json, field: str | None) -> bool:
    return field is not None and bool(hf.get(field))


def check_tensors(hf: Json, stored: Mapping[str, StoredTensor], of_gguf: bool = False) -> None:
    """Refuse a checkpoint whose weights do not fit its config, naming the first of them."""
    required, optional, unread = inventory(hf, of_gguf, is_fused(stored))
    for name, shape in (required | optional | unread).items():
        held = stored.get(name)
        if held is None:
            if name in required:
                raise Refused(f"the weights lack {name}{_because(hf, name)}")
        elif held.dtype not in BYTES:
            raise Refused(f"{name} is {held.dtype}: quantised weights are not supported")
        elif held.shape != shape:
            raise Refused(f"{name} has shape {held.shape}, the config says {shape}")
    known = required.keys() | optional.keys() | unread.keys()
    left = [name for name in stored if name not in known and not _is_computed(name)]
    if left:
        raise Refused(
            f"the weights hold {len(left)} unknown tensors: {', '.join(left[:3])}"
            + _because(hf, left[0])
        )


def _is_computed(name: str) -> bool:
    """Whether a tensor is one that old checkpoints stored, and every program computes anew."""
    return name.endswith("rotary_emb.inv_freq")


def _because(hf: Json, name: str) -> str:
    """Return which field of the config a tensor's presence or absence contradicts, if it is one."""
    if name == HEAD:
        return " (tie_word_embeddings is false)"
    if not name.endswith(".bias"):
        return ""
    row = architecture_of(hf)
    field = (row.ffn_bias if ".mlp." in name else row.qkv_bias) or "attention_bias"
    return f" ({field} is {str(bool(hf.get(field))).lower()})"
