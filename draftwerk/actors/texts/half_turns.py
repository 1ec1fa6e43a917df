"""Half-written answers that go on: the tokens that they were generated as.

A seed gives one text: generated again from where it began, and drafted from itself, a half-written
answer comes out in its own tokens. One that its request would not have written (it was edited, or
has another seed) is encoded as a text.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import msgspec

from draftwerk.actors.events.client_events import Delta, Ended, Event, Started
from draftwerk.actors.texts.choice_text import ChoiceText
from draftwerk.actors.texts.stops import StopScanner
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.speculative.replies.channels import parser_of
from draftwerk.speculative.replies.followed_reply import FollowedReply, Relation
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.replies.half_written import half_written
from draftwerk.speculative.replies.parser import ReplyPart
from draftwerk.speculative.request import Options, Speculation, Written
from draftwerk.speculative.requests.client_prompts import ChatMessage, HalfTurn, Prompt

HELD_MAX = 256
"""Tokens beyond the characters of a half-written answer, after which it is not looked for."""


class Generator(Protocol):
    """A generator of texts."""

    def generate(
        self, prompt: Prompt, options: Options, *, request_id: str
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]: ...


class HalfTurnError(ValueError):
    """A half-written answer that has no such tokens, with the reason in words for the client."""


async def gone_on(
    engine: Generator,
    text: TextTools,
    prompt: Prompt,
    half: HalfTurn,
    options: Options,
    engine_id: str,
) -> Options:
    """Return the options of a request with the tokens of the answer that it goes on from.

    Raises HalfTurnError for an answer that cannot be written in the model's form, or is not what
    its tokens are; and what `engine.generate` raises.
    """
    message = half.message
    if message.tokens:
        await anyio.to_thread.run_sync(check_tokens, text, half, options)
    tokens = message.tokens or await _generated(engine, text, prompt, half, options, engine_id)
    if not tokens:
        tokens = await anyio.to_thread.run_sync(encoded_half, text, half, options.reply)
    written = Written(tokens, message.content, message.reasoning, half.repeats_call)
    return msgspec.structs.replace(options, written=written)


def encoded_half(text: TextTools, half: HalfTurn, form: ReplyFormat | None) -> tuple[int, ...]:
    """Return the tokens of an answer as a text. Raises HalfTurnError for one that has no
    such form."""
    message = half.message
    try:
        pieces = half_written(
            form, message.reasoning, message.content, message.calls, half.repeats_call
        )
        return message.tokens or tuple(text.encode_pieces(pieces))
    except ValueError as error:
        raise HalfTurnError(str(error)) from None


def check_tokens(text: TextTools, half: HalfTurn, options: Options) -> None:
    """Refuse tokens of a half-written answer that say something else than it says."""
    follower = Follower.of(text, (), half, options)
    relation = "within"
    for token in half.message.tokens:
        if 0 <= token < text.vocab_size:  # the engine refuses others by name
            relation = follower.relation(token)
    if relation == "apart":
        raise HalfTurnError("the `token_ids` of the last message are not its text")


async def _generated(
    engine: Generator,
    text: TextTools,
    prompt: Prompt,
    half: HalfTurn,
    options: Options,
    engine_id: str,
) -> tuple[int, ...] | None:
    """Return the tokens in which a request writes an answer; None where it writes another."""
    message = half.message
    again = msgspec.structs.replace(
        options,
        choices=1,
        stop=(),
        tokens_max=None,
        speculation=Speculation(prediction=message.reasoning + message.content),
        deadline_s=0.0,
    )
    follower: Follower | None = None
    async with engine.generate(prompt, again, request_id=f"{engine_id}-half") as events:
        async for event in events:
            match event:
                case Started():
                    follower = Follower.of(text, event.prompt, half, options)
                case Delta() if follower is not None:
                    for token in event.tokens:
                        if follower.push(token):
                            return follower.found
                case Ended() if follower is not None:
                    return follower.ended(event.finish_reason)
                case _:
                    return None
    return None


@dataclass(slots=True)
class Follower:
    """The tokens of a reply that is generated again, as long as it is a half-written one."""

    choice: ChoiceText
    reply: FollowedReply
    count_max: int
    tokens: list[int] = field(default_factory=list[int])
    found: tuple[int, ...] | None = None
    call_at: int | None = None
    """Tokens before the arguments of its last call."""

    @classmethod
    def of(
        cls, text: TextTools, prompt: tuple[int, ...], half: HalfTurn, options: Options
    ) -> "Follower":
        """Return one before its first token."""
        message, form = half.message, options.reply
        choice = ChoiceText(
            text.stream(prompt, form.shown_tokens if form else frozenset()),
            StopScanner(()),
            parser=None if form is None else parser_of(form),
            textless=frozenset(options.stop_token_ids),
        )
        calls = message.calls if form is not None else ()
        reply = FollowedReply(message.reasoning, message.content, calls, half.repeats_call)
        return cls(choice, reply, HELD_MAX + _length(message))

    def push(self, token: int) -> bool:
        """Take in a token; return whether it is settled what was found."""
        relation = self.relation(token)
        if relation == "beyond":
            self.found = tuple(self.tokens[: self.call_at])
            return True
        self.tokens.append(token)
        if relation == "reached":
            self.found = tuple(self.tokens)
        if relation == "called" and self.call_at is None:
            self.call_at = len(self.tokens)
        return relation not in ("within", "called") or len(self.tokens) > self.count_max

    def relation(self, token: int) -> Relation:
        """Return what the reply with one more token is to the half-written one."""
        text, _ = self.choice.push(token)
        return self._relation(text)

    def ended(self, finish_reason: str) -> tuple[int, ...] | None:
        """Return what was found once the reply has ended."""
        text, _ = self.choice.flush(is_cut=False)
        is_whole = self._relation(text) == "reached"
        tokens = self.tokens[:-1] if finish_reason == "stop" else self.tokens
        return tuple(tokens) if is_whole else None

    def _relation(self, said: str) -> Relation:
        if self.choice.parser is None:
            return self.reply.add([ReplyPart("text", said)] if said else [])
        return self.reply.add(self.choice.take_parts())


def _length(message: ChatMessage) -> int:
    """Return the bytes of an answer: no token of its text has less than one."""
    texts = (message.reasoning, message.content, *(each.arguments for each in message.calls))
    return sum(len(each.encode()) for each in texts)
