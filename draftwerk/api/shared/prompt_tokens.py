"""Prompts to tokens on a worker thread: encoding is too slow for the event loop."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from draftwerk.actors.texts.half_turns import encoded_half
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.api.shared.calls import Call, Overflow, too_long
from draftwerk.api.shared.errors import refused, unavailable
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.requests.client_prompts import (
    ENCODE_S,
    RETRY_MS,
    Chat,
    HalfTurn,
    Passages,
    Prompt,
    QueryPair,
)

OnThread = TypeVar("OnThread")
NO_NAMES: Mapping[str, str] = {}
TEMPLATE_TOKENS, TURN_TOKENS = 1024, 32
"""The tokens that a chat template may add to a conversation, and to each turn of it."""
LARGE, BEGINNING = 2**20, 16
"""Bytes of a large text, and the characters of its beginning for each token that there is room for.
"""


async def check_length(state: ServerState, call: Call) -> None:
    """Refuse a prompt that leaves no room before anything is sent. Raises ApiError.

    Tokens are counted only where there may be too many: each stands for a byte at least.
    """
    room, more = state.model.context_max, call.options.tokens_max or 0
    for prompt in call.prompts:
        count = call.prompt_count
        if count is None:
            if _size(prompt) + more + TEMPLATE_TOKENS < room:
                continue
            await check_beginning(state, prompt, call.overflow, call.names)
            count = len(await encoded(state, prompt))
        if count >= room:
            raise call.too_long(_field(prompt), count, 0, room)
        if count + more > room:
            raise call.too_long("max_tokens", count, more, room)


async def check_beginning(
    state: ServerState, prompt: Prompt, overflow: Overflow, names: Mapping[str, str] = NO_NAMES
) -> None:
    """Refuse a large text whose beginning alone has twice as many tokens as there is room for, and
    one whose bytes cannot be so few tokens as there is room for.

    Raises ApiError. The template, which has a bound for texts, is not asked.
    """
    room, field = state.model.context_max, _field(prompt)
    if not isinstance(prompt, Chat | str) or (size := _byte_count(prompt)) <= LARGE:
        return
    text, left = list[str](), BEGINNING * room
    for each in _texts(prompt):
        text.append(each[:left])
        left -= len(text[-1])
    encode = partial(state.text_tools.encode_following, "".join(text))
    count = len(await on_thread(state, encode, field))
    if count <= 2 * room:
        longest = await on_thread(state, partial(_longest_token, state.text_tools), field)
        count = size // len(longest)
    if count > 2 * room:
        raise too_long(overflow(count, 0, room), names.get(field, field))


def _size(prompt: Prompt) -> int:
    """Return the most tokens of a prompt, what its template adds aside."""
    match prompt:
        case Chat():
            return TURN_TOKENS * len(prompt.messages) + _byte_count(prompt)
        case str():
            return _byte_count(prompt)
        case tuple():
            return len(prompt)
        case _:
            return 2**31


def _byte_count(prompt: Chat | str) -> int:
    return sum(len(each.encode()) for each in _texts(prompt))


def _longest_token(tools: TextTools) -> bytes:
    return max(map(tools.token_bytes, range(tools.vocab_size)), key=len)


def _texts(prompt: Prompt) -> Iterator[str]:
    """Yield the texts of a prompt."""
    if isinstance(prompt, str):
        yield prompt
    elif isinstance(prompt, Chat):
        yield from prompt.tools
        for turn in prompt.messages:
            yield from (turn.content, turn.reasoning, *(each.arguments for each in turn.calls))


def _field(prompt: Prompt) -> str:
    return "messages" if isinstance(prompt, Chat) else "prompt"


async def count_tokens(state: ServerState, prompts: list[Prompt]) -> int:
    """Return the prompts' length in tokens, counted on a worker thread."""
    return sum([len(await encoded(state, prompt)) for prompt in prompts])


async def count_going_on(
    state: ServerState, prompt: Prompt, half: HalfTurn | None, form: ReplyFormat | None
) -> int:
    """Return the length of a prompt, and of the half-written answer that it goes on from."""
    return len(await encoded_going_on(state, prompt, half, form))


async def encoded_going_on(
    state: ServerState, prompt: Prompt, half: HalfTurn | None, form: ReplyFormat | None
) -> list[int]:
    """Return the tokens of a prompt, and of the half-written answer that it goes on from.

    Raises ApiError.
    """
    tokens = await encoded(state, prompt)
    if half is not None:
        with suppress(ValueError):
            tokens += await state.text_worker.run(
                partial(encoded_half, state.text_tools, half, form)
            )
    return tokens


async def encoded(state: ServerState, prompt: Prompt) -> list[int]:
    """Return a prompt's tokens. Raises ApiError."""
    return await on_thread(state, partial(_encode, state.text_tools, prompt), _field(prompt))


async def on_thread(state: ServerState, encode: Callable[[], OnThread], field: str) -> OnThread:
    """Return what a thread of the model's comes to. Raises ApiError, which blames the field."""
    try:
        async with asyncio.timeout(ENCODE_S):
            return await state.text_worker.run(encode)
    except ValueError as error:
        raise refused(str(error), field, "invalid") from None
    except TimeoutError as error:
        late = str(error) or f"the prompt is not read within {ENCODE_S:g} s"
        raise unavailable(late, RETRY_MS) from None


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
