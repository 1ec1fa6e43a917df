"""One sequence by itself: where its text ends, what it may draft, what it counts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.load.tally import Tally, origins
from draftwerk.speculative.options.beams.verified_trees import path_to
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.rounds import NO_DRAFT, Decision, Draft, NewSequence, chain
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sequence import Sequence


def sequence(
    tokens: list[int],
    prompt_count: int,
    *,
    computed: int = 0,
    planned: int = 0,
    tokens_max: int = 8,
    draft_max: int = 4,
    **how: Any,
) -> Sequence:
    return Sequence(
        sequence_id=1,
        request=SequenceRequest(
            request_id="r",
            choice=0,
            prompt_count=prompt_count,
            sampling=Sampling(stop_token_ids=(0,)),
            tokens_max=tokens_max,
            draft_max=draft_max,
            **how,
        ),
        tokens=tokens,
        memory=CachePools(BlockPool(4, 4)).memory(BlockNamer(b""), ""),
        computed=computed,
        planned=planned,
    )


def test_pending_and_generated_are_counted_from_the_two_ends() -> None:
    one = sequence([1, 2, 3, 4, 5], 3, computed=3, planned=4)
    assert (one.pending, one.generated) == (1, 2)


def test_a_prompt_is_prefilled_when_all_of_it_is_computed_or_not_waited_for() -> None:
    one = sequence([1, 2, 3, 4], 3, computed=2)
    assert not one.prefilled
    one.computed = 3
    assert one.prefilled
    one.computed, one.ended = 0, True
    assert one.prefilled


def test_a_new_sequence_carries_all_that_a_device_needs() -> None:
    one = sequence([1, 2, 3], 2, methods=("ngram",), name_space="t", prediction=(7, 8))
    assert one.new_sequence() == NewSequence(
        (1, 2, 3), 2, one.request.sampling, ("ngram",), "t", (7, 8)
    )


@pytest.mark.parametrize(
    ("generated", "room"), [(0, 4), (3, 4), (4, 3), (6, 1), (7, 0), (8, 0), (9, 0)]
)
def test_drafts_leave_room_for_the_targets_own_token(generated: int, room: int) -> None:
    assert sequence([1] * (3 + generated), 3).draft_room() == room


def test_a_sequence_without_speculation_has_no_room_for_drafts() -> None:
    assert sequence([1], 1, draft_max=0).draft_room() == 0


@pytest.mark.parametrize(
    ("decided", "count", "reason"),
    [
        ((), 0, ""),
        ((5, 6), 2, ""),
        ((5, 0, 6), 2, "stop"),
        ((5, 6, 7, 8), 3, "length"),
        ((5, 6, 0), 3, "stop"),
    ],
    ids=["nothing", "some", "a stop token is the last", "the limit is kept", "a stop at the limit"],
)
def test_a_text_takes_what_was_decided_to_its_end(
    decided: tuple[int, ...], count: int, reason: str
) -> None:
    one = sequence([1], 1, tokens_max=3)
    assert one.extend(decided) == (count, reason)
    assert one.tokens == [1, *decided[:count]]


@pytest.mark.parametrize("written", [(), (5, 6)])
def test_where_nothing_is_to_be_generated_nothing_is(written: tuple[int, ...]) -> None:
    one = sequence([1, *written], 1, tokens_max=len(written), written_count=len(written))
    assert one.extend((7,)) == (0, "length")
    assert one.tokens == [1, *written]


def test_a_stop_token_in_the_prompt_stops_nothing() -> None:
    assert sequence([0, 0], 2).extend((5,)) == (1, "")


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 8), st.data())
def test_one_decision_or_many_end_the_text_in_the_same_place(
    tokens: list[int], tokens_max: int, data: st.DataObject
) -> None:
    whole = sequence([9], 1, tokens_max=tokens_max)
    kept, reason = whole.extend(tuple(tokens))
    parts = sequence([9], 1, tokens_max=tokens_max)
    kept_in_parts, reason_in_parts, rest = 0, "", list(tokens)
    while rest and not reason_in_parts:
        count = data.draw(st.integers(1, len(rest)))
        some, reason_in_parts = parts.extend(tuple(rest[:count]))
        kept_in_parts += some
        rest = rest[count:]
    assert (parts.tokens, kept_in_parts, reason_in_parts) == (whole.tokens, kept, reason)
    assert whole.tokens == [9, *tokens[:kept]]
    assert len(whole.tokens) <= 1 + tokens_max


# --- origins --------------------------------------------------------------------------------------

TREE = Draft((1, 2, 3, 4), (-1, -1, 0, 2), ("ngram", "suffix", "draft", "ngram"))


@pytest.mark.parametrize(
    ("decision", "draft", "names"),
    [
        (Decision(), NO_DRAFT, ()),
        (Decision(tokens=(5,)), NO_DRAFT, ("target",)),
        (Decision(tokens=(5,)), TREE, ("corrected",)),
        (Decision(tokens=(1, 5), path=(0,)), TREE, ("ngram", "corrected")),
        (Decision(tokens=(2, 5), path=(1,)), TREE, ("suffix", "bonus")),
        (Decision(tokens=(1, 3, 4, 5), path=(0, 2, 3)), TREE, ("ngram", "draft", "ngram", "bonus")),
        (Decision(tokens=(1, 3, 5), path=(0, 2)), TREE, ("ngram", "draft", "corrected")),
        (Decision(tokens=(7, 8, 9), path=(0, 1)), chain((7, 8), "a"), ("a", "a", "bonus")),
        (Decision(tokens=(7, 9), path=(0,)), chain((7, 8), "a"), ("a", "corrected")),
    ],
)
def test_every_token_has_its_origin(
    decision: Decision, draft: Draft, names: tuple[str, ...]
) -> None:
    assert origins(decision, draft) == names


# --- the tally ------------------------------------------------------------------------------------


def test_a_tally_counts_steps_by_how_many_drafts_they_accepted() -> None:
    tally = Tally()
    tally.count(Decision(tokens=(5,)), NO_DRAFT)
    tally.count(Decision(tokens=(1, 3, 5), path=(0, 2)), TREE)
    tally.count(Decision(tokens=(5,)), TREE)
    assert (tally.steps, tally.drafted) == (3, 8)
    assert tally.accepted_histogram == [2, 0, 1]


def test_a_tally_counts_what_became_of_the_clients_prediction() -> None:
    draft = Draft((1, 2, 3), (-1, 0, 1), ("prediction", "ngram", "prediction"))
    tally = Tally()
    tally.count(Decision(tokens=(1, 2, 9), path=(0, 1)), draft)
    assert (tally.predicted_accepted, tally.predicted_rejected) == (1, 1)
    tally.count(Decision(tokens=(9,)), draft)
    assert (tally.predicted_accepted, tally.predicted_rejected) == (1, 3)


def test_a_draft_knows_its_children_depths_and_paths():
    draft = Draft((1, 2, 3, 3), (-1, -1, 0, 2), ("x",) * 4)
    assert draft.children() == {(-1, 1): 0, (-1, 2): 1, (0, 3): 2, (2, 3): 3}
    assert draft.depths() == [0, 0, 1, 2]
    assert [path_to(draft, node) for node in (-1, 1, 3)] == [(), (1,), (0, 2, 3)]
