"""The draft head's nodes become drafts: ranked with the noise, deep only below right tokens."""

from draftwerk.speculative.row_parts.feedback import HeadNode
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.acceptance import source_of
from draftwerk.speculative.sources.draft_head import WIDTHS, HeadSource
from draftwerk.speculative.sources.ngram_index import SequenceText
from draftwerk.speculative.sources.registry import NUMBERS
from draftwerk.speculative.sources.sequence_noise import GREEDY, SequenceNoise
from draftwerk.speculative.sources.tree import DraftTree
from tests.speculative.sources.trees import proposed_by

HEAD_TREE = (
    HeadNode(-1, 9, (4, 5, 6), (1, 20, 60)),
    HeadNode(0, 4, (7, 8), (2, 30)),
    HeadNode(0, 5, (8,), (3,)),
    HeadNode(1, 8, (1,), (4,)),
)


def proposed(
    head_tree: tuple[HeadNode, ...], depth_max: int = 8, key: SequenceNoise = GREEDY
) -> DraftTree:
    source = HeadSource(NUMBERS["head"], SequenceText([3, 9]), key)
    source.head_tree = head_tree
    return proposed_by(source, depth_max)


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return set(found)


def test_each_head_node_names_the_children_of_its_own_node():
    tree = proposed(HEAD_TREE)
    assert paths(tree) == {(4,), (5,), (6,), (4, 7), (4, 8), (5, 8), (4, 8, 1)}
    assert {source_of(cell) for cell in tree.credit_cells} == {NUMBERS["head"]}
    assert tree.scores[tree.child(-1, 4)] > tree.scores[tree.child(-1, 5)]


def test_reach_and_widths_bound_the_tree():
    assert paths(proposed(HEAD_TREE, depth_max=1)) == {(4,), (5,), (6,)}
    many = HeadNode(-1, 9, tuple(range(20)), tuple(range(0, 200, 10)))
    assert paths(proposed((many,))) == {(token,) for token in range(WIDTHS[0])}


def test_what_follows_a_token_that_found_no_room_is_left_out():
    many = HeadNode(-1, 9, tuple(range(20)), tuple(range(0, 200, 10)))
    tree = proposed((many, HeadNode(0, 19, (1,), (0,)), HeadNode(1, 1, (2,), (0,))))
    assert paths(tree) == {(token,) for token in range(WIDTHS[0])}


def test_candidates_are_ranked_with_the_noise_of_their_place():
    """Of equally likely successors the target chooses the one with the most noise."""
    key = SequenceNoise(Sampling(seed=5))
    ranked = sorted(range(10, 26), key=lambda token: -key.of_tokens(2, [token])[0])
    tree = proposed((HeadNode(-1, 9, tuple(ranked), (40,) * 16),), key=key)
    assert tree.tokens == ranked[: WIDTHS[0]]
    assert tree.scores[0] == max(tree.scores) > min(tree.scores)
