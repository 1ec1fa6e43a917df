"""A draft model: follows every sequence, guesses with the target's own noise."""

from dataclasses import replace as replace_parts
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from draftwerk.model.step import draft_runner
from draftwerk.model.step.draft_coverage import DraftCoverage
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import NO_DRAFT, NewSequence, Round, Row
from draftwerk.speculative.row_parts.beam_rows import Branch
from draftwerk.speculative.sampling import Sampling
from tests.support.model_driver import Driver, Live, generate
from tests.support.rounds import make_round, make_row
from tests.support.runners import make_drafter, make_runner
from tests.support.tiny_models import VOCAB, save_tiny

PROMPT = [5, 6, 7, 8, 9, 5, 6]
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=0.9, top_p=0.9, seed=3),
    "edited": Sampling(
        seed=4, presence_penalty=0.5, repetition_penalty=1.2, logit_bias=((3, 2.0),)
    ),
}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("other")
    save_tiny(path, "qwen2", seed=9, num_key_value_heads=1)
    return path


def same_texts(
    runner: TargetRunner, drafter: DraftRunner, sampling: Sampling, count: int, **how: float
) -> list[Live]:
    """Return sequences that are drafted for, whose texts are those without drafts."""
    rng = Random(1)
    prompts = [[rng.randrange(VOCAB) for _ in range(rng.randint(1, 20))] for _ in range(count)]
    driver = Driver(runner, rng, drafter=drafter, **how)  # type: ignore[arg-type]
    plain = [generate(runner, prompt, sampling, 28) for prompt in prompts]
    lives = [driver.add(index, prompt, sampling, 28) for index, prompt in enumerate(prompts)]
    driver.run()
    assert [live.output for live in lives] == plain
    return lives


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_draft_model_that_is_the_target_is_always_right(sampling, directory):
    lives = same_texts(make_runner(directory), make_drafter(directory), sampling, 4, chunk_max=200)
    assert all(len(decision.path) == 8 for live in lives for decision in live.decisions[1:-2])


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_another_draft_model_changes_no_text(sampling, directory, other):
    drafter = make_drafter(other)
    same_texts(make_runner(directory), drafter, sampling, 3, chunk_max=6, preempts=0.1)


@pytest.mark.parametrize(
    "family", [pytest.param("gemma3_text", marks=pytest.mark.grid), "gemma4_text"]
)
def test_a_small_gemma_drafts_for_gemma_4(family: str, tmp_path: Path) -> None:
    """Both read windows of their own, and layers of the target the keys of others."""
    save_tiny(tmp_path / "target", "gemma4_text")
    save_tiny(tmp_path / "small", family, seed=9, num_attention_heads=2)
    runner, drafter = make_runner(tmp_path / "target"), make_drafter(tmp_path / "small")
    same_texts(runner, drafter, SAMPLINGS["sampled"], 2, chunk_max=6, preempts=0.1)


def test_it_recovers_from_drafts_that_others_made(directory):
    """The target may follow another source for a while; the next guess is right again."""
    runner, drafter, sampling = (
        make_runner(directory),
        make_drafter(directory),
        SAMPLINGS["sampled"],
    )
    plain = generate(runner, PROMPT, sampling, 20)
    first = drafter.propose(round_of(0, 7, new_sequence(sampling)))
    assert list(first[0].tokens) == plain[:8]
    told = (*plain[:2], 33, *plain[3:6])  # as if the third token had come out differently
    known = [*PROMPT, *told]
    fresh = make_drafter(directory).propose(round_of(0, 13, NewSequence(tuple(known), 7, sampling)))
    assert drafter.propose(round_of(9, 13, None, told)) == fresh


def test_it_reads_a_cached_prefix_that_it_never_saw(directory):
    sampling, drafter = SAMPLINGS["greedy"], make_drafter(directory)
    expected = make_drafter(directory).propose(round_of(0, 7, new_sequence(sampling)))
    assert drafter.propose(round_of(4, 7, new_sequence(sampling))) == expected


def test_it_does_not_read_a_cached_prefix_again(directory):
    sampling, drafter = SAMPLINGS["greedy"], make_drafter(directory)
    expected = drafter.propose(round_of(0, 7, new_sequence(sampling)))
    drafter, counts = counting(drafter)
    row = make_row(
        4, 7, sequence_id=2, draft_max=8, blocks=(0, 9, 10, 11), new_sequence=new_sequence(sampling)
    )
    assert drafter.propose(make_round(row, round_id=1)) == expected
    assert counts[0] == 3


def test_it_reads_on_in_a_branch_that_copies_another(directory):
    sampling, drafter = SAMPLINGS["greedy"], make_drafter(directory)
    drafter.propose(round_of(0, 7, new_sequence(sampling)))
    branch = Branch(group_id=1, candidates=4, origin=1)
    row = make_row(
        7, 8, sequence_id=2, draft_max=8, blocks=(0, 9, 10, 11), new_token_ids=(30,), branch=branch
    )
    found = drafter.propose(make_round(row, round_id=1, copies=((1, 9),), finished_ids=(1,)))
    known = NewSequence((*PROMPT, 30), 7, sampling)
    assert found == make_drafter(directory).propose(round_of(0, 8, known))


def test_a_request_may_do_without_it(directory):
    sampling, drafter = SAMPLINGS["greedy"], make_drafter(directory)
    without = NewSequence(tuple(PROMPT), 7, sampling, methods=("ngram",))
    assert drafter.propose(round_of(0, 7, without)) == (NO_DRAFT,)


def test_rows_that_do_not_sample_and_bad_rows_get_no_draft(directory):
    drafter = make_drafter(directory)
    rows = (
        make_row(0, 4, samples=False, blocks=(0,), new_sequence=new_sequence(SAMPLINGS["greedy"])),
        Row(sequence_id=2, start=0, stop=4, samples=True, draft_max=4, blocks=(1, 2)),
    )
    assert drafter.propose(make_round(*rows)) == (NO_DRAFT, NO_DRAFT)
    assert drafter.propose(make_round(round_id=1, finished_ids=(1, 2))) == ()
    assert not drafter.readings


def test_a_prompt_is_read_along_where_it_is_asked_for_and_else_once_drafts_are(directory):
    sampling = SAMPLINGS["greedy"]
    expected = make_drafter(directory).propose(round_of(0, 7, new_sequence(sampling)))
    for asked in (0, 1):
        drafter, counts = counting(make_drafter(directory))
        opening = make_row(
            0, 4, draft_max=asked, samples=False, blocks=(0,), new_sequence=new_sequence(sampling)
        )
        assert drafter.propose(make_round(opening)) == (NO_DRAFT,)
        assert counts == [4] * asked
        assert drafter.propose(round_of(4, 7, None)) == expected
        assert counts[asked] == (3 if asked else 7)


def test_rows_share_what_is_caught_up_in_a_round(directory, monkeypatch):
    monkeypatch.setattr(draft_runner, "CATCH_UP_MAX", 5)
    drafter, counts = counting(make_drafter(directory))
    rows = [
        make_row(
            6,
            7,
            sequence_id=number,
            draft_max=2,
            blocks=(6 * number, 6 * number + 1, 6 * number + 2),
            new_sequence=new_sequence(SAMPLINGS["greedy"]),
        )
        for number in (1, 2)
    ]
    again = [replace(row, new_sequence=None) for row in rows]
    lengths = [
        [len(draft.tokens) for draft in drafter.propose(make_round(*each, round_id=number))]
        for number, each in enumerate((rows, again))
    ]
    assert lengths == [[0, 0], [2, 2]]
    assert counts[:2] == [5 + 2, 5 + 2], "a token of each row, and five more"


def test_a_block_whose_first_slots_were_missed_is_not_filled():
    coverage = DraftCoverage(2, 4)
    coverage.missed((0, 1), 0, 3)
    coverage.missed((0, 1), 3, 6)
    assert coverage.leading((0, 1), 6) == 0
    coverage.fed((0, 1), 0, 5)
    coverage.missed((0, 1), 5, 6)
    assert coverage.leading((0, 1), 6) == 5


def counting(drafter: DraftRunner) -> tuple[DraftRunner, list[int]]:
    """Return the draft model, and where the tokens of each of its steps are counted."""
    counts: list[int] = []
    inner = drafter.parts.forward

    def forward(batch, pages):
        counts.append(len(batch.tokens))
        return inner(batch, pages)

    drafter.parts = replace_parts(drafter.parts, forward=forward)
    return drafter, counts


def new_sequence(sampling: Sampling) -> NewSequence:
    return NewSequence(tuple(PROMPT), len(PROMPT), sampling)


def round_of(
    start: int, stop: int, new_sequence: NewSequence | None, new_token_ids: tuple[int, ...] = ()
) -> Round:
    """Return a round with one sampling row in blocks 0 .. 5."""
    sent = {"new_token_ids": new_token_ids, "new_sequence": new_sequence}
    return make_round(make_row(start, stop, draft_max=8, blocks=(0, 1, 2, 3, 4, 5), **sent))
