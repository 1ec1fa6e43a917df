"""Results of the Python API: whole outputs, and the deltas of a stream."""

from dataclasses import dataclass, field

import msgspec

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.actors.events.option_texts import TokenText
from draftwerk.api.responses.answers import AnswerParts, call_id_of
from draftwerk.api.shared.request_timer import RequestTimer
from draftwerk.api.shared.usage import RequestMetrics, Usage
from draftwerk.speculative.replies.parser import PartKind
from draftwerk.speculative.requests.client_prompts import ToolCall

SHOWN_CHOICES, SHOWN_CHARACTERS = 6, 300
"""Texts that a notebook shows of an output, and characters of each."""


def _short(text: str) -> str:
    """Return a text as an output shows it: its beginning, where it is long."""
    cut = "…" if len(text) > SHOWN_CHARACTERS else ""
    return f"text={text[:SHOWN_CHARACTERS] + cut!r}"


class CompletionOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One text of a request."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    origins: tuple[str, ...]
    """Per token: the draft source whose token was accepted, or "corrected" or "bonus"."""
    logprobs: tuple[TokenText, ...]
    """Per token, if the request asked for them."""
    finish_reason: str
    """"stop", "length", or "tool_calls" where the model called some."""
    stop: str
    """The stop string that ended the text, if one did."""
    score: float | None
    """The score of a beam search: the log-probability over the length penalty."""
    reasoning: str = ""
    """The reasoning of a model that reasons before its answer."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The calls, in order; a call that `max_tokens` cut is not among them."""

    def __repr__(self) -> str:
        said = f"CompletionOutput(index={self.index}, {_short(self.text)}"
        calls = f", tool_calls={self.tool_calls!r}" if self.tool_calls else ""
        return f"{said}, {len(self.token_ids)} tokens, finish_reason={self.finish_reason!r}{calls})"

    @property
    def message(self) -> dict[str, object]:
        """The answer as a message of the conversation, to go on from."""
        calls = [
            {
                "id": each.id,
                "type": "function",
                "function": {"name": each.name, "arguments": each.arguments},
            }
            for each in self.tool_calls
        ]
        said: dict[str, object] = {"role": "assistant", "content": self.text}
        return said | {"tool_calls": calls} if calls else said


class PromptToken(msgspec.Struct, frozen=True):
    """A prompt's token with its log-probability, as text and as the bytes it stands for."""

    token_id: int
    text: str
    data: bytes
    logprob: float | None
    """None for the prompt's first token, before which is nothing."""
    top: tuple[TokenText, ...]
    """The most likely tokens at this position, best first."""


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A finished request. The properties are those of its first text."""

    choices: tuple[CompletionOutput, ...]
    usage: Usage
    metrics: RequestMetrics
    """Times, and what speculation gained."""
    prompt_logprobs: tuple[PromptToken, ...] = ()
    """Per prompt token, if the request asked for them."""

    def __repr__(self) -> str:
        choices = "".join(f"\n  {each!r}" for each in self.choices[:SHOWN_CHOICES])
        more = len(self.choices) - SHOWN_CHOICES
        rest = f"\n  and {more} more" if more > 0 else ""
        return f"RequestOutput({self.usage!r}, seed={self.metrics.seed}:{choices}{rest})"

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.choices[0].token_ids

    @property
    def origins(self) -> tuple[str, ...]:
        return self.choices[0].origins

    @property
    def logprobs(self) -> tuple[TokenText, ...]:
        return self.choices[0].logprobs

    @property
    def finish_reason(self) -> str:
        return self.choices[0].finish_reason

    @property
    def reasoning(self) -> str:
        return self.choices[0].reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.choices[0].tool_calls

    @property
    def message(self) -> dict[str, object]:
        """The answer as a message of the conversation, to go on from."""
        return self.choices[0].message

    @property
    def seed(self) -> int:
        """The seed that gives the same text again."""
        return self.metrics.seed


class TextScore(msgspec.Struct, frozen=True, kw_only=True):
    """How likely a model takes a text after another one."""

    tokens: tuple[PromptToken, ...]
    """The text's tokens with their log-probabilities."""

    @property
    def logprob(self) -> float:
        """Natural logarithm of the whole text's probability."""
        return sum(each.logprob or 0.0 for each in self.tokens)

    @property
    def is_greedy(self) -> bool:
        """Whether each token that something comes before is the most likely one at its place."""
        return all(
            each.logprob is None or each.top[0].logprob <= each.logprob for each in self.tokens
        )


class OutputDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The addition to one text since its last delta; the text may lag behind the tokens."""

    index: int
    """The number of the text among the request's `n`."""
    text: str
    token_ids: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    logprobs: tuple[TokenText, ...] = ()
    finish_reason: str = ""
    """Empty while the text goes on."""
    reasoning: str = ""


def delta_of(event: Delta | Ended, is_parsed: bool) -> OutputDelta:
    """Return an engine's event as a caller sees it; a parsed reply's calls come with its output."""
    text = said(event, "text") if is_parsed else event.text
    reasoning = said(event, "reasoning")
    if isinstance(event, Ended):
        return OutputDelta(
            index=event.choice, text=text, finish_reason=event.finish_reason, reasoning=reasoning
        )
    return OutputDelta(
        index=event.choice,
        text=text,
        token_ids=event.tokens,
        origins=event.origins,
        logprobs=event.logprobs,
        reasoning=reasoning,
    )


def said(event: Delta | Ended, kind: PartKind) -> str:
    """Return what an event adds to one kind of a reply's parts."""
    return "".join(part.text for part in event.parts if part.kind == kind)


@dataclass(slots=True)
class OutputBuilder:
    """Gathers a request's events into its output."""

    is_parsed: bool = False
    """Whether the reply is told apart into reasoning, text and calls."""
    scored_from: int = 0
    """The first position of the prompt whose token is scored, if any is."""
    deltas: dict[int, list[Delta]] = field(default_factory=dict[int, list[Delta]])
    ends: dict[int, Ended] = field(default_factory=dict[int, Ended])

    def add(self, event: Delta | Ended) -> None:
        """Take in the next event."""
        if isinstance(event, Ended):
            self.ends[event.choice] = event
        else:
            self.deltas.setdefault(event.choice, []).append(event)

    def output(self, timer: RequestTimer) -> RequestOutput:
        """Return the output, now that every text has ended."""
        scored = (token for each in self.deltas.get(0, ()) for token in each.further.scored)
        return RequestOutput(
            choices=tuple(self._choice(self.ends[index]) for index in sorted(self.ends)),
            usage=timer.usage(),
            metrics=timer.metrics(),
            prompt_logprobs=tuple(
                PromptToken(
                    each.token_id, each.text, each.data, each.logprob if at else None, each.top
                )
                for at, each in enumerate(scored, start=self.scored_from)
            ),
        )

    def _choice(self, ended: Ended) -> CompletionOutput:
        deltas = self.deltas.get(ended.choice, [])
        answer = AnswerParts()
        for each in (*deltas, ended):
            answer.add(each.parts)
        text = "".join(each.text for each in deltas) + ended.text
        token_ids = tuple(token for each in deltas for token in each.tokens)
        calls = [each for each in answer.calls if each.whole]
        return CompletionOutput(
            index=ended.choice,
            text=answer.text if self.is_parsed else text,
            token_ids=token_ids,
            origins=tuple(origin for each in deltas for origin in each.origins),
            logprobs=tuple(token for each in deltas for token in each.logprobs),
            finish_reason=answer.finish_reason(ended.finish_reason),
            stop=ended.stopped_by,
            score=ended.stats.further.score,
            reasoning=answer.reasoning,
            tool_calls=tuple(
                ToolCall(
                    call_id_of(f"{ended.stats.prompt_count} {token_ids}", ended.choice, index),
                    each.name,
                    each.arguments,
                )
                for index, each in enumerate(calls)
            ),
        )
