"""The differences between the receipts of a request and those of the same request sent again."""

from typing import Any

from msgspec import Struct

Receipts = list[dict[str, Any]]


class TextChange(Struct, frozen=True):
    """A text that is not what it was."""

    cause: str
    """`fingerprint`, `prompt`, `parameters`, `refused`, or `defect` where all of that is equal."""
    place: str
    """The first token that differs."""
    detail: str = ""


def change_of(before: Receipts, after: Receipts) -> TextChange | None:
    """Return the first text that changed, with its cause; None if all are equal."""
    if len(before) != len(after):
        return TextChange("prompt", "", f"{len(before)} prompts, now {len(after)}")
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        place = _place(old, new)
        if place is not None:
            where = f"prompt {number}, {place}" if len(before) > 1 else place
            cause, detail = _cause(old, new)
            return TextChange(cause, where, detail)
    return None


def _place(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Return the first place in which texts differ."""
    choices = list(zip(old["choices"], new["choices"], strict=False))
    for number, (one, other) in enumerate(choices):
        tokens = list(zip(one["tokens"], other["tokens"], strict=False))
        for place, (token, another) in enumerate(tokens):
            if token != another:
                return f"choices[{number}].tokens[{place}]"
        if len(one["tokens"]) != len(other["tokens"]):
            return f"choices[{number}].tokens[{len(tokens)}]"
        for field in ("finish_reason", "stop", "logprobs"):
            if one.get(field) != other.get(field):
                return f"choices[{number}].{field}"
    return None if len(old["choices"]) == len(new["choices"]) else f"choices[{len(choices)}]"


def _cause(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, str]:
    """Return what explains a changed text, and how it differs."""
    if old["fingerprint"] != new["fingerprint"]:
        return "fingerprint", f"{old['fingerprint']}, now {new['fingerprint']}"
    if old["prompt"]["digest"] != new["prompt"]["digest"]:
        counts = f"{old['prompt']['count']} tokens, now {new['prompt']['count']}"
        return "prompt", f"other tokens ({counts})"
    names = old["digests"].keys() | new["digests"].keys()
    differing = [
        name
        for name in sorted(names)
        if not name.startswith(("choices", "model"))
        and old["digests"].get(name) != new["digests"].get(name)
    ]
    if differing:
        return "parameters", ", ".join(differing)
    return "defect", "fingerprint, prompt and parameters are equal"
