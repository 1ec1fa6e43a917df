"""A small engine: keeps sequences and blocks, and steps a Runner with any schedule and drafts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import (
    NO_DRAFT,
    Decision,
    Draft,
    NewSequence,
    Proposal,
    Row,
)
from draftwerk.speculative.sampling import Sampling
from tests.support.rounds import make_round, make_row

DRAFT_MAX = 12


@dataclass
class Live:
    """A sequence under way."""

    sequence_id: int
    tokens: list[int]
    prompt_count: int
    sampling: Sampling
    goal: int
    blocks: tuple[int, ...] = ()
    states: tuple[int, int] = (-1, -1)
    """Slots that its next row reads and writes, of a model with recurrent layers."""
    computed: int = 0
    sent_count: int = 0
    decisions: list[Decision] = field(default_factory=list)

    @property
    def output(self) -> list[int]:
        return self.tokens[self.prompt_count :]

    @property
    def ended(self) -> bool:
        stops = self.sampling.stop_token_ids
        return len(self.output) >= self.goal or bool(self.output and self.output[-1] in stops)


Guesser = Callable[[Live, int], Draft]


@dataclass
class Driver:
    """Rounds over all live sequences; blocks are dealt in random order."""

    runner: TargetRunner
    rng: Random = field(default_factory=lambda: Random(0))
    guess: Guesser = lambda live, capacity: NO_DRAFT
    drafter: DraftRunner | None = None
    chunk_max: int = 10**6
    end_of: Callable[[list[int], int], int] = lambda tokens, stop: stop
    """Returns where a row ends that shall end there."""
    preempts: float = 0.0
    """How often a sequence loses its blocks and begins again with what it has."""
    live: list[Live] = field(default_factory=list)
    all: list[Live] = field(default_factory=list)
    finished_ids: list[int] = field(default_factory=list)
    rounds: int = 0
    drafted: int = 0

    def __post_init__(self) -> None:
        self.free = list(range(self.runner.pages.keys.shape[1]))
        self.rng.shuffle(self.free)

    def add(self, sequence_id: int, prompt: list[int], sampling: Sampling, goal: int) -> Live:
        """Begin a sequence; goal is how many tokens to generate."""
        live = Live(sequence_id, list(prompt), len(prompt), sampling, goal)
        if self.runner.pages.states is not None:
            live.states = 2 * len(self.all), 2 * len(self.all) + 1
        self.live.append(live)
        self.all.append(live)
        return live

    def run(self) -> None:
        """Step until every sequence has ended."""
        while self.live:
            self.step()
        assert self.rounds < 10_000

    def step(self) -> None:
        """Plan, draft, verify and commit one round."""
        self.rng.shuffle(self.live)
        for live in self.live:
            if self.rng.random() < self.preempts:
                self._release(live)
                live.computed = live.sent_count = 0
        rows = tuple(self._row(live) for live in self.live)
        round_ = make_round(*rows, round_id=self.rounds, finished_ids=tuple(self.finished_ids))
        self.finished_ids.clear()
        self.rounds += 1
        if self.drafter is not None:
            drafts = self.drafter.propose(round_)
        else:
            drafts = tuple(map(self._draft, rows, self.live))
        self.drafted += sum(len(draft.tokens) for draft in drafts)
        verdict = self.runner.step(Proposal(round_, drafts))
        for row, live, decision in zip(rows, self.live, verdict.decisions, strict=True):
            self._commit(row, live, decision)
        self.live = [live for live in self.live if not live.ended]
        self.runner.cached_sequences.check()
        if self.drafter is not None:
            self.drafter.check()

    def _row(self, live: Live) -> Row:
        capacity = max(0, min(DRAFT_MAX, live.goal - len(live.output) - 1))
        stop = min(len(live.tokens), live.computed + self.rng.randint(1, self.chunk_max))
        stop = self.end_of(live.tokens, stop)
        needed = -(-(len(live.tokens) + capacity) // self.runner.pages.block_size)
        live.blocks += tuple(self.free.pop() for _ in range(needed - len(live.blocks)))
        new_sequence = NewSequence(tuple(live.tokens), live.prompt_count, live.sampling)
        new_token_ids = tuple(live.tokens[live.sent_count :]) if live.sent_count else ()
        read, written = live.states
        live.states = written, read
        state = RowState(read if live.computed else -1, written) if written >= 0 else None
        row = make_row(
            live.computed,
            stop,
            sequence_id=live.sequence_id,
            samples=stop == len(live.tokens),
            draft_max=capacity,
            tokens_left=live.goal - len(live.output),
            state=state,
            blocks=live.blocks,
            new_token_ids=new_token_ids,
            new_sequence=None if live.sent_count else new_sequence,
        )
        live.sent_count = len(live.tokens)
        return row

    def _draft(self, row: Row, live: Live) -> Draft:
        return self.guess(live, row.draft_max) if row.samples else NO_DRAFT

    def _commit(self, row: Row, live: Live, decision: Decision) -> None:
        assert not decision.error, decision.error
        live.decisions.append(decision)
        live.computed = row.stop + len(decision.path)
        live.tokens.extend(decision.tokens[: live.goal - len(live.output)])
        live.computed = min(live.computed, len(live.tokens) - 1 if row.samples else row.stop)
        if live.ended:
            self._release(live)

    def _release(self, live: Live) -> None:
        self.finished_ids.append(live.sequence_id)
        self.free.extend(live.blocks)
        self.rng.shuffle(self.free)
        live.blocks = ()


def generate(
    runner: TargetRunner,
    prompt: list[int],
    sampling: Sampling,
    goal: int,
    guess: Guesser = lambda live, capacity: NO_DRAFT,
    **settings: object,
) -> list[int]:
    """Return one sequence's continuation."""
    driver = Driver(runner, guess=guess, **settings)  # type: ignore[arg-type]
    live = driver.add(driver.rng.randrange(10**9), prompt, sampling, goal)
    driver.run()
    runner.cached_sequences.close([live.sequence_id])
    return live.output


def random_tree(rng: Random, truth: list[int], vocab: int, capacity: int) -> Draft:
    """Return a random tree in which some path often, but not always, follows the truth."""
    tokens: list[int] = []
    parents: list[int] = []
    depths: list[int] = []
    true_path = {-1}
    for node in range(rng.randint(0, capacity)):
        parent = rng.randrange(-1, node)
        depth = 0 if parent < 0 else depths[parent] + 1
        right = parent in true_path and depth < len(truth) and rng.random() < 0.7
        token = truth[depth] if right else rng.randrange(vocab)
        siblings = {tokens[i] for i in range(node) if parents[i] == parent}
        while token in siblings:
            token = rng.randrange(vocab)
        if parent in true_path and depth < len(truth) and token == truth[depth]:
            true_path.add(node)
        tokens.append(token)
        parents.append(parent)
        depths.append(depth)
    return Draft(tuple(tokens), tuple(parents), ("random",) * len(tokens))


def trees_along(
    rng: Random, texts: Mapping[int, list[int]], vocab: int, most: int = DRAFT_MAX
) -> Guesser:
    """Return what guesses random trees, which often follow a sequence's text where one is known."""

    def guess(live: Live, capacity: int) -> Draft:
        truth = texts.get(live.sequence_id, [])[len(live.output) :]
        return random_tree(rng, truth, vocab, min(capacity, most))

    return guess
