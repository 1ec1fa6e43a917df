"""What models take of memory beside the cache, and what a text takes of it."""

from dataclasses import dataclass

from draftwerk.assembly.memory_room import free_memory, loading_bytes
from draftwerk.cache.pages.kv_formats import KV_FORMATS
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.settings.engine_settings import EngineSettings

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 2, "w8a8": 2, "int8": 2, "int4": 2, "stored": 2}
"""A number in the KV pages; quantised weights leave activations in bf16."""
STATES_EACH = 4
"""Recurrent states of a text: up to three while it runs, and a snapshot of it."""


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """The memory that a target takes, and what drafts for it."""

    free: int
    """Memory of the device that will serve."""
    target: int
    """Weights while they are packed."""
    head: int
    """The draft head, with what it keeps of texts, in all processes of the target."""
    draft: int
    """The draft model's weights."""
    dtype: str
    """The target's format."""
    draft_dtype: str
    target_token: int
    """The bytes of a token in the target's pages."""
    draft_token: int
    sequence: int
    """The bytes of the longest text in all pages."""

    @property
    def loading(self) -> int:
        """The bytes of all that is loaded."""
        return self.target + self.head + self.draft

    @property
    def token(self) -> int:
        """The bytes of a token in all pages."""
        return self.target_token + self.draft_token


def memory_demand(
    settings: EngineSettings, target: ModelInfo, draft: ModelInfo | None, has_head: bool
) -> MemoryDemand:
    """Return what the models take, in bytes.

    Raises ConfigError for a model that cannot be loaded.
    """
    dtype, draft_dtype = (_dtype(settings, card) for card in (target, draft or target))
    free = free_memory(settings)
    token, draft_token = _token_bytes(settings, target, dtype), 0
    if draft is not None:
        draft_token = _token_bytes(settings, draft, draft_dtype)
    # Of a text without an end only what is seen is kept.
    kept_tokens = target.kept + target.window if target.kept else target.context_max
    return MemoryDemand(
        free=free,
        target=loading_bytes(settings, target, dtype, free),
        head=has_head * (1 + (settings.spare == "on")) * target.draft_head_bytes,
        draft=0 if draft is None else draft.loading_bytes(draft_dtype),
        dtype=dtype,
        draft_dtype=draft_dtype,
        target_token=token,
        draft_token=draft_token,
        sequence=(token + draft_token) * kept_tokens + STATES_EACH * target.state_bytes,
    )


def _dtype(settings: EngineSettings, card: ModelInfo) -> str:
    return card.stored_format if settings.dtype == "auto" else settings.dtype


def _token_bytes(settings: EngineSettings, card: ModelInfo, dtype: str) -> int:
    return card.kv_heads_per_token * head_bytes(card.head_size, dtype, settings.kv_dtype)


def head_bytes(head_size: int, dtype: str, kv_dtype: str) -> int:
    """Return what one head's key or value takes in the pages."""
    if kv_dtype == "auto":
        return head_size * BYTES[dtype]
    return KV_FORMATS[kv_dtype].head_bytes(head_size)


def drafting_words(needed: MemoryDemand) -> str:
    """Return what drafting takes, for people; empty where nothing is loaded for it."""
    words: list[str] = []
    if needed.head:
        words.append(f"up to {needed.head / 1e6:.0f} MB for the draft head")
    if needed.draft_token:
        share = needed.draft_token / needed.token
        words.append(
            f"{needed.draft / 1e6:.0f} MB for the draft model, which has {share:.0%} of kv-memory"
        )
    return ", ".join(words)
