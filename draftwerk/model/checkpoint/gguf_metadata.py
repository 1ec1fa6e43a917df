"""The kinds of values in a GGUF's metadata, held where it is read."""

from collections.abc import Mapping
from typing import Any

from draftwerk.model.checkpoint.unsupported import Refused

NUMBER, TEXT = "number", "text"
NUMBERS, TEXTS = "list of numbers", "list of texts"
BY_LAYER = (NUMBER, NUMBERS)
TEMPLATE = "tokenizer.chat_template"
"""Before a dot and the names of others beside the default one."""
KINDS: Mapping[str, tuple[str, ...]] = {
    ".rope.scaling.type": (TEXT,),
    ".classifier.output_labels": (TEXTS,),
    ".attention.head_count": BY_LAYER,
    ".attention.head_count_kv": BY_LAYER,
    ".attention.sliding_window_pattern": BY_LAYER,
    ".feed_forward_length": BY_LAYER,
    **{f"tokenizer.ggml.{name}": (TEXT,) for name in ("model", "pre")},
    **{f"tokenizer.ggml.{name}": (TEXTS,) for name in ("tokens", "merges")},
    **{f"tokenizer.ggml.{name}": (NUMBERS,) for name in ("scores", "token_type")},
    **{f"tokenizer.ggml.add_{name}": (NUMBER,) for name in ("bos_token", "eos_token")},
    "tokenizer.ggml.add_space_prefix": (NUMBER,),
    "tokenizer.ggml.suppress_tokens": (NUMBERS,),
    "tokenizer.huggingface.json": (TEXT,),
    "general.architecture": (TEXT,),
    "draftwerk.quantised.method": (TEXT,),
}
"""By what stands behind the architecture's name, or the whole name; others are numbers."""


def checked(key: str, value: Any, architecture: str = "") -> Any:
    """Return the value of a field that is read. Raises Refused for one of another kind."""
    wanted = (TEXT,) if _is_template(key) else KINDS.get(key, (NUMBER,))
    if (found := _kind(value)) not in wanted and not (
        value == [] and wanted[-1].startswith("list")
    ):
        name = architecture + key if key.startswith(".") else key
        raise Refused(f"{name} is a {found}, not a {' or a '.join(wanted)}")
    return value


def check_tokenizer(fields: Mapping[str, Any]) -> None:
    """Refuse a field of a tokenizer that has a value of another kind."""
    for key, value in fields.items():
        if _is_template(key) or (key.startswith("tokenizer.") and key in KINDS):
            checked(key, value)


def _is_template(key: str) -> bool:
    return key == TEMPLATE or key.startswith(f"{TEMPLATE}.")


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"list of {_kind(value[0])}s" if value else "list of nothing"
    return TEXT if isinstance(value, str) else NUMBER
