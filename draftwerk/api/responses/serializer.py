"""Parts of all protocols: reply metadata, gathered choices, and the serializer interface."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.events.client_events import Delta, Ended, Event, Started
from draftwerk.actors.events.option_texts import FurtherTexts, TokenText
from draftwerk.api.responses.answers import AnswerParts, call_id_of
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.usage import RequestMetrics, ServiceTier, Usage
from draftwerk.speculative.replies.parser import ReplyPart
from draftwerk.speculative.requests.client_prompts import HalfTurn


def _by_id(token: TokenText) -> TokenText:
    top = tuple(map(_by_id, token.top))
    return msgspec.structs.replace(token, text=f"token_id:{token.token_id}", top=top)


@dataclass(slots=True)
class PromptIds:
    """Takes in the tokens of prompts."""

    found: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    """By the first choice of each."""
    told: set[int] = field(default_factory=set[int])

    def observe(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, Started):
            self.found[event.choice] = event.prompt

    def once(self, choice: int) -> tuple[int, ...] | UnsetType:
        """Return the prompt's tokens for the first chunk of a choice; later ones have none."""
        if choice in self.told or not self.found:
            return UNSET
        self.told.add(choice)
        return self.of(choice)

    def of(self, choice: int) -> tuple[int, ...] | UnsetType:
        """Return the tokens of a choice's prompt, if they are asked for."""
        first = max((each for each in self.found if each <= choice), default=None)
        return UNSET if first is None else self.found[first]


class ReplyMetadata(msgspec.Struct, frozen=True):
    """The fields on every reply and chunk of one request."""

    id: str
    created: int
    """Unix seconds."""
    model: str
    fingerprint: str = ""
    """The server's fingerprint, which equal replies have in common."""
    logprobs: bool = False
    origins: bool = False
    """Whether the client asked where each token came from."""
    token_ids: bool = False
    """Whether it asked for the ids of tokens."""
    named_by_id: bool = False
    """Whether log-probabilities name tokens by their ids."""
    prompts: "PromptIds" = msgspec.field(default_factory=lambda: PromptIds())
    """The ids of prompts, where they are asked for."""
    receipt: bool = False
    """Whether the reply, or the last chunk, is to carry a receipt."""
    echo: bool = False
    """Whether log-probabilities begin with those of the prompt."""
    prompt_logprobs: bool = False
    """Whether those of the prompt are reported apart."""
    usage: bool = False
    """Whether the client asked for a chunk with usage and metrics."""
    tier: ServiceTier | UnsetType = UNSET
    """The service tier, for a client that asked for one."""
    is_parsed: bool = False
    """Whether the reply is told apart into reasoning, text and calls."""
    half: HalfTurn | None = None
    """The text that it goes on from."""

    def call_id(self, choice: int, index: int, goes_on: bool) -> str:
        """Return a call's id: of one that had begun before, as its client has it."""
        begun = self.half.message.calls[-1:] if self.half is not None and goes_on else ()
        return begun[0].id if begun else call_id_of(self.id, choice, index)

    def parts(self, event: Delta | Ended) -> tuple[ReplyPart, ...]:
        """Return what an event adds, part by part; a reply that is not told apart is text."""
        if self.is_parsed:
            return event.parts
        return (ReplyPart("text", event.text),) if event.text else ()

    @property
    def tells_tokens(self) -> bool:
        """Whether a chunk says something of its tokens, also where they have no text yet."""
        return self.logprobs or self.origins or self.token_ids

    def ids(self, tokens: Sequence[int]) -> tuple[int, ...] | UnsetType:
        """Return the ids of generated tokens if they were asked for."""
        return tuple(tokens) if self.token_ids else UNSET

    def named(self, tokens: Sequence[TokenText]) -> Sequence[TokenText]:
        """Return tokens by the names that log-probabilities have."""
        return [_by_id(each) for each in tokens] if self.named_by_id else tokens

    def shown(self, origins: tuple[str, ...]) -> tuple[str, ...] | UnsetType:
        """Return the origins if they were asked for."""
        return origins if self.origins else UNSET


@dataclass(slots=True)
class GatheredChoice:
    """One choice of a reply that is not streamed, as it fills."""

    index: int
    parts: list[str] = field(default_factory=list[str])
    origins: list[str] = field(default_factory=list[str])
    logprobs: list[TokenText] = field(default_factory=list[TokenText])
    scored: list[TokenText] = field(default_factory=list[TokenText])
    """The prompt's tokens, in the first choice of a request that asks for them."""
    tokens: list[int] = field(default_factory=list[int])
    """Generated, without the one that ended the text."""
    token_ids: list[int] = field(default_factory=list[int])
    """All that were generated."""
    finish_reason: str = ""
    stopped_by: str = ""
    """The stop string that was found, if one was."""
    score: float | UnsetType = UNSET
    answer: AnswerParts = field(default_factory=AnswerParts)
    """The parts of an answer whose request has a reply format."""
    untold: tuple[int, ...] | UnsetType = UNSET
    """The tokens to be sent back with a text that was cut where it does not tell its tokens."""

    def add(self, event: Delta | Ended) -> None:
        """Take in one event of this choice."""
        self.parts.append(event.text)
        self.answer.add(event.parts)
        if isinstance(event, Delta):
            self.origins += event.origins
            self.logprobs += event.logprobs
            self.tokens += event.tokens
            self.token_ids += event.tokens
            self.scored += event.further.scored
        else:
            if event.finish_reason == "stop" and not event.stopped_by:
                del self.tokens[-1:]
            self.finish_reason, self.stopped_by = event.finish_reason, event.stopped_by
            self.score = score_of(event)
            self.untold = event.token_ids or UNSET

    def whole(self) -> Delta:
        """Return everything as one event."""
        return Delta(
            request_id="",
            choice=self.index,
            text=self.text,
            tokens=tuple(self.tokens),
            origins=tuple(self.origins),
            logprobs=tuple(self.logprobs),
            further=FurtherTexts(scored=tuple(self.scored)),
            parts=tuple(self.answer.parts),
        )

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def mean_logprob(self) -> float:
        """The log-probability per token, by which `best_of` ranks."""
        total = sum(each.logprob for each in self.logprobs)
        return total / len(self.logprobs) if self.logprobs else float("-inf")


def score_of(ended: Ended) -> float | UnsetType:
    """Return a beam search's score, if that is what ended."""
    score = ended.stats.further.score
    return UNSET if score is None else score


class Serializer(Protocol):
    """One protocol's encoding of a request's events, in the order it must send them."""

    __slots__ = ()

    def first_chunks(self) -> list[msgspec.Struct]:
        """Return the chunks before any token: none, as they would falsify the first one's time."""
        return []

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return the chunks of an event; none for tokens that have no text yet."""
        ...

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return the chunks after the last choice has ended."""
        ...

    def failure(self, error: ApiError) -> list[msgspec.Struct]:
        """Return the chunks that end a request which fails on its way: the error's body."""
        return [error.reply]

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> msgspec.Struct:
        """Return the whole answer for a client that does not stream."""
        ...
