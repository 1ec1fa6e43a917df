"""What the Python API returns: whole outputs, and the deltas of a stream."""

from dataclasses import dataclass, field

import msgspec

from draftwerk.actors.messages import Delta, Ended, TokenText
from draftwerk.api.core.request_timer import RequestTimer
from draftwerk.api.openai.replies import RequestMetrics, Usage


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
    """"stop" or "length"."""
    stop: str
    """The stop string that ended the text, if one did."""
    score: float | None
    """Of a beam search: the log-probability over the length penalty."""


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A finished request. The properties are those of its first text."""

    choices: tuple[CompletionOutput, ...]
    usage: Usage
    metrics: RequestMetrics
    """Times, and what speculation gained."""

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
    def seed(self) -> int:
        """What gives the same text again."""
        return self.metrics.seed


class OutputDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one text since its last delta; the text may lag behind the tokens."""

    index: int
    """Of the text among the request's `n`."""
    text: str
    token_ids: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    logprobs: tuple[TokenText, ...] = ()
    finish_reason: str = ""
    """Empty while the text goes on."""


def delta_of(event: Delta | Ended) -> OutputDelta:
    """Return an engine's event as a caller sees it."""
    if isinstance(event, Ended):
        return OutputDelta(index=event.choice, text=event.text, finish_reason=event.finish_reason)
    return OutputDelta(
        index=event.choice,
        text=event.text,
        token_ids=event.tokens,
        origins=event.origins,
        logprobs=event.logprobs,
    )


@dataclass(slots=True)
class OutputBuilder:
    """Gathers a request's events into its output."""

    deltas: dict[int, list[Delta]] = field(default_factory=dict[int, list[Delta]])
    ends: dict[int, Ended] = field(default_factory=dict[int, Ended])

    def add(self, event: Delta | Ended) -> None:
        """Take in the next event."""
        if isinstance(event, Ended):
            self.ends[event.choice] = event
        else:
            self.deltas.setdefault(event.choice, []).append(event)

    def output(self, meter: RequestTimer) -> RequestOutput:
        """Return the output, now that every text has ended."""
        return RequestOutput(
            choices=tuple(self._choice(self.ends[index]) for index in sorted(self.ends)),
            usage=meter.usage(),
            metrics=meter.metrics(),
        )

    def _choice(self, ended: Ended) -> CompletionOutput:
        deltas = self.deltas.get(ended.choice, [])
        return CompletionOutput(
            index=ended.choice,
            text="".join(each.text for each in deltas) + ended.text,
            token_ids=tuple(token for each in deltas for token in each.tokens),
            origins=tuple(origin for each in deltas for origin in each.origins),
            logprobs=tuple(token for each in deltas for token in each.logprobs),
            finish_reason=ended.finish_reason,
            stop=ended.stopped_by,
            score=ended.stats.score,
        )
