"""Draft trees for beams: what they draft from, how wide and deep they grow, what they drop."""

from draftwerk.speculative.options.beams.drafts import DEPTH_MAX, NODES_MAX, BeamDrafts
from draftwerk.speculative.rounds import Draft, NewSequence, Row
from draftwerk.speculative.row_parts.beam_rows import Branch, Seen
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.ngram_index import Occurrences
from tests.support.rounds import make_round, make_row

GROUP = 1
FLAT = [1.0 + 1e-4 * tokens for tokens in range(400)]
GENTLE = [20.0 + 0.3 * tokens for tokens in range(400)]
STEEP = [float(tokens) for tokens in range(1, 401)]
PROMPT = (1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3)
RankedCandidates = tuple[tuple[int, float], ...]


def branch_row(
    number: int,
    score: float,
    *,
    origin: int = 0,
    new_token_ids: tuple[int, ...] = (),
    room: int = 9,
    new_sequence: NewSequence | None = None,
    seen: tuple[Seen, ...] = (),
    known: RankedCandidates = (),
    head_candidates: RankedCandidates = (),
) -> Row:
    branch = Branch(
        group_id=GROUP,
        candidates=4,
        origin=origin,
        score=score,
        width=2,
        seen=seen,
        known=known,
        head_candidates=head_candidates,
    )
    return make_row(
        0,
        1,
        sequence_id=number,
        draft_max=room,
        new_token_ids=new_token_ids,
        new_sequence=new_sequence,
        branch=branch,
    )


def read(beam_drafts: BeamDrafts, *rows: Row, finished_ids: tuple[int, ...] = ()) -> list[Row]:
    beam_drafts.read(
        make_round(*rows, round_id=1, finished_ids=finished_ids),
        lambda _: Occurrences(PROMPT),
    )
    beam_drafts.check()
    return list(rows)


def opened(room: int = 9) -> tuple[BeamDrafts, list[Row]]:
    """Return what is known of a search that has just parted in two, and the rows of both."""
    beam_drafts = BeamDrafts()
    first = branch_row(2, -1.0, origin=GROUP, new_token_ids=(4,), room=room)
    second = branch_row(3, -2.0, origin=GROUP, new_token_ids=(5, 6), room=room)
    return beam_drafts, read(beam_drafts, first, second)


def assert_sound(drafts: list[Draft], rows: list[Row]) -> None:
    for draft, row in zip(drafts, rows, strict=True):
        assert len(draft.tokens) <= row.draft_max
        assert all(parent < node for node, parent in enumerate(draft.parents))
        edges = list(zip(draft.parents, draft.tokens, strict=True))
        assert len(set(edges)) == len(edges), "siblings alike"


def test_branches_go_on_as_the_prompt_did() -> None:
    beam_drafts, rows = opened()
    drafts = beam_drafts.propose(rows, 2, FLAT)
    assert_sound(drafts, rows)
    assert drafts[0].tokens[:3] == (5, 6, 7), "after 2 3 4 came 5 6 7"


def test_what_was_offered_elsewhere_in_the_group_is_guessed() -> None:
    beam_drafts, _ = opened()
    seen: tuple[Seen, ...] = (
        ((2, 3, 4), ((20, -0.2), (21, -1.0))),
        ((2, 3, 7), ((22, -0.1),)),
    )
    rows = read(
        beam_drafts,
        branch_row(2, -1.0, new_token_ids=(2, 3, 4), seen=seen),
        branch_row(3, -1.2, new_token_ids=(2, 3, 7)),
    )
    first, second = beam_drafts.propose(rows, 2, FLAT)
    assert first.tokens[:2] == (20, 21)
    assert second.tokens[0] == 22


def test_nothing_is_drafted_where_every_token_costs_as_much_as_a_step() -> None:
    beam_drafts, rows = opened()
    assert not any(draft.tokens for draft in beam_drafts.propose(rows, 2, STEEP))


def test_draft_trees_keep_to_the_capacity_of_their_rows() -> None:
    beam_drafts, rows = opened(room=2)
    drafts = beam_drafts.propose(rows, 2, FLAT)
    assert_sound(drafts, rows)
    assert 0 < len(drafts[0].tokens) <= 2


def depth(draft: Draft) -> int:
    depths = [0]
    for parent in draft.parents:
        depths.append(depths[parent + 1] + 1)
    return max(depths)


def test_levels_that_disappoint_are_drafted_less_until_they_come_true() -> None:
    beam_drafts, _ = opened()
    chain = (30, 31, 32, 33, 34, 35, 36)
    candidates = [((token, -0.1), (50, -2.5)) for token in chain]
    seen = tuple(((token,), offer) for token, offer in zip((4, *chain), candidates, strict=False))

    def drafted(new_token_ids: tuple[int, ...]) -> int:
        rows = read(
            beam_drafts,
            branch_row(2, -1.0, new_token_ids=new_token_ids, seen=seen),
            branch_row(3, -9.0, new_token_ids=new_token_ids, seen=seen),
        )
        return max(depth(draft) for draft in beam_drafts.propose(rows, 2, GENTLE))

    at_first = drafted((4,))
    for _ in range(100):
        after_failures = drafted((4,))
    for _ in range(100):
        after_hits = drafted((30, 31, 4))
    assert after_failures < at_first
    assert after_failures < after_hits


def test_depth_and_size_are_bounded() -> None:
    beam_drafts, _ = opened()
    candidates = tuple((token, -1.5) for token in range(40, 48))
    seen = tuple(((token,), candidates) for token in range(40, 48))
    rows = read(
        beam_drafts,
        branch_row(2, -1.0, new_token_ids=(40,), room=400, seen=seen),
        branch_row(3, -1.0, new_token_ids=(41,), room=400),
    )
    drafts = beam_drafts.propose(rows, 2, FLAT)
    assert_sound(drafts, rows)
    assert sum(len(draft.tokens) for draft in drafts) <= NODES_MAX
    assert max(map(depth, drafts)) <= DEPTH_MAX


def test_where_the_target_has_computed_losers_are_not_drafted() -> None:
    beam_drafts = BeamDrafts()
    candidates = ((20, -0.2), (21, -0.4), (22, -1.0), (23, -1.1))
    first = branch_row(2, -1.0, origin=GROUP, new_token_ids=(4,), known=candidates)
    second = branch_row(3, -5.0, origin=GROUP, new_token_ids=(5,), known=candidates)
    known, other = beam_drafts.propose(read(beam_drafts, first, second), 2, GENTLE)
    assert known.tokens == (20, 21) and other.tokens == ()
    first, second = (
        branch_row(number, score, origin=GROUP, new_token_ids=(60,), head_candidates=candidates)
        for number, score in ((4, -1.0), (5, -5.0))
    )
    guessed, _ = beam_drafts.propose(read(beam_drafts, first, second), 2, GENTLE)
    assert {20, 21, 22} <= set(guessed.tokens), "a guess may be wrong"


def test_branches_that_are_known_do_not_make_nodes_dear() -> None:
    """The first tokens of a round cost the most, and are computed in any case, now or later."""
    costs = [10.0, 10.0, *(20.0 + 0.2 * tokens for tokens in range(400))]
    beam_drafts = BeamDrafts()
    rows = read(
        beam_drafts,
        branch_row(2, -1.0, origin=GROUP, new_token_ids=(4,), known=((5, -0.1), (6, -2.0))),
        branch_row(3, -2.0, origin=GROUP, new_token_ids=(5, 6)),
    )
    assert any(draft.tokens for draft in beam_drafts.propose(rows, 1, costs))


def test_a_search_among_many_drafts_less() -> None:
    beam_drafts, rows = opened()
    alone = beam_drafts.propose(rows, 2, GENTLE)
    beside = beam_drafts.propose(rows, 200, GENTLE)
    assert any(draft.tokens for draft in alone) and all(draft.wants_levels for draft in alone)
    assert not any(draft.tokens for draft in beside)
    assert not any(draft.wants_levels for draft in beside), "a head need not think"


def test_a_search_that_returns_in_the_round_that_closes_it_begins_anew() -> None:
    beam_drafts, _ = opened()
    new_sequence = NewSequence((5, 6, 7, 5, 6), 4, Sampling(temperature=0.0))
    rows = read(
        beam_drafts,
        branch_row(4, -1.0, new_sequence=new_sequence),
        branch_row(5, -2.0, new_sequence=new_sequence),
        finished_ids=(GROUP, 2, 3),
    )
    assert beam_drafts.propose(rows, 2, FLAT)[0].tokens[0] == 7


def test_what_has_ended_is_dropped() -> None:
    beam_drafts, _ = opened()
    read(beam_drafts, finished_ids=(GROUP, 2, 3))
    assert beam_drafts.size == 0
