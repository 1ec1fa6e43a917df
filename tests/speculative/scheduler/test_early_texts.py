"""Early texts: decoded over reused segments before a prompt is read, shown, drafted, dropped."""

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.prefix import BlockNamer
from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.blend.blending import Blending, blended
from draftwerk.speculative.blend.rules import Blend, canonical_parts
from draftwerk.speculative.drafting.drafted_rounds import DraftedRounds
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.rounds import Proposal, Round
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler import early_texts
from draftwerk.speculative.scheduler.early_texts import HELD_TOKENS, early_sequence
from draftwerk.speculative.scheduler.scheduler import RoundLimits, Scheduler
from draftwerk.speculative.sequence import Sequence, SequenceProgress
from tests.support.toy import ToyTarget, plain_text

SIZE = 4
PASSAGES = [[1 + (5 * n + i * i) % 13 for i in range(16 + 4 * n)] for n in range(3)]


class Desk:
    """A scheduler and the toy, a round at a time; drafts are made beside the target."""

    def __init__(self, block_count: int = 80) -> None:
        limits = RoundLimits(tokens_max=24, rows_max=4, draft_max=6)
        self.scheduler = Scheduler(BlockPool(block_count, SIZE), limits)
        self.target = ToyTarget(block_count, SIZE)
        self.drafted = DraftedRounds(Proposer(("ngram",)), self.target.step)
        self.namer = BlockNamer(b"")
        self.count = 0
        self.rounds: list[Round] = []
        self.progress: list[SequenceProgress] = []

    @property
    def pool(self) -> BlockPool:
        return self.scheduler.pool

    def plain(self, prompt: list[int], tokens_max: int = 12) -> Sequence:
        """Submit a prompt without segments."""
        self.count += 1
        sequence = Sequence(
            sequence_id=self.count,
            request_id=f"r{self.count}",
            choice=0,
            tokens=list(prompt),
            prompt_count=len(prompt),
            sampling=Sampling(temperature=0.0, seed=self.count),
            tokens_max=tokens_max,
            table=BlockTable(self.pool, self.namer, ""),
            draft_max=6,
        )
        self.scheduler.submit(sequence)
        return sequence

    def lossless(self, passages: list[list[int]], tokens_max: int = 12) -> Sequence:
        """Submit a question over passages that asks for an early text."""
        prompt, spans = [15, 16], list[tuple[int, int]]()
        for passage in passages:
            spans.append((len(prompt), len(prompt) + len(passage)))
            prompt += passage
        prompt += [17, 18]
        exact = self.plain(prompt, tokens_max)
        blend = Blend(tuple(spans), "none", lossless=True)
        parts = canonical_parts(blend, len(prompt), SIZE)
        table = BlockTable(self.pool, self.namer, "", blended(blend, prompt, parts))
        blending = Blending(blend, parts, lambda _: BlockTable(self.pool, self.namer, ""))
        self.count += 1
        exact.early = early_sequence(exact, self.count, table, blending)
        self.target.blends[exact.sampling.seed] = blend
        return exact

    def read(self, passages: list[list[int]]) -> None:
        """Have passages in the cache."""
        for passage in passages:
            self.plain([*passage, 1], 1)
        self.run()
        self.rounds.clear()
        self.progress.clear()

    def step(self) -> bool:
        round_ = self.scheduler.plan()
        self.scheduler.check()
        if round_ is None:
            return False
        self.rounds.append(round_)
        verdict = self.drafted.step(Proposal(round_, ()))
        self.progress += self.scheduler.commit(verdict, verdict.drafts)
        self.scheduler.check()
        return True

    def run(self) -> None:
        for _ in range(500):
            if not self.step():
                break
        assert self.scheduler.idle and self.pool.used == 0

    def text(self, sequence: Sequence) -> list[int]:
        """Return what its client was sent."""
        own = [each for each in self.progress if each.sequence is sequence]
        return [token for each in own for token in each.tokens]

    def guesses(self, sequence: Sequence) -> list[tuple[int, ...]]:
        own = [each for each in self.progress if each.sequence is sequence]
        return [each.hypothesis for each in own if each.hypothesis]

    def rows_of(self, sequence: Sequence) -> list[int]:
        """Return the rounds that have a row of it, by index."""
        found = enumerate(self.rounds)
        return [n for n, r in found if sequence.sequence_id in {row.sequence_id for row in r.rows}]


def plain(sequence: Sequence) -> list[int]:
    prompt = sequence.tokens[: sequence.prompt_count]
    return plain_text(prompt, sequence.sampling, sequence.tokens_max)


def early_of(exact: Sequence) -> Sequence:
    assert exact.early is not None
    return exact.early


def test_the_first_guesses_come_before_the_prompt_is_read() -> None:
    desk = Desk()
    desk.read(PASSAGES)
    exact = desk.lossless([PASSAGES[2], PASSAGES[0]])
    while not desk.rows_of(exact):
        assert early_of(exact).generated < HELD_TOKENS + 7, "it is held for ever"
        desk.step()
    assert early_of(exact).generated >= HELD_TOKENS
    assert desk.guesses(exact) and not desk.text(exact)
    desk.run()
    assert desk.text(exact) == plain(exact)


def test_a_hypothesis_is_all_that_was_guessed_and_none_follows_the_text() -> None:
    desk = Desk()
    desk.read(PASSAGES)
    exact = desk.lossless(PASSAGES)
    desk.run()
    first = next(n for n, each in enumerate(desk.progress) if each.tokens)
    assert all(each.hypothesis for each in desk.progress[:first])
    assert not any(each.hypothesis for each in desk.progress[first:])
    lengths = [len(each) for each in desk.guesses(exact)]
    assert lengths == sorted(set(lengths)), "a later one is longer"


def test_the_last_chunk_verifies_the_early_text() -> None:
    desk = Desk()
    desk.read(PASSAGES)
    exact = desk.lossless(PASSAGES)
    desk.run()
    rows = [r for round_ in desk.rounds for r in round_.rows if r.sequence_id == exact.sequence_id]
    last = next(row for row in rows if row.samples)
    assert last.draft_max and last.early == tuple(early_of(exact).output[: len(last.early)])
    same = [a == b for a, b in zip(last.early, plain(exact), strict=False)]
    right = desk.scheduler.stats.accepted_by_source["early"]
    assert 0 < right <= (*same, False).index(False)
    assert desk.text(exact) == plain(exact)


def test_a_round_reads_a_short_prompt_at_once() -> None:
    desk = Desk()
    desk.read(PASSAGES)
    exact = desk.lossless(PASSAGES[:1])
    desk.run()
    assert not early_of(exact).generated and not desk.guesses(exact)
    assert desk.text(exact) == plain(exact)


def test_an_early_text_gives_way_to_whoever_needs_its_blocks() -> None:
    desk = Desk(block_count=36)
    desk.read(PASSAGES[:2])
    exact = desk.lossless(PASSAGES[:2], tokens_max=4)
    desk.step()
    assert early_of(exact).sequence_id in desk.scheduler.running_set.running
    other = desk.plain([1 + n % 7 for n in range(40)], tokens_max=4)
    while other.sequence_id not in desk.scheduler.running_set.running:
        assert not desk.text(exact), "it waits for the whole text"
        desk.step()
    assert early_of(exact).ended
    desk.run()
    assert desk.text(exact) == plain(exact) and desk.text(other) == plain(other)
    assert desk.scheduler.stats.preemptions == 0


def test_nobody_gives_way_to_an_early_text() -> None:
    desk = Desk(block_count=36)
    desk.read(PASSAGES[:2])
    exact = desk.lossless(PASSAGES[:2])
    desk.step()
    later, early = desk.plain([1, 2, 3], 9), early_of(exact)
    desk.step()
    running = desk.scheduler.running_set.running
    assert early.sequence_id in running and later.sequence_id in running
    taken = desk.pool.take(desk.pool.available)
    assert taken is not None
    assert not desk.scheduler.running_set.free(early, 1)
    assert early.ended and exact.sequence_id in running and later.sequence_id in running
    desk.pool.drop(taken)
    desk.run()
    assert desk.text(exact) == plain(exact) and desk.text(later) == plain(later)
    assert desk.scheduler.stats.preemptions == 0


def test_the_last_row_is_not_taken_for_a_guess() -> None:
    desk = Desk()
    desk.read(PASSAGES)
    others = [desk.plain([n, n + 1, n + 2], 30) for n in (3, 5, 7)]
    desk.step()
    exact = desk.lossless(PASSAGES)
    desk.step()
    assert exact.sequence_id in desk.scheduler.running_set.running
    assert not early_of(exact).generated
    desk.run()
    assert all(desk.text(each) == plain(each) for each in [*others, exact])


def test_a_row_that_a_guess_has_is_for_the_next_who_waits() -> None:
    desk = Desk()
    desk.read(PASSAGES)
    exact = desk.lossless(PASSAGES)
    desk.step()
    others = [desk.plain([n, n + 1, n + 2], 9) for n in (3, 5, 7)]
    desk.step()
    assert desk.scheduler.waiting == 1
    desk.step()
    assert early_of(exact).ended and not desk.text(exact)
    desk.run()
    assert all(desk.text(each) == plain(each) for each in [*others, exact])


def test_a_preempted_prompt_loses_its_early_text() -> None:
    desk = Desk()
    desk.read(PASSAGES)
    exact = desk.lossless(PASSAGES)
    desk.step()
    desk.scheduler.running_set.preempt(exact)
    desk.scheduler.check()
    assert early_of(exact).ended and desk.scheduler.running == 0
    desk.run()
    assert desk.text(exact) == plain(exact) and not desk.guesses(exact)


def test_an_early_text_that_has_to_go_does_not_come_back() -> None:
    desk = Desk()
    desk.read(PASSAGES)
    exact = desk.lossless(PASSAGES)
    desk.step()
    desk.scheduler.running_set.preempt(early_of(exact))
    assert early_of(exact).ended and not desk.scheduler.waiting
    desk.run()
    assert desk.text(exact) == plain(exact)
    assert desk.scheduler.stats.preemptions == 0


def test_a_cancelled_request_takes_its_early_text_along() -> None:
    for steps in range(1, 9):
        desk = Desk()
        desk.read(PASSAGES)
        exact = desk.lossless(PASSAGES, tokens_max=20)
        for _ in range(steps):
            desk.step()
        desk.scheduler.cancel(exact.request_id)
        assert desk.scheduler.idle and desk.pool.used == 0


def test_once_the_text_has_begun_the_guess_is_dropped() -> None:
    desk = Desk()
    desk.read(PASSAGES)
    exact = desk.lossless(PASSAGES, tokens_max=20)
    while not exact.generated:
        desk.step()
    assert early_of(exact).sequence_id not in desk.scheduler.running_set.running
    desk.run()


def test_segments_are_read_for_prompts_to_come_when_nothing_else_is_to_be_done() -> None:
    desk = Desk(block_count=120)
    first = desk.lossless([PASSAGES[0], PASSAGES[1]])
    other = desk.plain([1, 2, 3], 20)
    desk.run()
    assert not early_of(first).generated, "it would have cost as much as the prompt itself"
    reading = [round_ for round_ in desk.rounds if any(row.blend for row in round_.rows)]
    assert reading and all(len(round_.rows) == 1 for round_ in reading)
    assert desk.rounds.index(reading[0]) > max(desk.rows_of(first) + desk.rows_of(other))
    second = desk.lossless([PASSAGES[1], PASSAGES[0]])
    desk.run()
    assert desk.guesses(second)
    assert all(desk.text(each) == plain(each) for each in (first, other, second))


def test_segments_are_not_read_beside_prompts_that_are_computed_apart() -> None:
    desk = Desk(block_count=120)
    desk.lossless(PASSAGES)
    while not (desk.rounds and desk.rounds[-1].rows[0].blend is not None):
        desk.step()
    desk.scheduler.prefill.note(0, up=True)
    other = desk.plain([1 + n % 7 for n in range(60)], 4)
    assert not desk.step(), "its prompt is on its way"
    assert other.apart
    desk.scheduler.prefill.note(0, up=False)
    desk.run()
    assert desk.text(other) == plain(other)


def test_who_comes_while_segments_are_read_does_not_wait_for_them() -> None:
    desk = Desk(block_count=120)
    desk.lossless(PASSAGES)
    while not (desk.rounds and desk.rounds[-1].rows[0].blend is not None):
        desk.step()
    other = desk.plain([1, 2, 3], 4)
    desk.step()
    assert [row.sequence_id for row in desk.rounds[-1].rows] == [other.sequence_id]
    desk.run()
    assert desk.text(other) == plain(other)


tokens = st.lists(st.integers(0, 2), max_size=6)


@given(tokens, tokens)
def test_early_tokens_are_drafted_as_long_as_the_text_agrees(guessed: list[int], said: list[int]):
    desk = Desk()
    exact = desk.lossless(PASSAGES)
    early_of(exact).tokens += guessed
    exact.tokens += said
    found = early_texts.drafts_of(exact)
    if guessed[: len(said)] == said:
        assert [*said, *found] == guessed
    else:
        assert not found
