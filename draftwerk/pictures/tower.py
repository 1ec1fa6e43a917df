"""The vision tower and the projector of a checkpoint: a picture's bytes to rows of embeddings."""

import warnings
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.vocabulary import read_tokenizer
from draftwerk.pictures.layouts import FAMILIES, PictureLayout
from draftwerk.pictures.mmproj.mmproj_tower import mmproj_tower
from draftwerk.pictures.picture_sources import source_path
from draftwerk.pictures.placeholders import ROWS_MAX, key_of
from draftwerk.pictures.tower_messages import PictureRead, PictureWork, TowerOptions
from draftwerk.pictures.tower_parts import TowerParts, checkpoint_tower, try_processor

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
PIXELS_MAX = 2**25
"""Most pixels of a picture, known before it is unpacked."""
DEEP_GREY = "I;16"
"""Pillow's name for grey of 16 bits, whose upper eight are seen."""
SIDE_MAX, SIDES_RATIO_MAX = 2**14, 100
READ = ("pixel_values", "pixel_attention_mask", "image_sizes", "image_grid_thw")
"""Values of image processors that models are given."""
MUTUAL_MAX = 512
"""Rows of a picture that see each other, at most: as many as layers with windows take at once."""
TRIAL = {"image_grid_thw": [[1, 8, 8]]}
"""A picture's grid, for which a configuration is refused before there is any."""


class Tower:
    """Reads pictures, one after another."""

    def __init__(self, options: TowerOptions) -> None:
        directory = Path(options.directory)
        torch.set_num_threads(options.threads)
        config, self.processor, self.model = _parts(options)
        self.family = FAMILIES[config.architectures[0]]
        self.folder = Path(options.folder)
        picture = read_tokenizer(directory).id_to_token(config.image_token_id)
        if picture is None:
            raise Refused(f"the tokenizer has no token {config.image_token_id}, the picture's")
        vision = config.vision_config
        self.layout = PictureLayout(picture, config, getattr(vision, "patch_size", 1))
        self._given = self.family.given(self.layout)
        try_processor(self.processor, self.family.is_nested, self._given)
        if self.family.places is not None:
            self.family.places(TRIAL, config)
        self.rows_max = MUTUAL_MAX if self.family.is_mutual else ROWS_MAX
        if self.family.is_mutual and config.text_config.sliding_window < self.rows_max:
            self.rows_max = config.text_config.sliding_window

    def read(self, work: PictureWork) -> PictureRead:
        """Return a picture's layout; its rows are written beside those of others."""
        try:
            image = opened(work.data, work.media_type)
        except ValueError as error:
            return PictureRead(fault=str(error))
        try:
            inputs, rows = self._rows(image)
        except Exception as error:  # a size, for one, that its processor leaves as it is
            if isinstance(error, MemoryError) or "can't allocate" in str(error):
                raise MemoryError from error
            width, height = image.size
            said = f"this model takes no picture of {width} x {height} pixels: {str(error)[:200]}"
            return PictureRead(fault=said)
        if not rows.isfinite().all():
            return PictureRead(fault="this model makes no finite numbers of it")
        if len(rows) > self.rows_max:
            said = f"it would be {len(rows)} tokens; {self.rows_max} are the most"
            return PictureRead(fault=said)
        text = self.family.layout(inputs, len(rows), self.layout)
        if text.count(self.layout.picture) != len(rows):
            raise RuntimeError(f"{len(rows)} rows do not fit {text[:200]!r}")
        path = self.folder / key_of(work.digest)
        draft = path.with_suffix(".draft")
        if self.family.places is not None:
            places = self.family.places(inputs, self.layout.config)
            rows = torch.cat([rows, torch.from_numpy(places)], 1)
        features = sha256(rows.numpy().tobytes()).hexdigest()
        with draft.open("wb") as file:
            np.save(file, rows.numpy())
        draft.rename(path)
        kept = source_path(self.folder, work.digest)
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(work.data)
        source = sha256(work.data).hexdigest()
        return PictureRead(text, len(rows), path.stat().st_size, source, features)

    @torch.inference_mode()
    def _rows(self, image: Image.Image) -> tuple[Any, torch.Tensor]:
        """Return what the processor makes of a picture, and its rows."""
        given = [[image]] if self.family.is_nested else [image]
        inputs = self.processor(images=given, return_tensors=None, **self._given)
        known = {
            name: torch.as_tensor(np.array(value)) for name, value in inputs.items() if name in READ
        }
        found = self.model.get_image_features(**known)
        parts = [found.pooler_output, *(getattr(found, "deepstack_features", None) or ())]
        joined = [torch.cat([each.reshape(-1, each.shape[-1]) for each in part]) for part in parts]
        return inputs, torch.cat(joined, 1).float().contiguous()


def opened(data: bytes, media_type: str = "") -> Image.Image:
    """Return a picture's pixels. Raises ValueError, in words for the client."""
    form = media_type.removeprefix("image/").replace("jpg", "jpeg").upper()
    formats = [each for each in FORMATS if form in ("", each)]
    if not formats:
        raise ValueError(f"{media_type} is not read, only {', '.join(FORMATS)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(BytesIO(data), formats=formats)
            width, height = image.size
            if width * height > PIXELS_MAX or max(width, height) > SIDE_MAX:
                raise ValueError(f"it has {width} x {height} pixels; {PIXELS_MAX} are the most")
            if max(width, height) > SIDES_RATIO_MAX * min(width, height):
                raise ValueError(f"it has {width} x {height} pixels, which is a line")
            image = ImageOps.exif_transpose(image)
            if image.mode.startswith(DEEP_GREY):  # which conversion would cut to white
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            return image.convert("RGB")
    except UnidentifiedImageError:
        raise ValueError(f"it is no {', '.join(formats)}") from None
    except ValueError:
        raise
    except Exception as error:  # whatever a broken file makes of a decoder
        raise ValueError(f"it is broken: {str(error)[:200]}") from None


def _parts(options: TowerOptions) -> TowerParts:
    if options.mmproj:
        return mmproj_tower(Path(options.mmproj), options.picture_id)
    return checkpoint_tower(Path(options.directory))
