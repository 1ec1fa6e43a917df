"""Random trees for tests."""

import random

from draftwerk.speculative.sources.acceptance import (
    BUCKETS,
    AcceptanceStats,
    SequenceAcceptance,
    kind,
)
from draftwerk.speculative.sources.registry import PRIORS, SOURCES
from draftwerk.speculative.sources.tree import DraftTree


def grown(rng: random.Random, count: int, vocab: int) -> DraftTree:
    """Return a tree of random paths, some of them proposed more than once."""
    tree = DraftTree(AcceptanceStats(PRIORS), SequenceAcceptance())
    for _ in range(count):
        parent = rng.randint(-1, len(tree) - 1)
        place = kind(rng.randrange(len(SOURCES)), rng.randrange(BUCKETS))
        if rng.random() < 0.3:
            tree.add_chain(parent, [rng.randrange(vocab) for _ in range(3)], place)
        else:
            tree.add(parent, rng.randrange(vocab), place)
    return tree
