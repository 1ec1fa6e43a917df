"""Words for addresses that there are not: what other servers have there, or what is near."""

from collections.abc import Sequence
from difflib import get_close_matches

WHERE = "All addresses are in /openapi.json."
PATH_MAX = 128
LIKENESS = 0.7
"""The least likeness of an address that was meant, from 0 to 1."""
NOT_SERVED = {
    **dict.fromkeys(("score", "classify", "pooling"), "scoring of texts is"),
    **dict.fromkeys(("audio", "images", "videos", "realtime"), "images, sound and video are"),
    **dict.fromkeys(("moderations",), "moderation is"),
    **dict.fromkeys(("files", "uploads", "batches", "vector_stores"), "files and batches are"),
    **dict.fromkeys(("assistants", "threads"), "assistants are"),
    **dict.fromkeys(
        ("fine_tuning", "lora-adapters", "load_lora_adapter"), "loading adapters while it runs is"
    ),
    **dict.fromkeys(("pull", "push", "create", "copy", "delete", "blobs"), "a store of models is"),
    **dict.fromkeys(("props", "slots"), "a list of slots is"),
}
"""The things that have no address here, by a part of the path that other servers have for it."""


def nothing_at(path: str, addresses: Sequence[str]) -> str:
    """Return what to tell a client that asked for a path which is none of the addresses."""
    found = [NOT_SERVED[part] for part in path[:PATH_MAX].split("/") if part in NOT_SERVED]
    if found:
        return f"There is nothing at this address: {found[0]} not served here. {WHERE}"
    near = get_close_matches(path[:PATH_MAX], addresses, 1, LIKENESS)
    meant = f"; did you mean {near[0]}?" if near else "."
    return f"There is nothing at this address{meant} {WHERE}"
