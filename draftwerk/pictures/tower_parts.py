"""The parts of a checkpoint's tower by Transformers' classes, each key and weight accounted for."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from PIL import Image

from draftwerk.model.checkpoint.unsupported import Refused

API: Any = transformers
TINY = 2
"""Tokens of the text model that is loaded around the tower; none of it is used."""
TEXT_PARTS = ("model.language_model.", "model.text_model.", "lm_head.")
"""Beginnings of the names of what a tower has not."""
BUFFERS = ("position_ids", "inv_freq")
"""Ends of the names of what earlier versions wrote, though it follows from the configuration."""
DESCRIBING = {"processor_class", "image_processor_type", "feature_extractor_type", "auto_map"}
DESCRIBING |= {"_valid_processor_keys", "image_seq_len", "image_seq_length"}
"""Keys of a processor that tell of it, and change nothing."""
OF_VIDEOS = "video_"
"""Beginning of the names of keys that are for videos."""
SAMPLE = (64, 48)
"""Pixels across and down of the picture that a processor is tried with."""


class TowerParts(NamedTuple):
    """A tower that is loaded."""

    config: Any
    processor: Any
    model: Any


def checkpoint_tower(directory: Path) -> TowerParts:
    """Return the tower of a checkpoint. Raises Refused, naming what is amiss."""
    config = API.AutoConfig.from_pretrained(directory)
    processor = API.AutoImageProcessor.from_pretrained(directory, backend="pil")
    check_keys(processor, type(processor).get_image_processor_dict(directory)[0])
    return TowerParts(config, processor, _without_text(directory, config))


def check_keys(processor: Any, keys: Mapping[str, Any]) -> None:
    """Raise Refused, by name, for a key that an image processor knows nothing of."""
    known = DESCRIBING | {*processor.valid_kwargs.__annotations__}
    for name, value in keys.items():
        if name not in known and value is not None and not name.startswith(OF_VIDEOS):
            kind = type(processor).__name__.removesuffix("Pil")
            raise Refused(f"the image processor's key {name!r} is not one of {kind}'s")


def try_processor(processor: Any, is_nested: bool, more: Mapping[str, Any]) -> None:
    """Raise Refused for an image processor whose values are not to be computed with."""
    noise = np.random.default_rng(0).integers(0, 256, (*SAMPLE[::-1], 3), np.uint8)
    image = Image.fromarray(noise)
    try:
        given = [[image]] if is_nested else [image]
        inputs = processor(images=given, return_tensors=None, **more)
        found = np.array(inputs["pixel_values"], np.float32)
    except Exception as error:  # whatever it makes of a value that it was given
        raise Refused(f"the image processor's configuration fails: {error}") from error
    if not np.isfinite(found).all():
        raise Refused("the image processor's mean, deviation or factor makes no finite numbers")


def _without_text(directory: Path, config: Any) -> Any:
    """Return a model whose text part has no layers and next to no tokens. Raises Refused."""
    text = config.get_text_config()
    text.num_hidden_layers, text.vocab_size = 0, TINY
    if getattr(text, "layer_types", None):
        text.layer_types = []
    text.pad_token_id = text.bos_token_id = text.eos_token_id = config.pad_token_id = None
    kind = getattr(API, config.architectures[0])
    API.utils.logging.set_verbosity_error()
    API.utils.logging.disable_progress_bar()
    model, report = kind.from_pretrained(
        directory,
        config=config,
        dtype=torch.float32,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    check_weights(report)
    return model.model.eval()


def check_weights(report: Mapping[str, Any]) -> None:
    """Raise Refused where a tower's weights are not those of its file, which Transformers makes up
    or leaves out."""
    shapes = {name: (found, asked) for name, found, asked in report["mismatched_keys"]}
    for name in sorted(chain(shapes, report["missing_keys"], report["unexpected_keys"])):
        if name.startswith(TEXT_PARTS) or name.endswith(BUFFERS):
            continue
        if name in shapes:
            found, asked = map(list, shapes[name])
            raise Refused(f"tensor {name!r} is {found}, the configuration calls for {asked}")
        kind = "missing" if name in report["missing_keys"] else "not supported"
        raise Refused(f"tensor {name!r} is {kind}")
