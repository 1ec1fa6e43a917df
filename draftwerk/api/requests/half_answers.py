"""Half-written answers at the end of conversations: what may go on, and what becomes of it."""

from collections.abc import Sequence

import msgspec

from draftwerk.api.shared.errors import refused
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage, HalfTurn, ToolCall


def taken_apart(chat: Chat, repeats_call: bool = False) -> tuple[Chat, HalfTurn | None]:
    """Return a conversation without the answer that it ends with, and that, if there is one.

    An answer that was cut more than once is several turns; each has the tokens of those before it.
    """
    turns = [*chat.messages]
    if not turns or turns[-1].role != "assistant":
        return chat, None
    last = turns.pop()
    while turns and _is_behind(last, turns[-1]):
        last = _joined(turns.pop(), last, last.tokens, repeats_call)
    asked = msgspec.structs.replace(chat, messages=tuple(turns))
    says_nothing = not (last.content or last.reasoning or last.calls or last.tokens)
    return asked, None if says_nothing else HalfTurn(last, repeats_call)


def joined_turns(turns: Sequence[ChatMessage], answer: ChatMessage) -> tuple[ChatMessage, ...]:
    """Return a conversation with its answer, which may go on from a half-written one."""
    if not turns or turns[-1].role != "assistant":
        return (*turns, answer)
    half = turns[-1]
    tokens = half.tokens and half.tokens + answer.tokens
    return (*turns[:-1], _joined(half, answer, tokens))


def joined_calls(
    calls: tuple[ToolCall, ...], more: tuple[ToolCall, ...], repeats_call: bool = False
) -> tuple[ToolCall, ...]:
    """Return the calls of an answer and of what goes on from it, which may begin within one."""
    if not calls or not more or more[0].id != calls[-1].id:
        return calls + more
    arguments = ("" if repeats_call else calls[-1].arguments) + more[0].arguments
    return (*calls[:-1], msgspec.structs.replace(calls[-1], arguments=arguments), *more[1:])


def _joined(
    half: ChatMessage, rest: ChatMessage, tokens: tuple[int, ...], repeats_call: bool = False
) -> ChatMessage:
    return msgspec.structs.replace(
        half,
        content=half.content + rest.content,
        reasoning=half.reasoning + rest.reasoning,
        calls=joined_calls(half.calls, rest.calls, repeats_call),
        tokens=tokens,
    )


def _is_behind(rest: ChatMessage, half: ChatMessage) -> bool:
    """Whether a turn may be what goes on from another: reasoning, text and calls come in order."""
    if half.role != "assistant":
        return False
    if half.calls:
        return not (rest.content or rest.reasoning)
    return not (half.content and rest.reasoning)


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
