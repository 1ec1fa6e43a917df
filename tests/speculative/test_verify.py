"""Any draft gives the text of none: what is accepted is the target's answer, and nothing else."""

from random import Random

import pytest

from draftwerk.speculative.options.beams.verified_trees import path_to
from draftwerk.speculative.rounds import NO_DRAFT, Draft, chain
from draftwerk.speculative.verify import TreeWalk, accept

VOCABULARY = 4
STOP = 3
LENGTH = 24


def answer_after(text: list[int]) -> int:
    """Return a target's one answer after a text: whatever came before matters."""
    return Random(repr(text)).randrange(VOCABULARY)


def plain_text(seed: int) -> list[int]:
    text = [seed]
    while len(text) <= LENGTH and (len(text) == 1 or text[-1] != STOP):
        text.append(answer_after(text))
    return text


def random_draft(rng: Random, text: list[int]) -> Draft:
    """Return a tree that often holds the answers, and always some tokens that are none."""
    paths: list[list[int]] = [[]]
    edges: dict[tuple[int, int], int] = {}
    for _ in range(rng.randrange(12)):
        parent = rng.randrange(-1, len(paths) - 1)
        path = paths[parent + 1]
        right = answer_after([*text, *path])
        token = right if rng.random() < 0.7 else rng.randrange(VOCABULARY)
        if (parent, token) not in edges:
            edges[parent, token] = len(edges)
            paths.append([*path, token])
    parents, tokens = zip(*edges, strict=True) if edges else ((), ())
    return Draft(tokens, parents, ("test",) * len(tokens))


def answers_of(draft: Draft, text: list[int], first: int) -> dict[int, int]:
    """Return the target's answers after the last known token and after every node."""
    answers = {first: answer_after(text)}
    for node in range(len(draft.tokens)):
        path = [draft.tokens[each] for each in path_to(draft, node)]
        answers[first + node + 1] = answer_after([*text, *path])
    return answers


def test_any_draft_gives_the_text_of_none():
    accepted = sum(map(decode_with_random_drafts, range(200)))
    assert accepted > 300


def decode_with_random_drafts(seed: int) -> int:
    """Decode a text with drafts and compare; return how many drafted tokens were accepted."""
    rng, text, accepted = Random(seed), [seed], 0
    expected = plain_text(seed)
    while len(text) < len(expected):
        draft = random_draft(rng, text)
        walk = TreeWalk(draft, (STOP,), first=rng.randrange(5))
        asked = accept(walk, answers_of(draft, text, walk.first))
        assert not asked
        assert [draft.tokens[node] for node in walk.path] == walk.tokens[: len(walk.path)]
        assert walk.path == [*path_to(draft, walk.node)]
        assert walk.goes_on == (walk.tokens[-1] != STOP)
        accepted += len(walk.path)
        text += walk.tokens
    assert text[: len(expected)] == expected
    assert STOP not in text[1:-1], "nothing comes after a stop token"
    return accepted


@pytest.mark.parametrize("seed", range(50))
def test_answers_that_come_one_by_one_are_followed_as_all_at_once(seed: int):
    """As a device asks for a level at a time: only answers on the accepted path are needed."""
    text = [seed]
    draft = random_draft(Random(seed), text)
    answers = answers_of(draft, text, 0)
    whole, stepwise = TreeWalk(draft, (STOP,)), TreeWalk(draft, (STOP,))
    accept(whole, answers)
    needed: dict[int, int] = {}
    while accept(stepwise, needed):
        assert stepwise.place not in needed
        needed[stepwise.place] = answers[stepwise.place]
        stepwise = TreeWalk(draft, (STOP,))
    assert (stepwise.tokens, stepwise.path) == (whole.tokens, whole.path)
    assert len(needed) == len(whole.tokens)


def test_a_row_without_a_draft_ends_in_the_one_answer():
    walk = TreeWalk(NO_DRAFT)
    assert accept(walk, {})
    assert not walk.goes_on
    assert not accept(walk, {0: 7})
    assert (walk.tokens, walk.path, walk.goes_on) == ([7], [], True)


def test_a_drafted_stop_token_ends_the_text_and_is_no_accepted_node():
    walk = TreeWalk(chain([1, STOP, 2], "test"), (STOP,))
    assert not accept(walk, {0: 1, 1: STOP, 2: 2})
    assert (walk.tokens, walk.path, walk.goes_on) == ([1, STOP], [0], False)
