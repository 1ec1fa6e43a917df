"""The space that a tokenizer puts before a text: SentencePiece's do, and some of bytes."""

import json
from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer


def without_prefix(tokenizer: Tokenizer) -> Tokenizer | None:
    """Return a tokenizer that puts no space before a text; None where none is put."""
    return _with_steps(tokenizer, _bare)


def with_prefix(tokenizer: Tokenizer) -> Tokenizer | None:
    """Return a tokenizer that puts a space before a text; None where one is put, or none can be."""
    return None if without_prefix(tokenizer) else _with_steps(tokenizer, _spaced)


def _with_steps(tokenizer: Tokenizer, changed: Callable[[Any], Any]) -> Tokenizer | None:
    """Return a tokenizer whose steps are changed; None where that leaves them as they are."""
    parts: dict[str, Any] = {}
    for name in ("normalizer", "pre_tokenizer"):
        part: Any = getattr(tokenizer, name)
        parts[name] = None if part is None else json.loads(part.__getstate__())
    steps = {name: changed(part) for name, part in parts.items()}
    if steps == parts:
        return None
    found = Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str()) | steps))
    found.encode_special_tokens = tokenizer.encode_special_tokens
    return found


def _spaced(step: Any) -> Any:
    """Return a step of a tokenizer with the space that it can put before a text."""
    match step:
        case {"type": "Sequence", **rest}:
            named = {name: list(map(_spaced, steps)) for name, steps in rest.items()}
            return {"type": "Sequence", **named}
        case {"type": "Metaspace"}:
            return {**step, "prepend_scheme": "first"}
        case {"type": "ByteLevel"}:
            return {**step, "add_prefix_space": True}
        case _:
            return step


def _bare(step: Any) -> Any:
    """Return a step of a tokenizer without the space that it puts before a text."""
    match step:
        case {"type": "Sequence", **rest}:
            named = {name: list(map(_bare, steps)) for name, steps in rest.items()}
            kept = {name: [each for each in steps if each] for name, steps in named.items()}
            return {"type": "Sequence", **kept}
        case {"type": "Prepend"}:
            return None
        case {"type": "Metaspace"}:
            return {**step, "prepend_scheme": "never"}
        case {"type": "ByteLevel"}:
            return {**step, "add_prefix_space": False}
        case _:
            return step
