"""The table of draft sources agrees with their files, numbers and documentation."""

from pathlib import Path

import msgspec
import pytest

from draftwerk.speculative.rounds import NewSequence
from draftwerk.speculative.row_parts.feedback import NOTHING_LEARNED, Feedback, HeadNode, TokenTopK
from draftwerk.speculative.sampling import Grammar, Sampling
from draftwerk.speculative.sources.acceptance import BUCKETS, AcceptanceStats, kind
from draftwerk.speculative.sources.ngram_index import INDEX_MAX, SequenceText
from draftwerk.speculative.sources.registry import (
    NUMBERS,
    PRIORS,
    SETTINGS,
    SOURCES,
    WITHOUT_MODEL,
    SourceInputs,
    SourceSpec,
    make_sources,
    need_topk,
)
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.store import Memory
from draftwerk.speculative.sources.tree import DraftTree
from tests.speculative.sources.trees import proposed_by
from tests.support.rounds import make_row

TOKENS = (1, 2, 3, 4, 5, 6, 1, 2, 3)
ROW = make_row(
    8,
    9,
    draft_max=4,
    blocks=(1,),
    feedback=Feedback(head_tree=(HeadNode(-1, 3, (4, 7), (0, 9)),), jump_forward=(4,)),
)
"""Feedback for every source that lives on it."""


def inputs() -> SourceInputs:
    """Return a sequence for which every source has something to propose."""
    sampling = Sampling(temperature=0.0, grammar=Grammar("regex", "a"))
    new = NewSequence(TOKENS, len(TOKENS), sampling, prediction=(4, 5))
    memory = Memory()
    memory.store.learn(TOKENS)
    memory.successors.learn([TokenTopK(3, (4, 7), (0, 9))])
    text = SequenceText(TOKENS)
    text.occurrences.index(INDEX_MAX)
    return SourceInputs(new, text, SequenceNoise(sampling), memory)


def test_a_row_starts_the_acceptance_of_its_source() -> None:
    chances = AcceptanceStats(PRIORS).chances
    for number, spec in enumerate(SOURCES):
        assert 0 < len(spec.priors) <= BUCKETS
        for bucket, prior in enumerate(spec.priors):
            assert 0.0 < prior <= 1.0
            assert chances[kind(number, bucket)] == prior


@pytest.mark.parametrize("spec", [spec for spec in SOURCES if spec.name != "draft"])
def test_what_a_row_makes_drafts_under_its_name(spec: SourceSpec) -> None:
    source = spec.make(inputs()._replace(number=NUMBERS[spec.name]))
    assert source is not None
    source.read(ROW)
    tree = proposed_by(source, 4)
    draft = tree.draft(list(range(len(tree.tokens))))
    assert draft.tokens[0] == 4
    assert set(draft.sources) == {spec.name}


@pytest.mark.parametrize("spec", [spec for spec in SOURCES if spec.name != "draft"])
def test_feedback_is_good_for_one_row(spec: SourceSpec) -> None:
    """Whatever a row does not bring again is outdated: new tokens were committed since."""
    source, fresh = spec.make(inputs()), spec.make(inputs())
    assert source is not None and fresh is not None
    empty = msgspec.structs.replace(ROW, feedback=NOTHING_LEARNED)
    trees: list[DraftTree] = []
    for each, rows in ((source, (ROW, empty)), (fresh, (empty,))):
        for row in rows:
            each.read(row)
        trees.append(proposed_by(each, 4))
    assert trees[0].tokens == trees[1].tokens


def test_the_table_says_who_lives_on_the_best_tokens() -> None:
    assert need_topk(SETTINGS)
    assert [spec.name for spec in SOURCES if need_topk([spec.name])] == ["recycle"]


def test_a_sequence_has_the_sources_that_are_allowed_and_can_draft() -> None:
    every = inputs()
    assert len(make_sources(every, SETTINGS)) == len(SOURCES) - 1  # the draft model's come later
    # A prediction is always the client's.
    assert len(make_sources(every, ())) == 1
    assert [type(each).__name__ for each in make_sources(every, ["ngram"])] == [
        "PredictionSource",
        "NgramSource",
    ]
    plain = every._replace(new_sequence=NewSequence(TOKENS, len(TOKENS), Sampling(temperature=0.0)))
    assert len(make_sources(plain, SETTINGS)) == len(SOURCES) - 3  # no grammar, no prediction


def test_names_that_can_be_chosen() -> None:
    assert set(SETTINGS) == {spec.name for spec in SOURCES} - {"prediction"}
    assert set(WITHOUT_MODEL) == set(SETTINGS) - {"draft"}


def test_the_glossary_names_every_source() -> None:
    glossary = (Path(__file__).parents[3] / "docs/glossary.md").read_text()
    for spec in SOURCES:
        assert f"`{spec.name}`" in glossary
