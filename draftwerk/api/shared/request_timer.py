"""One request's clock and counters: what usage, metrics and the log line are computed from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest

from msgspec import UNSET
from msgspec.structs import replace

from draftwerk.actors.events.client_events import Delta, Ended, Event, Started
from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.api.shared.usage import (
    CompletionDetails,
    PromptDetails,
    RequestMetrics,
    SegmentDetails,
    SpeculativeDecoding,
    Usage,
)
from draftwerk.settings.approximations import AppliedApproximation

LATENCY_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
TOKEN_S = (
    0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0,
    5.0,
)  # fmt: skip
TOKEN_COUNTS = tuple(float(one * 10**power) for power in range(6) for one in (1, 2, 5))
"""vLLM's: 1, 2, 5, 10, …, 500 000."""


@dataclass(slots=True)
class Histograms:
    """Histograms of times in seconds, and of counts of tokens."""

    queue: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    first_token: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    between_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    per_token: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    whole: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    prefill: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    decode: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    prompt_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_COUNTS))
    generation_tokens: Histogram = field(default_factory=lambda: Histogram(TOKEN_COUNTS))
    longest_generation: Histogram = field(default_factory=lambda: Histogram(TOKEN_COUNTS))
    """Tokens of the longest choice of each request."""
    loop_lag: Histogram = field(default_factory=lambda: Histogram(TOKEN_S))
    delivered_tokens: int = 0
    """Generated tokens that clients were sent, or not for having left: those of usage."""


Clock = Callable[[], float]


@dataclass(slots=True)
class ChoiceTimes:
    """When one choice's tokens came."""

    first: float
    first_count: int
    """Tokens that came together at first."""
    last: float
    count: int


@dataclass(slots=True)
class RequestTimer:
    """Times and counts of one request's events; all times in seconds of `clock`."""

    clock: Clock
    histograms: Histograms
    choices: int = 1
    """Choices per prompt."""
    seed: int = 0
    arrived: float = field(init=False)
    admitted: float | None = None
    choice_times: dict[int, ChoiceTimes] = field(default_factory=dict[int, ChoiceTimes])
    """By choice, for those that have tokens."""
    prompt_counts: dict[int, int] = field(default_factory=dict[int, int])
    """Tokens of each prompt, by its first choice."""
    count_images: Callable[[tuple[int, ...]], int] | None = None
    """Counts tokens of a prompt that stand for pictures; None where no prompt has any."""
    image_count: int = 0
    """Tokens of the prompts that stand for pictures."""
    ends: list[Ended] = field(default_factory=list[Ended])
    predicted: bool = False
    reasons: bool = False
    """Whether reasoning is counted."""
    blends: bool = False
    """Whether segments of the prompt are reused, so that the text is approximate."""
    approximations: tuple[AppliedApproximation, ...] = ()
    """The approximations that the text is computed with."""

    def __post_init__(self) -> None:
        self.arrived = self.clock()

    def admit(self) -> None:
        """Note that the wait for admission is over."""
        self.admitted = self.clock()

    @property
    def begun(self) -> Ended | None:
        """The end of the choice whose tokens were computed first, as far as that is known."""
        known = [end for end in self.ends if end.stats.waited_s is not None]
        return min(known, key=lambda end: end.stats.waited_s or 0.0, default=None)

    def queue_s(self) -> float:
        """Return all that it waited before its own tokens were computed."""
        admitted = self.arrived if self.admitted is None else self.admitted
        waited_s = 0.0 if self.begun is None else self.begun.stats.waited_s or 0.0
        return admitted - self.arrived + waited_s

    def observe(self, event: Event) -> None:
        """Note an event; tokens that arrive together share the time since the last ones."""
        now = self.clock()
        if isinstance(event, Delta) and event.tokens:
            count = len(event.tokens)
            self.histograms.delivered_tokens += count
            if not self.choice_times:
                self.histograms.first_token.observe(now - self.arrived)
            times = self.choice_times.get(event.choice)
            if times is None:
                self.choice_times[event.choice] = ChoiceTimes(now, count, now, count)
            else:
                self.histograms.between_tokens.observe((now - times.last) / count, count)
                times.last = now
                times.count += count
        elif isinstance(event, Started):
            self.prompt_counts[event.choice] = len(event.prompt)
            if self.count_images is not None:
                self.image_count += self.count_images(event.prompt)
        elif isinstance(event, Ended):
            self.ends.append(event)
            first_choice = event.choice - event.choice % self.choices
            self.prompt_counts[first_choice] = event.stats.prompt_count

    def finish(self) -> None:
        """Note that the whole request ended well."""
        histograms = self.histograms
        histograms.whole.observe(self.clock() - self.arrived)
        mean_s = self.mean_between_s()
        if mean_s is not None:
            histograms.per_token.observe(mean_s)
        histograms.prompt_tokens.observe(sum(self.prompt_counts.values()))
        histograms.generation_tokens.observe(self.token_count)
        histograms.longest_generation.observe(
            max((times.count for times in self.choice_times.values()), default=0)
        )
        queue_s = self.queue_s()
        histograms.queue.observe(queue_s)
        if self.choice_times and self.admitted is not None:
            first = min(times.first for times in self.choice_times.values())
            last = max(times.last for times in self.choice_times.values())
            histograms.prefill.observe(max(0.0, first - self.arrived - queue_s))
            histograms.decode.observe(last - first)

    @property
    def token_count(self) -> int:
        """Tokens seen so far, of all choices."""
        return sum(times.count for times in self.choice_times.values())

    def first_token_s(self) -> float | None:
        """Return the time from arrival to the first token of any choice, None without one."""
        firsts = [times.first for times in self.choice_times.values()]
        return min(firsts) - self.arrived if firsts else None

    def mean_between_s(self) -> float | None:
        """Return the mean time between tokens of one choice, None where none followed a first."""
        rest = sum(times.count - times.first_count for times in self.choice_times.values())
        spent = sum(times.last - times.first for times in self.choice_times.values())
        return spent / rest if rest else None

    def running_usage(self) -> Usage:
        """Return the token counts of this moment, of the prompts that were taken so far."""
        prompt = sum(self.prompt_counts.values())
        return Usage(prompt, self.token_count, prompt + self.token_count)

    def usage(self) -> Usage:
        """Return the token counts: of choices that have not ended, what was seen of them."""
        stats = [end.stats for end in self.ends]
        firsts = [end.stats for end in self.ends if end.choice % self.choices == 0]
        prompt = sum(self.prompt_counts.values())
        counts = {choice: times.count for choice, times in self.choice_times.items()}
        completion = sum((counts | {end.choice: end.token_count for end in self.ends}).values())
        usage = Usage(
            prompt,
            completion,
            prompt + completion,
            self._prompt_details(firsts),
            approximations=self.approximations or UNSET,
        )
        if not (self.predicted or self.reasons):
            return usage
        accepted = sum(each.predicted_accepted for each in stats)
        rejected = sum(each.predicted_rejected for each in stats)
        details = CompletionDetails(
            accepted if self.predicted else UNSET,
            rejected if self.predicted else UNSET,
            sum(end.reasoning_count for end in self.ends) if self.reasons else UNSET,
        )
        return replace(usage, completion_tokens_details=details)

    def _prompt_details(self, firsts: list[SequenceStats]) -> PromptDetails:
        cached = sum(each.cached_count for each in firsts)
        found = tuple(SegmentDetails(*each) for stats in firsts for each in stats.further.segments)
        segments = found or UNSET
        if not self.blends:
            images = self.image_count or UNSET
            return PromptDetails(cached, segments=segments, image_tokens=images)
        kept = sum(each.further.blended_count for each in firsts)
        repaired = sum(each.further.repaired_count for each in firsts)
        share = round(repaired / (kept + repaired), 4) if kept + repaired else 1.0
        return PromptDetails(cached, True, kept, share, segments)

    def cost(self) -> int:
        """Return the tokens that the engine computed for this request, wasted drafts among them."""
        cost = self.token_count
        for end in self.ends:
            stats = end.stats
            accepted = sum(j * count for j, count in enumerate(stats.accepted_histogram))
            cost += max(stats.draft_count - accepted, 0)
            if end.choice % self.choices == 0:
                cost += stats.prompt_count - stats.cached_count
        return cost

    def metrics(self) -> RequestMetrics:
        """Return the request's times and what speculation did for it."""
        admitted = self.arrived if self.admitted is None else self.admitted
        stats = SequenceStats() if self.begun is None else self.begun.stats
        waits = RequestMetrics(
            time_to_first_token_ms=None,
            queue_time_ms=milliseconds(self.queue_s()),
            device_wait_time_ms=_milliseconds(stats.device_wait_s),
            prefill_time_ms=_milliseconds(stats.read_s),
            generation_time_ms=None,
            mean_itl_ms=None,
            tokens_per_second=None,
            speculative_decoding=self.speculation(),
            seed=self.seed,
        )
        if not self.choice_times:
            return waits
        first = min(times.first for times in self.choice_times.values())
        last = max(times.last for times in self.choice_times.values())
        mean_s = self.mean_between_s()
        busy = last - admitted
        return replace(
            waits,
            time_to_first_token_ms=milliseconds(first - self.arrived),
            generation_time_ms=milliseconds(last - first),
            mean_itl_ms=_milliseconds(mean_s),
            tokens_per_second=round(self.token_count / busy, 2) if busy > 0 else None,
        )

    def speculation(self) -> SpeculativeDecoding | None:
        """Return the sums over all ended choices, or None if no step was counted."""
        columns = zip_longest(*(end.stats.accepted_histogram for end in self.ends), fillvalue=0)
        histogram = tuple(sum(column) for column in columns)
        steps = sum(histogram)
        if not steps:
            return None
        accepted = sum(j * count for j, count in enumerate(histogram))
        drafted = sum(end.stats.draft_count for end in self.ends)
        return SpeculativeDecoding(
            mean_acceptance_length=1 + accepted / steps,
            draft_acceptance_rate=accepted / drafted if drafted else 0.0,
            acceptance_histogram=histogram,
            num_spec_steps=steps,
            num_accepted_draft_tokens=accepted,
            num_draft_tokens=drafted,
            num_spec_tokens=len(histogram) - 1,
        )


def milliseconds(seconds: float) -> float:
    """Return milliseconds to three places: finer is the clock's noise."""
    return round(seconds * 1000, 3)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else milliseconds(seconds)
