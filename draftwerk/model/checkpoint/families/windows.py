"""Which layers of a config slide, and how far their tokens see."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from draftwerk.model.checkpoint.config import LayerKind
from draftwerk.model.checkpoint.families.architecture import Json, count_of, counted
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys
from draftwerk.model.checkpoint.unsupported import Refused

FULL, SLIDING = "full_attention", "sliding_attention"
WINDOW = ".attention.sliding_window"
Types = Callable[[Json], Sequence[str]]
WINDOW_KEYS = KnownKeys(frozenset({"sliding_window", "use_sliding_window", "layer_types"}))
"""Keys of classes that have no field for one of them, and whose files may have it."""


def layer_types(hf: Json, default: Types) -> Sequence[str]:
    """Return the kind of each layer. Raises Refused for one that is not served."""
    if (types := hf.get("layer_types")) is None:
        return default(hf)
    types = checked_types(hf, types, (FULL, SLIDING))
    if SLIDING in types and "sliding_window" in hf and hf["sliding_window"] is None:
        raise Refused("layer_types 'sliding_attention' contradicts sliding_window null")
    if SLIDING in types and hf.get("use_sliding_window", True) is False:
        raise Refused("layer_types 'sliding_attention' contradicts use_sliding_window false")
    return types


def checked_types(hf: Json, types: Any, known: Collection[str]) -> Sequence[str]:
    """Return a kind for each layer. Raises Refused for one that is not known."""
    if not isinstance(types, list) or len(types) != hf["num_hidden_layers"]:
        raise Refused(f"layer_types contradicts num_hidden_layers {hf['num_hidden_layers']}")
    for kind in types:
        if not isinstance(kind, str) or kind not in known:
            raise Refused(f"layer_types {kind!r} is not supported (only {', '.join(known)})")
    return types


def window_of(hf: Json) -> int:
    """Return how many positions a token of a sliding layer sees; 0 where that is all."""
    if hf.get("sliding_window") is None:
        return 0
    window = count_of(hf, "sliding_window")
    return window if window < hf["max_position_embeddings"] else 0


def sliding(
    default: Types, local_rotary: int = 0, full_rotary: int = 0
) -> Callable[[Json], Sequence[LayerKind]]:
    """Return a rule for layers by `layer_types`, with the rotaries of the two kinds."""

    def layers(hf: Json) -> Sequence[LayerKind]:
        types = layer_types(hf, default)
        window = window_of(hf) if SLIDING in types else 0
        local = LayerKind(window, local_rotary)
        return [local if kind == SLIDING else LayerKind(0, full_rotary) for kind in types]

    return layers


def every(period: int, field: str = "") -> Types:
    """Return a default by which the last of each `period` layers sees all."""

    def types(hf: Json) -> Sequence[str]:
        count = counted(field, (hf.get(field) if field else None) or period)
        return [FULL if (i + 1) % count == 0 else SLIDING for i in range(hf["num_hidden_layers"])]

    return types


def first_of(period: int) -> Types:
    """Return a default by which the first of each `period` layers sees all."""
    return lambda hf: [SLIDING if i % period else FULL for i in range(hf["num_hidden_layers"])]


def all_slide(hf: Json) -> Sequence[str]:
    """Return the default of a class whose every layer has the window."""
    return [SLIDING] * hf["num_hidden_layers"]


def alike_in_window(hf: Json) -> Sequence[LayerKind]:
    """Return layers that all have the window. Raises Refused for `layer_types` that say otherwise:
    in such a class Transformers ignores them, other servers do not.
    """
    if window_of(hf) and FULL in layer_types(hf, all_slide):
        raise Refused(f"layer_types {FULL!r} contradicts sliding_window {hf['sliding_window']}")
    return sliding(all_slide)(hf)


def last_slide(hf: Json) -> Sequence[str]:
    """Return Qwen's default: with `use_sliding_window`, layers from `max_window_layers` on."""
    field = "max_window_layers" if hf.get("use_sliding_window") else "num_hidden_layers"
    first = count_of(hf, field, least=0)
    return [SLIDING if i >= first else FULL for i in range(hf["num_hidden_layers"])]


def gguf_windows(get: Callable[..., Any]) -> dict[str, Any]:
    """Return the fields for windows from a GGUF's metadata; a pattern may be in no file."""
    fields: dict[str, Any] = {"sliding_window": get(WINDOW) or None}
    pattern = get(".attention.sliding_window_pattern")
    if isinstance(pattern, list):
        fields["layer_types"] = [SLIDING if slides else FULL for slides in pattern]
    elif pattern is not None:
        period = counted("attention.sliding_window_pattern", pattern)
        types = every(period)({"num_hidden_layers": get(".block_count")})
        fields["layer_types"] = list(types)
    return fields
