"""Small random models that read pictures, made by Transformers, and pictures for them."""

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.process.build import build
from draftwerk.model.process.built import extended
from draftwerk.model.step.around_steps import attached
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.pictures.picture_rows import PictureRowOptions
from draftwerk.pictures.tower import READ, Tower
from tests.support.model_driver import Driver
from tests.support.small_tokenizers import byte_level

API: Any = transformers
HIDDEN = 48
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}]"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}PICTURE{% endif %}{% endfor %}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


class Pictured(NamedTuple):
    """How a family is made."""

    text_type: str
    tokens: tuple[str, ...]
    """Special tokens of its tokenizer, its picture first."""
    config: Callable[[dict[str, Any], int], Any]
    processor: Callable[[], Any]
    shown: str = ""
    """The token that its template shows a picture as, if not its picture's."""


def text_config(vocab_size: int, model_type: str = "llama") -> dict[str, Any]:
    """Return the configuration of a small text model."""
    return {
        "model_type": model_type,
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _mistral3(text: dict[str, Any], picture: int) -> Any:
    vision = {
        **{"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 64, "head_dim": 8},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64, "patch_size": 8},
    }
    return API.Mistral3Config(
        vision_config=vision,
        text_config=text,
        image_token_index=picture,
        spatial_merge_size=2,
        vision_feature_layer=-1,
    )


CLIP = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "image_size": 32, "patch_size": 8, "projection_dim": 32},
}


def _llava(text: dict[str, Any], picture: int) -> Any:
    vision = {"model_type": "clip_vision_model", **CLIP}
    return API.LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=picture,
        vision_feature_layer=-2,
        image_seq_length=16,
    )


def _idefics3(text: dict[str, Any], picture: int) -> Any:
    vision = {"model_type": "idefics3_vision", **CLIP}
    return API.Idefics3Config(
        vision_config=vision, text_config=text, image_token_id=picture, scale_factor=2
    )


def _smolvlm(text: dict[str, Any], picture: int) -> Any:
    vision = {"model_type": "smolvlm_vision", **CLIP}
    return API.SmolVLMConfig(
        vision_config=vision, text_config=text, image_token_id=picture, scale_factor=2
    )


def _internvl(text: dict[str, Any], picture: int) -> Any:
    vision = {
        **{"model_type": "internvl_vision", **CLIP, "image_size": [32, 32], "patch_size": [8, 8]},
        "use_absolute_position_embeddings": True,
    }
    return API.InternVLConfig(
        vision_config=vision, text_config=text, image_token_id=picture, image_seq_length=4
    )


QWEN = ("<|image_pad|>", "<|vision_start|>", "<|vision_end|>")
GRIDS = {
    **{"hidden_size": 32, "intermediate_size": 64, "depth": 3, "num_heads": 4, "patch_size": 4},
    **{"spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": HIDDEN},
}


def _in_sections(text: dict[str, Any]) -> dict[str, Any]:
    return {
        **text,
        "head_dim": 8,
        "rope_parameters": {
            **{"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 2, 1]},
        },
    }


def _qwen2_vl(text: dict[str, Any], picture: int) -> Any:
    vision = {**GRIDS, "embed_dim": 32, "hidden_size": HIDDEN, "mlp_ratio": 2}
    return API.Qwen2VLConfig(
        vision_config=vision, text_config=_in_sections(text), image_token_id=picture
    )


def _qwen2_5_vl(text: dict[str, Any], picture: int) -> Any:
    vision = {**GRIDS, "window_size": 16, "fullatt_block_indexes": [1]}
    return API.Qwen2_5_VLConfig(
        vision_config=vision, text_config=_in_sections(text), image_token_id=picture
    )


def _qwen3_vl(text: dict[str, Any], picture: int) -> Any:
    rule = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}
    vision = {**GRIDS, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 2]}
    return API.Qwen3VLConfig(
        vision_config=vision,
        text_config={**text, "num_hidden_layers": 3, "rope_parameters": rule},
        image_token_id=picture,
    )


def _gemma3(text: dict[str, Any], picture: int) -> Any:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    own = {"num_hidden_layers": 3, "layer_types": kinds, "sliding_window": 17}
    vision = {"model_type": "siglip_vision_model", **CLIP, "image_size": 64}
    return API.Gemma3Config(
        vision_config=vision,
        text_config={**text, **own, "query_pre_attn_scalar": 16},
        mm_tokens_per_image=16,
        image_token_index=picture,
        boi_token_index=picture + 1,
        eoi_token_index=picture + 2,
    )


def _patches() -> Any:
    return Qwen2VLImageProcessorPil(patch_size=4, min_pixels=256, max_pixels=2304)


TILES = tuple(f"<row_{row}_col_{column}>" for row in range(1, 4) for column in range(1, 4))
IDEFICS = ("<image>", "<fake_token_around_image>", "<global-img>", *TILES)
TILING: dict[str, Any] = {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}}
FAMILIES = {
    "llava": Pictured(
        "llama",
        ("<image>",),
        _llava,
        lambda: CLIPImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        ),
    ),
    "mistral3": Pictured(
        "ministral3",
        ("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        _mistral3,
        lambda: PixtralImageProcessorPil(size={"longest_edge": 64}, patch_size=8),
    ),
    "idefics3": Pictured("llama", IDEFICS, _idefics3, lambda: Idefics3ImageProcessorPil(**TILING)),
    "smolvlm": Pictured("llama", IDEFICS, _smolvlm, lambda: SmolVLMImageProcessorPil(**TILING)),
    "internvl": Pictured(
        "qwen2",
        ("<IMG_CONTEXT>", "<img>", "</img>"),
        _internvl,
        lambda: GotOcr2ImageProcessorPil(
            size={"height": 32, "width": 32}, crop_to_patches=True, max_patches=4
        ),
    ),
    "gemma3": Pictured(
        "gemma3_text",
        ("<image_soft_token>", "<start_of_image>", "<end_of_image>"),
        _gemma3,
        lambda: Gemma3ImageProcessorPil(size={"height": 64, "width": 64}),
        shown="<start_of_image>",
    ),
    "qwen2_vl": Pictured("qwen2_vl_text", QWEN, _qwen2_vl, _patches),
    "qwen2_5_vl": Pictured("qwen2_5_vl_text", QWEN, _qwen2_5_vl, _patches),
    "qwen3_vl": Pictured("qwen3_vl_text", QWEN, _qwen3_vl, _patches),
}


def save_pictured(family: str | Pictured, directory: Path, seed: int = 0) -> Any:
    """Save a random model of a family, with its processor; returns the model, in float32."""
    made = FAMILIES[family] if isinstance(family, str) else family
    raw = byte_level()
    raw.add_special_tokens(list(made.tokens))
    tokenizer = API.PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token="<s>",
        eos_token="</s>",
        chat_template=TEMPLATE.replace("PICTURE", made.shown or made.tokens[0]),
    )
    torch.manual_seed(seed)
    vocab_size = len(tokenizer) + 3
    text = text_config(vocab_size, made.text_type)
    config = made.config(text, tokenizer.convert_tokens_to_ids(made.tokens[0]))
    config.tie_word_embeddings = False
    model = API.AutoModelForImageTextToText.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 0.25))
            if parameter.ndim == 1:
                parameter.add_(1.0)
    model = model.float().eval()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    made.processor().save_pretrained(directory)
    return model


def picture(seed: int = 0, size: tuple[int, int] = (40, 56), form: str = "PNG") -> bytes:
    """Return the bytes of a random picture, `size` wide and high."""
    pixels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, form)
    return data.getvalue()


def pixels(tower: Tower, images: list[Any]) -> dict[str, torch.Tensor]:
    """Return what Transformers' model is given of pictures of one text."""
    given = [images] if tower.family.is_nested else images
    more = tower.family.given(tower.layout)
    inputs = tower.processor(images=given, return_tensors="pt", **more)
    return {name: value for name, value in inputs.items() if name in READ}


def kinds(tower: Tower, tokens: list[int]) -> dict[str, torch.Tensor]:
    """Return what Transformers' model is told of tokens that are pictures, where it asks."""
    found = (torch.tensor([tokens]) == tower.model.config.image_token_id).int()
    if tower.family.is_mutual:
        return {"token_type_ids": found}
    return {} if tower.family.places is None else {"mm_token_type_ids": found}


def pictured_driver(
    source: Path, rows: PictureRowOptions, options: dict[str, Any], **more: Any
) -> Driver:
    """Return what drives a model with rows of pictures, of whose options some are usual."""
    usual: dict[str, Any] = {"device": "cpu", "block_size": 4, "threads": 1, "measures": False}
    attach = "draftwerk.pictures.picture_rows:attach", msgspec.json.encode(rows).decode()
    asked = ModelOptions(source=str(source), attached=(attach,), **usual, **options)
    built = extended(build(asked), asked)
    runner = target_runner(built.parts)
    step = attached(built.parts, runner.step)
    pictured: Any = SimpleNamespace(
        step=step, pages=runner.pages, cached_sequences=runner.cached_sequences
    )
    return Driver(pictured, **more)
