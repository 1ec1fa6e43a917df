"""A sequence: one decoding branch of a request, and its state in the scheduler."""

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.protocol.rounds import (
    NOTHING_LEARNED,
    ChosenLogprob,
    Decision,
    Draft,
    Feedback,
    NewSequence,
    Row,
)
from draftwerk.speculative.slo import NOTHING_PROMISED, Promise

if TYPE_CHECKING:
    from draftwerk.speculative.beams.search import BeamSearch
    from draftwerk.speculative.blend.blending import Blending
    from draftwerk.speculative.sampling.params import Sampling


class StageTimes(msgspec.Struct, frozen=True):
    """When the stages of a request began, on the engine's clock; None for those to come."""

    tokenise_s: float
    queue_s: float
    prefill_s: float | None = None
    decode_s: float | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens and where their KV is; only the scheduler changes one.

    tokens   0 ........ prompt_count ........ computed ........ len(tokens)
             |  the prompt  |        generated, committed            |
             |            KV is in the pages     |  to be computed   |
    """

    sequence_id: int
    request_id: str
    choice: int
    tokens: list[int]
    prompt_count: int
    sampling: "Sampling"
    tokens_max: int
    """Generated tokens at most."""
    table: BlockTable
    draft_max: int
    """Drafted tokens per round at most; 0 means no speculation."""
    priority: int = 0
    """Lower is sooner."""
    rank: int = 0
    """Its place among all sequences, set when it is submitted: priority, softened by age."""
    arrived_s: float = 0.0
    """On the engine's clock; what is promised is counted from here."""
    promise: Promise = NOTHING_PROMISED
    """What its reader was promised."""
    expires_s: float = inf
    """When it fails unless its text has begun by then."""
    had_tokens: bool = False
    """Whether its client was sent tokens of its request before a crash."""
    demoted: bool = False
    """Whether it was put behind others because its first token would be late in any case."""
    first_s: float = 0.0
    """When its first tokens here were decided."""
    first_count: int = 0
    """How many were generated with those; 0 before them."""
    times: StageTimes | None = None
    """None of one that was submitted before: part of its time went by elsewhere."""
    methods: tuple[str, ...] | None = None
    name_space: str = ""
    prediction: tuple[int, ...] = ()
    leader: "Sequence | None" = None
    """The choice that computes the shared prompt; this one waits, then finds it cached."""
    search: "BeamSearch | None" = None
    """What becomes of this sequence once its prompt is read, if it is not to be sampled from."""

    blending: "Blending | None" = None
    """What becomes of the segments of its prompt, if some are reused."""

    computed: int = 0
    planned: int = 0
    """What of the known tokens is computed once all rounds in flight are."""
    sent_count: int = 0
    """Tokens sent to the devices; 0 means that they must be sent a NewSequence."""
    feedback: Feedback = NOTHING_LEARNED
    """Of the newest decision, until it is sent to the draft sources."""
    resumed: bool = False
    """Whether it was submitted before, to actors that failed."""
    in_flight: int = 0
    """Rounds under way that have a row of it."""
    apart: bool = False
    """Whether its prompt is computed by a process of its own, and not in rounds that decode."""
    fetches: int = 0
    """The preemptions after which its blocks were asked for in a second tier."""
    cancelled: bool = False
    ended: bool = False
    names: list[bytes] = field(default_factory=list[bytes])
    """Of its first blocks, as far as they were looked for: one that waits is named once."""
    tally: "Tally" = field(default_factory=lambda: Tally())

    @property
    def pending(self) -> int:
        """Known tokens whose KV is neither computed nor being computed."""
        return len(self.tokens) - self.planned

    @property
    def unread(self) -> int:
        """Pending tokens that are prefill; a beam search reads the last one with its own rows."""
        return self.pending - (self.search is not None)

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_count

    @property
    def output(self) -> list[int]:
        """The generated tokens."""
        return self.tokens[self.prompt_count :]

    @property
    def begun(self) -> bool:
        """Whether its request has a token: then it is served to its end, whenever that is."""
        if self.had_tokens or (self.leader is not None and self.leader.begun):
            return True
        return self.generated > 0 or (self.search is not None and self.search.has_begun)

    @property
    def due_s(self) -> float:
        """When its first token is due."""
        ttft = self.promise.ttft
        return min(self.arrived_s + ttft, self.expires_s) if ttft else self.expires_s

    def ahead_s(self, now_s: float) -> float:
        """Return by how much its tokens came before they were due, or after if below 0."""
        if not self.first_count:
            return 0.0
        due_s = self.first_s + self.promise.tpot * (self.generated - self.first_count)
        return due_s - now_s

    @property
    def prefilled(self) -> bool:
        """Whether the whole prompt is in the pages, so that a sibling can find it there."""
        return self.ended or self.computed >= self.prompt_count

    def new_sequence(self) -> NewSequence:
        """Return everything that the devices need before this sequence's first row."""
        return NewSequence(
            tuple(self.tokens),
            self.prompt_count,
            self.sampling,
            self.methods,
            self.name_space,
            self.prediction,
        )

    def forget(self) -> None:
        """Have nothing served again of what was computed for it."""
        self.table.forget()
        for table in self.blending.tables() if self.blending is not None else ():
            table.forget()

    @property
    def blends(self) -> bool:
        """Whether rows of its blend are still to come, or not all answered."""
        return self.blending is not None and self.computed < self.blending.stop

    @property
    def continues(self) -> bool:
        """Whether a round under way decides its next token, so that its next row continues it."""
        return self.in_flight > 0 and self.pending == 0

    def known_max(self, before: Row | None) -> int:
        """Return how many tokens are known at most when a row of it begins behind another one."""
        known = len(self.tokens)
        return known + 1 + before.draft_max if before is not None and self.continues else known

    def draft_room(self) -> int:
        """Return how many drafted tokens could still be of use: the target adds one of its own."""
        left = self.tokens_max - self.generated - self.continues
        return max(0, min(self.draft_max, left - 1))

    def begin_prefill(self, now_s: float) -> None:
        """Note that it has blocks, unless it had some before."""
        if self.times is not None and self.times.prefill_s is None:
            self.times = replace(self.times, prefill_s=now_s)

    def begin_decode(self, now_s: float) -> None:
        """Note that tokens were decided, unless some were before."""
        if self.times is not None and self.times.decode_s is None:
            self.times = replace(self.times, decode_s=now_s)

    def keep_time(self, now_s: float) -> None:
        """Note that its first tokens are there; from here on the next ones are due."""
        if not self.first_count:
            self.first_s, self.first_count = now_s, self.generated

    def extend(self, tokens: tuple[int, ...]) -> tuple[int, str]:
        """Append decided tokens up to the end of the text.

        Returns how many were kept and the finish reason, "" if the text goes on.
        """
        for kept, token in enumerate(tokens, start=1):
            self.tokens.append(token)
            if token in self.sampling.stop_token_ids:
                return kept, "stop"
            if self.generated >= self.tokens_max:
                return kept, "length"
        return len(tokens), ""


@dataclass(slots=True)
class Tally:
    """What a sequence cost so far; counts of tokens unless stated otherwise."""

    recomputed: int = 0
    """Tokens of a blended prompt that were computed where they stand, text between segments
    included."""
    cached: int | None = None
    """Prompt tokens found in the prefix cache at first admission; None before it."""
    score: float | None = None
    """Of a finished beam search: log-probability over length penalty."""
    steps: int = 0
    drafted: int = 0
    accepted_histogram: list[int] = field(default_factory=list[int])
    predicted_accepted: int = 0
    predicted_rejected: int = 0
    preemptions: int = 0

    def count(self, decision: Decision, draft: Draft) -> None:
        """Add one sampling step."""
        accepted = len(decision.path)
        self.steps += 1
        self.drafted += len(draft.tokens)
        self.accepted_histogram += [0] * (accepted + 1 - len(self.accepted_histogram))
        self.accepted_histogram[accepted] += 1
        hits = sum(draft.sources[node] == "prediction" for node in decision.path)
        self.predicted_accepted += hits
        self.predicted_rejected += draft.sources.count("prediction") - hits


@dataclass(slots=True, frozen=True)
class SequenceProgress:
    """What a verdict meant for one sequence."""

    sequence: Sequence
    tokens: tuple[int, ...]
    origins: tuple[str, ...]
    logprobs: tuple[ChosenLogprob, ...]
    finish_reason: str = ""
    error: str = ""
    hypothesis: tuple[int, ...] = ()
    """All tokens of the best text of a search so far, if the client asked for it."""


def origins(decision: Decision, draft: Draft) -> tuple[str, ...]:
    """Name where each decided token came from: a source, or the target itself.

    The target's own token is "corrected" where a draft stood in its place, "bonus" behind a fully
    accepted draft, and "target" where nothing was drafted.
    """
    if not decision.tokens:
        return ()
    if not draft.tokens:
        return ("target",)
    last = decision.path[-1] if decision.path else -1
    own = "corrected" if last in draft.parents else "bonus"
    return (*(draft.sources[node] for node in decision.path), own)
