"""The tower of an `mmproj` file, as Transformers' own: its configuration, processor and weights."""

from pathlib import Path
from typing import Any

import gguf
import torch
import transformers
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

from draftwerk.model.checkpoint.gguf_source import dequantised
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.pictures.mmproj.mmproj_file import Mmproj, read_mmproj
from draftwerk.pictures.tower_parts import TowerParts

API: Any = transformers
TEXT_PARTS = ("model.text_model.", "lm_head.")
"""Beginnings of the names of what a tower has not."""
SPLITS_MAX = 4
"""Tiles along the longer side, where a file does not say how large a picture may be."""


def mmproj_tower(path: Path, picture_id: int) -> TowerParts:
    """Return the tower of a file. Raises Refused, naming what is amiss."""
    found = read_mmproj(path)
    config = _idefics3(found, picture_id)
    kind = getattr(API, found.family.kind)
    with torch.device("meta"):
        wanted = {
            name: tuple(tensor.shape)
            for name, tensor in kind(config).state_dict().items()
            if not name.startswith(TEXT_PARTS)
        }
    weights = _weights(found, wanted)
    API.utils.logging.set_verbosity_error()
    API.utils.logging.disable_progress_bar()
    model, report = kind.from_pretrained(
        None, config=config, state_dict=weights, dtype=torch.float32, output_loading_info=True
    )
    if missing := {each for each in report["missing_keys"] if each in wanted}:
        raise Refused(f"{path}: {', '.join(sorted(missing))} are not read")
    return TowerParts(config, _processor(found), model.model.eval())


def _idefics3(found: Mmproj, picture_id: int) -> Any:
    """Return a configuration whose text part is none: no layers, and next to no tokens."""
    vision = {
        "hidden_size": found.get("embedding_length"),
        "intermediate_size": found.get("feed_forward_length"),
        "num_hidden_layers": found.get("block_count"),
        "num_attention_heads": found.get("attention.head_count"),
        "image_size": found.get("image_size"),
        "patch_size": found.get("patch_size"),
        "layer_norm_eps": found.get("attention.layer_norm_epsilon"),
        # What llama.cpp calls GELU is its approximation by tanh.
        "hidden_act": "gelu_pytorch_tanh",
    }
    text = {
        "model_type": "llama",
        "hidden_size": found.get("projection_dim"),
        **{"num_hidden_layers": 0, "vocab_size": 2, "intermediate_size": 1},
        **{"num_attention_heads": 1, "num_key_value_heads": 1},
        **{"pad_token_id": None, "bos_token_id": None, "eos_token_id": None},
    }
    return API.Idefics3Config(
        vision_config=vision,
        text_config=text,
        image_token_id=picture_id,
        scale_factor=found.get("projector.scale_factor"),
        pad_token_id=None,
        architectures=[found.family.kind],
        tie_word_embeddings=False,
    )


def _processor(found: Mmproj) -> Any:
    tile = found.get("image_size")
    return Idefics3ImageProcessorPil(
        size={"longest_edge": found.get("preproc_image_size", SPLITS_MAX * tile)},
        max_image_size={"longest_edge": tile},
        image_mean=found.get("image_mean"),
        image_std=found.get("image_std"),
    )


def _weights(found: Mmproj, wanted: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Return the weights by Transformers' names; each of the file's is one of them."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, found.get("block_count"))
    tensors, weights = dict(found.header.tensors), dict[str, torch.Tensor]()
    for name, shape in wanted.items():
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        tensor = tensors.pop(own or "", None)
        if tensor is None:
            raise Refused(f"{found.path}: tensor {own!r} is missing")
        if tensor.shape != shape:
            said = f"{list(tensor.shape)}, its keys call for {list(shape)}"
            raise Refused(f"{found.path}: tensor {own!r} is {said}")
        try:
            weights[name] = torch.tensor(dequantised(tensor)).reshape(shape)
        except NotImplementedError as error:
            raise Refused(f"{found.path}: tensor {own!r} is {tensor.kind}: {error}") from error
    if tensors:
        raise Refused(f"{found.path}: tensor {next(iter(tensors))!r} is not supported")
    return weights
