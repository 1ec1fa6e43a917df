"""Completion in the middle: `suffix` of `/v1/completions`."""

import asyncio

from draftwerk.actors.client_prompts import Prompt
from draftwerk.api.core.errors import refused
from draftwerk.api.core.state import ServerState
from draftwerk.api.openai.schema import CompletionBody

BESIDE = ("echo", "documents", "blend")
"""Fields that are about a prompt of one text."""


async def middle_prompt(state: ServerState, body: CompletionBody) -> Prompt:
    """Return the tokens that ask for what stands between `prompt` and `suffix`. Raises ApiError."""
    tokens, text = state.model.middle, state.text_tools
    before, after = body.prompt, body.suffix or ""
    if tokens is None:
        raise refused(
            "`suffix` is not supported by this server for this model, whose vocabulary has no "
            "tokens around a gap; use a model for code, or a text of your own around `prompt`.",
            "suffix",
            "unsupported",
        )
    if not isinstance(before, str):
        raise refused("`suffix` goes with one text as `prompt`.", "suffix", "unsupported")
    for name in BESIDE:
        if getattr(body, name):
            raise refused(f"`{name}` cannot go with `suffix`.", name, "unsupported")

    def encoded() -> list[int]:
        parts = text.encode_continuation(before), text.encode_continuation(after)
        return tokens.prompt(text.encode(""), *parts)

    return tuple(await asyncio.to_thread(encoded))
