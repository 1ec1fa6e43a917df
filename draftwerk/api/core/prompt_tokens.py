"""Prompts to tokens on a worker thread: encoding is too slow for the event loop."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from draftwerk.actors.client_prompts import Chat, HalfTurn, Passages, Prompt, QueryPair
from draftwerk.actors.half_turns import encoded_half
from draftwerk.actors.text import TextTools
from draftwerk.api.core.errors import refused
from draftwerk.api.core.state import ServerState
from draftwerk.speculative.replies.formats import ReplyFormat

G = TypeVar("G")
ENCODE_S = 10.0
"""As long as the engine waits for a prompt's tokens."""


async def count_tokens(state: ServerState, prompts: list[Prompt]) -> int:
    """Return the prompts' length in tokens, counted on a worker thread."""
    return sum([len(await encoded(state, prompt)) for prompt in prompts])


async def count_going_on(
    state: ServerState, prompt: Chat, half: HalfTurn | None, form: ReplyFormat | None
) -> int:
    """Return the length of a conversation, and of the half-written answer that it goes on from."""
    count = await count_tokens(state, [prompt])
    if half is None:
        return count
    with suppress(ValueError):
        return count + len(await asyncio.to_thread(encoded_half, state.text_tools, half, form))
    return count


async def encoded(state: ServerState, prompt: Prompt) -> list[int]:
    """Return a prompt's tokens. Raises ApiError."""
    field = "messages" if isinstance(prompt, Chat) else "prompt"
    return await on_thread(partial(_encode, state.text_tools), prompt, field)


async def on_thread(encode: Callable[[G], list[int]], given: G, field: str) -> list[int]:
    """Return what a worker thread encodes. Raises ApiError, which blames the field."""
    try:
        async with asyncio.timeout(ENCODE_S):
            return await asyncio.to_thread(encode, given)
    except ValueError as error:
        raise refused(str(error), field, "invalid") from None
    except TimeoutError:
        raise refused(f"Tokenizing took over {ENCODE_S:g} s.", field, "invalid") from None


def _encode(tools: TextTools, prompt: Prompt) -> list[int]:
    match prompt:
        case Chat():
            return tools.encode_chat(prompt.messages, prompt.tools, prompt.variables)
        case QueryPair():
            return tools.encode_pair(prompt.query, prompt.document, prompt.instruction)
        case str():
            return tools.encode(prompt)
        case Passages():
            return tools.encode_passages(prompt.documents, prompt.text)[0]
        case _:
            return list(prompt)
