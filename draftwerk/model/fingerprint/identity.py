"""`system_fingerprint`: equal ones, with equal requests and seeds, give equal bytes.

    weights, tokenizer, template     digests of the files
    formats                          of weights, of keys and values
    numerics                         the committed digests of this format's logits, noise and draws
    defaults                         what a request that says nothing gets

The instruction set, drafts, caches and processes are no part of it: no text depends on them.
"""

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.files.content import content_name
from draftwerk.model.checkpoint.packed_weights import weights_fingerprint

EXPECTED = Path(__file__).parent / "fingerprints.json"
TEXT_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
    *("special_tokens_map.json", "added_tokens.json", "tokenizer.model", "tekken.json"),
    *("*.tiktoken", "chat_template.json", "additional_chat_templates/*.jinja"),
    "generation_config.json",
)
"""All that tokens, templates and ends of texts are read from."""
COMMON = ("noise", "draws")
DIGITS = 16


def system_fingerprint(directory: Path, cache: Path, words: Iterable[str]) -> str:
    """Return the fingerprint of a model's files and of words for all else; empty where the files
    cannot be read."""
    found = weights_fingerprint(directory, cache, words)
    if found is None:
        return ""
    digest = sha256(found)
    for path in (path for name in TEXT_FILES for path in sorted(directory.glob(name))):
        with suppress(OSError):
            name = path.relative_to(directory)
            digest.update(f"{name} {content_name(path, cache)}\n".encode())
    return f"fp_{digest.hexdigest()[:DIGITS]}"


def numerics_version(dtype: str, kv_dtype: str) -> str:
    """Return what changes when a format's bits do: a digest of those that are committed.

    A test holds the committed digests against what is computed, on every instruction set.
    """
    recorded = msgspec.json.decode(EXPECTED.read_bytes(), type=dict[str, str])
    kind = dtype if kv_dtype == "auto" else f"{dtype}, keys and values {kv_dtype}"
    names = {*COMMON, f"tiny llama {kind}", f"tiny qwen {kind}"}
    kept = {
        name: value
        for name, value in recorded.items()
        if name in names or (dtype == "stored" and name.startswith("blocks of "))
    }
    return sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()[:DIGITS]
