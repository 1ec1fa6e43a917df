"""Draft trees for tests: empty, of a source, and random."""

import random

from draftwerk.speculative.sources.acceptance import (
    BUCKETS,
    AcceptanceStats,
    SequenceAcceptance,
    kind,
)
from draftwerk.speculative.sources.registry import PRIORS, SOURCES
from draftwerk.speculative.sources.tree import DraftSource, DraftTree


def empty() -> DraftTree:
    return DraftTree(AcceptanceStats(PRIORS), SequenceAcceptance())


def proposed_by(source: DraftSource, depth_max: int) -> DraftTree:
    """Return the tree of what one source guesses."""
    tree = empty()
    source.propose(tree, depth_max)
    tree.check()
    return tree


def grown(rng: random.Random, count: int, vocab: int) -> DraftTree:
    """Return a tree of random paths, some of them proposed more than once."""
    tree = empty()
    for _ in range(count):
        parent = rng.randint(-1, len(tree) - 1)
        place = kind(rng.randrange(len(SOURCES)), rng.randrange(BUCKETS))
        if rng.random() < 0.3:
            tree.add_chain(parent, [rng.randrange(vocab) for _ in range(3)], place)
        else:
            tree.add(parent, rng.randrange(vocab), place)
    return tree
