"""Recorded texts as a target: what drafts would have saved, without a model.

A keyed target's text does not depend on drafts, so verdicts can be made from a recording.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from draftwerk.speculative.costs.work import NO_LOAD, StepLoad
from draftwerk.speculative.drafting.prepared import Prepared
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.load.occupancy import Occupancy
from draftwerk.speculative.rounds import NO_DRAFT, Draft, NewSequence, Row, chain
from draftwerk.speculative.row_parts.feedback import Feedback, HeadNode, TokenTopK
from draftwerk.speculative.row_parts.step_report import NO_STEP, StepReport
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.verify import TreeWalk
from tests.support.rounds import make_round, make_row

COSTS = ((1, 20.5), (8, 23.5), (16, 25.5), (64, 47.0), (256, 104.0))
"""(tokens, ms): a 135 M model in bf16 on two cores with AMX."""


def cost(tokens: int) -> float:
    """Return a step's time in ms, straight between the measurements."""
    for (left, low), (right, high) in pairwise(COSTS):
        if tokens <= right:
            return low + (high - low) * (tokens - left) / (right - left)
    return COSTS[-1][1] * tokens / COSTS[-1][0]


class Recording(NamedTuple):
    """One request and its answer."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    topk: tuple[TokenTopK, ...] = ()
    """Of each output position, the target's top-k."""
    prediction: tuple[int, ...] = ()
    sampling: Sampling = Sampling()
    category: str = ""
    head_tree: tuple[tuple[HeadNode, ...], ...] = ()
    """After each output position, the draft head's tree."""


@dataclass(slots=True)
class ReplayReport:
    """What a replay came to; times in ms."""

    tokens: int = 0
    rounds: int = 0
    rows: int = 0
    ms: float = 0.0
    drafting_ms: float = 0.0
    """Of it, what asking sources, the head and the top-k took."""
    drafted: int = 0
    accepted: int = 0
    drafted_by: dict[str, int] = field(default_factory=dict[str, int])
    accepted_by: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def tokens_per_row(self) -> float:
        """Return the mean number of tokens that a row commits."""
        return self.tokens / max(1, self.rows)

    def count(self, draft: Draft, path: Sequence[int]) -> None:
        """Add one verified draft."""
        self.drafted += len(draft.tokens)
        self.accepted += len(path)
        for source in draft.sources:
            self.drafted_by[source] = self.drafted_by.get(source, 0) + 1
        for node in path:
            name = draft.sources[node]
            self.accepted_by[name] = self.accepted_by.get(name, 0) + 1


@dataclass(slots=True)
class _Player:
    """One recording while it is played."""

    sequence_id: int
    recording: Recording
    output_count: int = 0
    new_token_ids: tuple[int, ...] = ()
    topk: tuple[TokenTopK, ...] = ()
    head_tree: tuple[HeadNode, ...] = ()
    """What the draft head guesses after the last token, where it has run."""
    model_read: int = 0
    """Tokens that the draft model has read."""


def free(_: StepLoad) -> float:
    """Return the cost of context on a device where it has none."""
    return 0.0


def free_head(_: int) -> float:
    """Return the time of a head that takes none."""
    return 0.0


@dataclass
class Replay:
    """A server of recordings: `rows` at a time, each round verified in one step."""

    proposer: Proposer
    cost: Callable[[int], float]
    """The device's time for a step without context, in ms by token count."""
    draft_max: int = 15
    model: Callable[[Recording, int, int], tuple[int, ...]] | None = None
    """A draft model: (recording, token count, length) to guesses."""
    topk_ms: float = 0.0
    """What the target's top-k of a row takes."""
    ask_ms: float = 0.0
    """What asking the sources of a row takes."""
    head_ms: Callable[[int], float] = free_head
    """What the draft head takes by the rows that it runs for."""
    model_ms: float = 0.0
    """What each of its tokens costs, for all rows together."""
    model_read_ms: float = 0.0
    """What it costs to read a token of a row that it was not asked for before."""
    name_space: str = ""
    context_cost: Callable[[StepLoad], float] = free
    """What the context of a step adds."""
    report: ReplayReport = field(default_factory=ReplayReport)
    _closed: tuple[int, ...] = ()
    _report: StepReport = NO_STEP
    _opened: int = 0
    _occupancy: Occupancy = field(default_factory=Occupancy)

    def run(self, recordings: Sequence[Recording], rows: int) -> ReplayReport:
        """Play all recordings, and return what it came to."""
        waiting = list(reversed(recordings))
        players: list[_Player] = []
        while waiting or players:
            while waiting and len(players) < rows:
                self._opened += 1
                self._occupancy.started()
                players.append(_Player(self._opened, waiting.pop()))
            self._round(players, len(waiting))
            ended = [p for p in players if p.output_count == len(p.recording.output)]
            self._closed = tuple(player.sequence_id for player in ended)
            players = [player for player in players if player not in ended]
            for _ in ended:
                self._occupancy.ended(len(players))
        return self.report

    def close(self) -> None:
        """Send the proposer the ids that ended last."""
        self.proposer.prepare(make_round(finished_ids=self._closed))
        self._closed = ()

    def _round(self, players: Sequence[_Player], waiting: int) -> None:
        report = self.report
        report.rounds += 1
        report.rows += len(players)
        round_ = make_round(
            *map(self._row, players),
            round_id=report.rounds,
            finished_ids=self._closed,
            occupancy=self._occupancy.share(waiting),
            report=self._report,
        )
        prepared = self.proposer.prepare(round_, has_model=self.model is not None)
        model_drafts, model_ms = self._ask(prepared, players)
        drafts = self.proposer.finish(prepared, model_drafts, model_ms)
        load = NO_LOAD
        for row, draft in zip(round_.rows, drafts, strict=True):
            count = 1 + len(draft.tokens)
            load = load.with_row(row.start, count, count)
        topk_rows = sum(1 + len(draft.tokens) for draft in drafts if draft.wants_topk)
        topk_ms = self.topk_ms * topk_rows
        ms = self.cost(load.tokens) + self.context_cost(load) + topk_ms
        for player, draft in zip(players, drafts, strict=True):
            self._commit(player, draft)
        head_rows = sum(bool(player.head_tree) for player in players)
        self._report = StepReport(
            load=load,
            device_ms=ms,
            topk_rows=topk_rows,
            topk_ms=topk_ms,
            head_rows=head_rows,
            head_ms=self.head_ms(head_rows) if head_rows else 0.0,
        )
        asking_ms = self.ask_ms * len(prepared.rows)
        report.ms += ms + model_ms + self._report.head_ms + asking_ms
        report.drafting_ms += topk_ms + self._report.head_ms + asking_ms

    def _ask(
        self, prepared: Prepared, players: Sequence[_Player]
    ) -> tuple[tuple[Draft, ...], float]:
        """Return the draft model's guesses and their cost."""
        if self.model is None:
            return (NO_DRAFT,) * len(players), 0.0
        lengths = self.proposer.model_lengths(prepared)
        drafts = [
            chain(self.model(player.recording, player.output_count, length), "draft")
            for player, length in zip(players, lengths, strict=True)
        ]
        unread = 0
        for player, length in zip(players, lengths, strict=True):
            if length:
                known = len(player.recording.prompt) + player.output_count
                unread += known - player.model_read
                player.model_read = known
        return tuple(drafts), self.model_ms * max(lengths) + self.model_read_ms * unread

    def _row(self, player: _Player) -> Row:
        recording, output_count = player.recording, player.output_count
        stop = len(recording.prompt) + output_count
        room = min(self.draft_max, len(recording.output) - output_count - 1) if output_count else 0
        new_sequence = None
        if not output_count:
            new_sequence = NewSequence(
                recording.prompt,
                stop,
                recording.sampling,
                name_space=self.name_space,
                prediction=recording.prediction,
            )
        return make_row(
            stop - 1,
            stop,
            sequence_id=player.sequence_id,
            draft_max=room,
            new_token_ids=player.new_token_ids,
            new_sequence=new_sequence,
            tokens_left=len(recording.output) - output_count,
            feedback=Feedback(topk=player.topk, head_tree=player.head_tree),
        )

    def _commit(self, player: _Player, draft: Draft) -> None:
        """Walk the recording through the draft, and one token on."""
        output, output_count = player.recording.output, player.output_count
        walk = TreeWalk(draft)
        while walk.accept(output[output_count + len(walk.tokens)]):
            pass
        self.report.count(draft, walk.path)
        player.new_token_ids = walk.tokens
        player.topk = player.recording.topk[output_count : output_count + len(walk.tokens)]
        player.output_count += len(player.new_token_ids)
        goes_on = player.output_count < len(output)
        trees = player.recording.head_tree if draft.wants_levels and goes_on else ()
        player.head_tree = trees[player.output_count - 1] if trees else ()
        self.report.tokens += len(player.new_token_ids)
