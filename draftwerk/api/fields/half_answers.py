"""Half-written answers at the end of conversations: what may go on, and what becomes of it."""

from collections.abc import Sequence

import msgspec

from draftwerk.actors.client_prompts import Chat, ChatMessage, HalfTurn
from draftwerk.api.core.errors import refused
from draftwerk.speculative.requests.request import Options


def taken_apart(chat: Chat, repeats_call: bool = False) -> tuple[Chat, HalfTurn | None]:
    """Return a conversation without the answer that it ends with, and that, if there is one."""
    last = chat.messages[-1] if chat.messages else None
    if last is None or last.role != "assistant":
        return chat, None
    asked = msgspec.structs.replace(chat, messages=chat.messages[:-1])
    says_nothing = not (last.content or last.reasoning or last.calls or last.tokens)
    return asked, None if says_nothing else HalfTurn(last, repeats_call)


def joined_turns(turns: Sequence[ChatMessage], answer: ChatMessage) -> tuple[ChatMessage, ...]:
    """Return a conversation with its answer, which may go on from a half-written one."""
    if not turns or turns[-1].role != "assistant":
        return (*turns, answer)
    half = turns[-1]
    calls = answer.calls
    if half.calls and calls and calls[0].id == half.calls[-1].id:
        first = half.calls[-1]
        calls = (
            msgspec.structs.replace(first, arguments=first.arguments + calls[0].arguments),
            *calls[1:],
        )
        half = msgspec.structs.replace(half, calls=half.calls[:-1])
    whole = msgspec.structs.replace(
        half,
        content=half.content + answer.content,
        reasoning=half.reasoning + answer.reasoning,
        calls=half.calls + calls,
        tokens=half.tokens and half.tokens + answer.tokens,
    )
    return (*turns[:-1], whole)


def check_goes_on(half: HalfTurn | None, options: Options) -> None:
    """Refuse what a half-written answer cannot go with. Raises ApiError."""
    if half is None:
        return
    given = {
        "beam_width": options.beam_width > 1,
        "prompt_logprobs": options.prompt_logprobs >= 0,
        "blend": options.blend is not None,
    }
    for field_name, there in given.items():
        if there:
            said = f"`{field_name}` cannot go with a half-written answer."
            raise refused(said, field_name, "unsupported")
