"""A forced text is all that is drafted, in chains as long as there is room."""

from draftwerk.speculative.drafting.prepared import GIVEN
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.rounds import NO_DRAFT, NewSequence, Round, Row
from draftwerk.speculative.row_parts.sequence_options import SequenceOptions
from draftwerk.speculative.sampling import Sampling

FORCED = (11, 12, 13, 14, 15, 16)


def row(stop: int, draft_max: int, new: tuple[int, ...] = (), opened: bool = True) -> Row:
    tokens = (1, 2, 1, 2, 1)
    sequence = (
        NewSequence(tokens, len(tokens), Sampling(), options=SequenceOptions(forced_tokens=FORCED))
        if opened
        else None
    )
    return Row(
        sequence_id=1,
        start=stop - 1,
        stop=stop,
        samples=True,
        draft_max=draft_max,
        blocks=(0,),
        new_token_ids=new,
        new_sequence=sequence,
        tokens_left=20,
    )


def drafted(proposer: Proposer, row: Row) -> tuple[int, ...]:
    prepared = proposer.prepare(Round(round_id=1, pipeline_slot=0, rows=(row,)), has_model=False)
    (draft,) = proposer.finish(prepared, (NO_DRAFT,))
    assert set(draft.sources) <= {GIVEN}
    return draft.tokens


def test_what_follows_the_known_tokens_is_drafted_and_nothing_else() -> None:
    proposer = Proposer(("ngram",))
    assert drafted(proposer, row(5, 4)) == FORCED[:4]
    assert drafted(proposer, row(7, 9, FORCED[:2], opened=False)) == FORCED[2:]
    assert drafted(proposer, row(11, 9, FORCED[2:], opened=False)) == ()


def test_without_room_nothing_is_drafted() -> None:
    assert drafted(Proposer(("ngram",)), row(5, 0)) == ()
