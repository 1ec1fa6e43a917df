"""The facts that int4 needs of a model's keys, learnt once from one text as the model is loaded."""

from collections.abc import Callable, Sequence
from hashlib import sha256

import torch

from draftwerk.model.batch.batch import Forward
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.rounds import NO_DRAFT

TOKENS_MAX, PIECE = 448, 64
APART = 256
"""Positions between the beginnings of two pieces."""
STEP = 7919
"""A prime, so that tokens come from all parts of a vocabulary."""
BLOCK_SIZE = 16
TEXT = '''\
The harbour lies where the river meets the sea. In the morning, fishermen bring in their nets, and
by noon the market is full of people who argue about prices, weather and politics. "How much for
two?" asked the woman in the blue coat. "Four fifty," he said, "but since you come every week, let
us say four." She laughed and paid.

1. Wash 300 g of rice until the water is clear.
2. Bring it to the boil with a pinch of salt; then turn the heat down and wait for 12 minutes.
3. Serve with lemon, parsley and a spoonful of yoghurt.

def mean(values: list[float]) -> float:
    """Return the mean of some numbers."""
    if not values:
        raise ValueError("no values")
    return sum(values) / len(values)

User: What is the capital of Australia, and why is it not Sydney?
Assistant: The capital is Canberra. When the colonies became one country in 1901, neither Sydney
nor Melbourne would accept the other, so a new city was planned between them.

{"name": "Ada Lovelace", "born": 1815, "works": ["Notes", "Letters"], "active": false}

In physics, energy is conserved: what one body loses, another gains. If a ball falls from a height,
its speed at the ground does not depend on its mass. Heat, however, flows from warm to cold by
itself and never the other way; that is why a cup of tea left on the table does not boil again.

Dear Mr. Brown, thank you for your letter of 3 March. We have looked into the matter and found that
your order (no. 48-1172) left our warehouse on Tuesday. Please let us know if it has not arrived by
the end of the week. Kind regards, the support team.

Ein Zug fährt um acht Uhr in Berlin ab. La lune se lève derrière la colline. El perro duerme.
'''


def tokens_of_all_parts(vocab_size: int) -> list[int]:
    """Return what is learnt from without a text: some tokens of a vocabulary."""
    return [(13 + STEP * at) % vocab_size for at in range(TOKENS_MAX)]


def learnt_words(text: Sequence[int]) -> tuple[str, ...]:
    """Return what tells pages from those of other learnt keys; nothing without a text."""
    learnt = f"{PIECE} {APART} {list(text[:TOKENS_MAX])}"
    return (sha256(learnt.encode()).hexdigest(),) if text else ()


def learn_keys(
    forward: Forward,
    config: ModelConfig,
    text: Sequence[int],
    pages: tuple[torch.dtype, int],
    learn: Callable[[bool], None],
) -> None:
    """Have a forward pass read the text between two calls of `learn`, which begins and ends it.

    It is cut into pieces that stand apart, since a rotated key depends on its position. `pages`
    are its pages' dtype, and how many of it a head takes.
    """
    blocks, device = PIECE // BLOCK_SIZE, torch.device("cpu")
    text = text[:TOKENS_MAX]
    starts = range(0, len(text), PIECE)
    kept = allocate(config, blocks * len(starts), BLOCK_SIZE, pages[0], device, pages[1])
    layout = BatchBuilder(BLOCK_SIZE)
    for number, start in enumerate(starts):
        piece = list(text[start : start + PIECE])
        table = tuple(range(number * blocks, (number + 1) * blocks))
        layout.add(piece, 0, table, NO_DRAFT, samples=False, with_hidden=range(len(piece)))
        layout.offsets.append((start, len(piece), number * APART))
    learn(True)
    forward(layout.batch(device), kept)
    learn(False)
