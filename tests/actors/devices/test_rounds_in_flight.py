"""What another process must be told, after one was lost with rounds in flight."""

import random
from collections.abc import Iterator

from msgspec.structs import replace

from draftwerk.actors.devices.rounds_in_flight import RoundsInFlight, token_count
from draftwerk.cache.pages.page_layout import JOURNAL_BYTES
from draftwerk.speculative.protocol.continuations import Continuations
from draftwerk.speculative.protocol.journal import MoveJournal
from draftwerk.speculative.rounds import (
    NO_DRAFT,
    Decision,
    NewSequence,
    Proposal,
    Round,
    Row,
    chain,
)
from draftwerk.speculative.row_parts.beam_rows import Branch
from draftwerk.speculative.sampling import Sampling
from tests.support.rounds import make_row


def proposal(round_id: int, *rows: Row, **how: object) -> Proposal:
    round_ = Round(round_id=round_id, pipeline_slot=0, rows=rows, **how)  # type: ignore[arg-type]
    return Proposal(round_, (NO_DRAFT,) * len(rows))


def row(sequence_id: int, *new: int, opens: tuple[int, ...] = (), origin: int = 0) -> Row:
    opening = NewSequence(opens, len(opens), Sampling(seed=sequence_id)) if opens else None
    branch = Branch(group_id=1, candidates=2, origin=origin) if origin else None
    return make_row(
        0,
        1,
        sequence_id=sequence_id,
        blocks=(0,),
        new_token_ids=new,
        new_sequence=opening,
        branch=branch,
    )


def rounds() -> RoundsInFlight:
    return RoundsInFlight(MoveJournal())


def answer(found: RoundsInFlight) -> None:
    found.answered((Decision(),) * len(found.in_flight[0].round.rows))


def tokens_of(told: Row) -> tuple[int, ...]:
    assert told.new_sequence is not None
    return (*told.new_sequence.tokens, *told.new_token_ids)


def test_nothing_changes_while_no_process_is_lost() -> None:
    found = rounds()
    for each in (proposal(1, row(1, opens=(5, 6))), proposal(2, row(1, 7))):
        assert found.sent(each) is each
        answer(found)
    assert found.known[1].tokens == [5, 6, 7]


def test_two_rounds_in_flight_are_sent_again_in_order() -> None:
    found = rounds()
    found.sent(proposal(1, row(1, opens=(5,)), row(2, opens=(8,))))
    answer(found)
    found.sent(proposal(2, row(1, 6)))
    found.sent(proposal(3, row(1, 7), row(2, 9)))
    again = found.lost()
    assert again is not None
    assert [each.round.round_id for each in again] == [2, 3]
    assert tokens_of(again[0].round.rows[0]) == (5, 6)
    assert again[1].round.rows[0].new_sequence is None, "the round before has told it"
    assert tokens_of(again[1].round.rows[1]) == (8, 9)


def test_a_row_in_vain_is_not_done_again() -> None:
    """The round that ends its sequence may have given its blocks away, and been done."""
    found = rounds()
    found.sent(proposal(1, row(1, opens=(5,)), row(2, opens=(8,))))
    answer(found)
    found.sent(proposal(2, row(1, 6), row(2, 9)))
    found.sent(proposal(3, row(3, opens=(4,)), finished_ids=(1,)))
    again = found.lost()
    assert again is not None
    vain, other = again[0].round.rows
    assert vain.options.continues and vain.new_sequence is None, "its beginning is not known there"
    assert Continuations().ordinary(vain) is None
    assert tokens_of(other) == (8, 9)
    assert again[1].round.finished_ids == (), "the process was never told of it"
    answer(found)
    found.check()
    answer(found)
    found.check()
    assert sorted(found.known) == [2, 3]
    assert found.untold == set()


def test_a_new_pipeline_begins_with_no_sequence() -> None:
    found = rounds()
    found.sent(proposal(1, row(1, opens=(5,))))
    answer(found)
    found.forget()
    assert found.lost() == []
    assert not found.untold, "nobody is told of a sequence that is gone"
    fork = proposal(2, row(3, 8, origin=1))
    assert found.sent(fork) == fork


def test_a_fork_of_what_was_lost_is_told_whole() -> None:
    found = rounds()
    found.sent(proposal(1, row(1, opens=(5, 6))))
    answer(found)
    found.sent(proposal(2, row(1, 7), row(3, 8, origin=1)))
    again = found.lost()
    assert again is not None
    first, fork = again[0].round.rows
    assert tokens_of(first) == (5, 6, 7)
    assert tokens_of(fork) == (5, 6, 8)
    assert fork.options.branch is not None and fork.options.branch.origin == 0
    answer(found)
    assert found.known[3].tokens == [5, 6, 8]
    assert found.known[1].tokens == [5, 6, 7]


def test_copies_are_made_once() -> None:
    memory = memoryview(bytearray(JOURNAL_BYTES))
    device, found = MoveJournal(memory), RoundsInFlight(MoveJournal(memory))
    work = proposal(4, row(1, opens=(5,)), copies=((1, 2),), moves=((3, 4),))
    found.sent(work)
    assert found.lost() == [work], "not begun: all is to be done"
    device.begin(work.round)
    assert found.lost() is None, "half done: there is nothing to go on from"
    device.end(work.round)
    assert found.lost() == [replace(work, round=replace(work.round, copies=(), moves=()))]


def test_tokens_done_again_are_counted() -> None:
    plain = proposal(1, row(1, opens=(5,)))
    assert token_count([plain, replace(plain, drafts=(chain((1, 2), "ngram"),))]) == 1 + 3
    assert token_count([replace(plain, drafts=())]) == 1, "where the target's process drafts"


def test_processes_lost_at_any_moment_know_the_same_texts() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        process, found = Process(), rounds()
        for work in story(rng):
            told = found.sent(work)
            while rng.random() < 0.3:
                process = Process()
                (told,) = found.lost() or ()
            process.take(told.round)
            answer(found)
            found.check()
            assert (
                process.texts.items()
                <= {sequence_id: known.tokens for sequence_id, known in found.known.items()}.items()
            )
            assert {each.sequence_id for each in work.round.rows} <= process.texts.keys()


class Process:
    """What a device does with the words of a round."""

    def __init__(self) -> None:
        self.texts: dict[int, list[int]] = {}

    def take(self, round_: Round) -> None:
        forks = [
            each
            for each in round_.rows
            if each.options.branch is not None and each.options.branch.origin
        ]
        for each in forks:
            assert each.options.branch is not None
            self.texts[each.sequence_id] = list(self.texts[each.options.branch.origin])
        for sequence_id in round_.finished_ids:
            del self.texts[sequence_id]
        for each in round_.rows:
            if each.new_sequence is not None:
                self.texts[each.sequence_id] = list(each.new_sequence.tokens)
            self.texts[each.sequence_id].extend(each.new_token_ids)


def story(rng: random.Random) -> Iterator[Proposal]:
    """Yield rounds in which sequences begin, fork, go on, pause and end."""
    live: list[int] = []
    for round_id in range(1, 12):
        ended = [each for each in live if rng.random() < 0.2]
        stay = [each for each in live if each not in ended]
        rows = [row(each, rng.randrange(9)) for each in stay if rng.random() < 0.6]
        if live and rng.random() < 0.5:
            rows.append(row(100 * round_id, rng.randrange(9), origin=rng.choice(live)))
        if rng.random() < 0.7:
            rows.append(row(round_id, opens=(rng.randrange(9), 1)))
        live = [*stay, *(each.sequence_id for each in rows if each.sequence_id not in stay)]
        yield proposal(round_id, *rows, finished_ids=tuple(ended))
