"""A GGUF file in the words of Transformers: its config, its tensors' names, its tokenizer."""

from pathlib import Path
from typing import Any

import msgspec
from gguf.constants import LlamaFileType

from draftwerk.model.checkpoint.files.content import Hashed
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.gguf_card import CardTensor, GgufCard, write_card
from draftwerk.model.checkpoint.gguf_config import hf_config, recommended_sampling
from draftwerk.model.checkpoint.gguf_names import gguf_name, hf_name
from draftwerk.model.checkpoint.gguf_source import (
    METHOD,
    GgufSource,
    dequantised,
    flat,
    open_gguf,
    weight_tensors,
)
from draftwerk.model.checkpoint.gguf_tokenizer import write_tokenizer
from draftwerk.model.checkpoint.inventory import check_tensors, inventory, is_fused
from draftwerk.model.checkpoint.rope_fields import check_rope, rope_of, rotary_dimensions
from draftwerk.model.checkpoint.supported import GENERATION_FILE, check_supported
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vector_form import RERANK_FILE
from draftwerk.speculative.protocol.frames import OnProgress

VOCABULARY = ("token_embd.weight", "output.weight")


def describe(path: Path, name: str, directory: Path, progress: OnProgress) -> GgufCard:
    """Write config.json, the tokenizer's files and the card of a model into `directory`.

    Raises Refused, naming the file and the cause, for what is not served or contradicts itself.
    """
    progress(f"reading {path.name}")
    try:
        source = open_gguf(path)
        config = hf_config(source)
        shapes = {
            hf_name(source.row, tensor.name): flat(tensor) for tensor in weight_tensors(source)
        }
        _check_formats(source)
        check_supported(config)
        check_rope(config)
        _check_shapes(source, config)
        check_tensors(
            config,
            {name: StoredTensor(path, "F32", shape) for name, shape in shapes.items()},
            of_gguf=True,
        )
    except Refused as refused:
        named = str(refused).startswith(str(path.parent))
        raise (refused if named else Refused(f"{path}: {refused}")) from refused
    (directory / "config.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(config), indent=2)
    )
    if sampling := recommended_sampling(source):
        (directory / GENERATION_FILE).write_bytes(msgspec.json.encode(sampling))
    card = _card(source, name, config)
    write_card(card, directory)
    progress(f"building the tokenizer of {path.name}")
    if template := source.get("tokenizer.chat_template.rerank"):
        (directory / RERANK_FILE).write_text(template, encoding="utf-8")
    write_tokenizer(source.model.paths[0], source.model.fields, directory)
    card.check_unchanged()
    return card


def _card(source: GgufSource, name: str, config: dict[str, Any]) -> GgufCard:
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    reorders = source.row.gguf is not None and source.row.gguf.pairs_are_neighbours
    rotary_size = rotary_dimensions(config, rope_of(config)[1])
    paths = source.model.paths
    tensors: dict[str, CardTensor] = {}
    for tensor in weight_tensors(source):
        order = heads.get(tensor.name.split(".")[-2], 0) if reorders else 0
        place = paths.index(tensor.path), tensor.kind, flat(tensor), tensor.begin, tensor.size
        own = (order, rotary_size) if order else (0, 0)
        tensors[hf_name(source.row, tensor.name)] = CardTensor(*place, *own)
    return GgufCard(
        name,
        _file_type(source.get("general.file_type")),
        tuple(str(path) for path in paths),
        tuple(Hashed.of(path) for path in paths),
        tensors,
        source.get(METHOD, ""),
    )


def _file_type(number: Any) -> str:
    """Return what llama.cpp calls a mix of types, such as Q4_K_M; empty for one that is unknown."""
    try:
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return ""


def _check_shapes(source: GgufSource, config: dict[str, Any]) -> None:
    """Refuse a tensor that is missing, or of another shape than the metadata call for."""
    held = {hf_name(source.row, tensor.name) for tensor in weight_tensors(source)}
    required, optional, _ = inventory(config, of_gguf=True, is_fused=is_fused(held))
    for name in (each for each in required if each not in held):
        raise Refused(f"tensor {gguf_name(source.row, name)!r} is missing")
    for tensor in weight_tensors(source):
        wanted = (required | optional).get(hf_name(source.row, tensor.name), flat(tensor))
        if flat(tensor) != wanted:
            said = " (tokenizer.ggml.tokens)" if tensor.name in VOCABULARY else ""
            raise Refused(
                f"{tensor.path}: tensor {tensor.name!r} at byte {tensor.begin} is "
                f"{list(tensor.shape)}, the metadata call for {list(wanted)}{said}"
            )


def _check_formats(source: GgufSource) -> None:
    """Refuse a format that the library cannot read, before anything is written.

    Its list is private, so a row of one tensor of each format is tried.
    """
    for tensor in {each.kind: each for each in weight_tensors(source)}.values():
        try:
            dequantised(tensor, rows=slice(0, 1))
        except NotImplementedError as error:
            raise Refused(
                f"{tensor.path}: tensor {tensor.name!r} at byte {tensor.begin} is {tensor.kind}: "
                "not supported"
            ) from error
