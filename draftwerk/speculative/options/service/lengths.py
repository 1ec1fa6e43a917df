"""How long a text will be, from those that have ended, and what the running ones will need.

Lengths are counted in buckets, by factors of the square root of two. Of a text with g tokens, those
that were longer tell how many are left:

    E[min(L, most) - g | L > g]

Texts of one kind (who asks, how the prompt begins, whether a grammar rules, what the limit is) have
a distribution of their own, shrunk towards that of all texts by as much as `SHRINKAGE` texts. A
text that nothing but its limit can end has all of that left. No text depends on the estimate: it
decides who enters when, and nothing else.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from math import ceil, log2
from typing import NamedTuple

from draftwerk.cache.blocks import BlockPool
from draftwerk.speculative.sequence import Sequence

BUCKETS = 40
"""The last one begins at about a million tokens."""
PRIOR_MAX = 22
"""The last bucket, of about 2000 tokens, that holds something before any text has ended."""
PRIOR_WEIGHT = 0.25
"""The weight of the prior, in texts."""
FADING = 0.995
"""The factor by which all buckets fade with each text that ends: what clients ask changes."""
SHRINKAGE = 8.0
"""Texts of all kinds that count beside those of a kind."""
KINDS_MAX = 256
"""Kinds that are known; the one that ended a text longest ago is forgotten first."""
OVERBOOKING = 1.2
"""The expected peak of blocks may be so many times the pool: some texts end early, and a pool that
is never full serves fewer at once."""
HEAD_TOKENS = 16
"""The tokens of a prompt that tell its kind."""


class LengthCurve:
    """A distribution of generated tokens."""

    def __init__(self, prior_weight: float = 0.0) -> None:
        self._weights = [prior_weight if bucket <= PRIOR_MAX else 0.0 for bucket in range(BUCKETS)]
        self._tokens = [
            2.0 ** ((bucket + 0.5) / 2) for bucket in range(BUCKETS)
        ]  # mean of each bucket
        self._longer: dict[tuple[int, int], tuple[float, float]] = {}

    def learn(self, tokens: int) -> None:
        """Take in a text that has ended."""
        self._weights = [weight * FADING for weight in self._weights]
        bucket = _bucket(tokens)
        self._weights[bucket] += 1.0
        self._tokens[bucket] += (tokens - self._tokens[bucket]) / self._weights[bucket]
        self._longer.clear()

    def longer(self, generated: int) -> tuple[float, float]:
        """Return how many texts were longer than so many tokens, and the tokens left of all."""
        first = _bucket(generated + 1)
        key = first, generated >> max(0, first // 2 - 3)  # the mean changes slowly
        if key not in self._longer:
            longer = [*zip(self._weights[first:], self._tokens[first:], strict=True)]
            left = sum(weight * max(1.0, length - generated) for weight, length in longer)
            self._longer[key] = sum(weight for weight, _ in longer), left
        return self._longer[key]

    def check(self) -> None:
        """Assert that the distribution is one."""
        assert all(weight >= 0.0 for weight in self._weights)


class TextLengths:
    """Lengths as they are learnt from the texts that end."""

    def __init__(self) -> None:
        self._all = LengthCurve(PRIOR_WEIGHT)
        self._kinds: OrderedDict[int, LengthCurve] = OrderedDict()

    def learn(self, tokens: int, kind: int = 0) -> None:
        """Take in a text that has ended by itself or at its limit."""
        self._all.learn(tokens)
        self._kinds.setdefault(kind, LengthCurve()).learn(tokens)
        self._kinds.move_to_end(kind)
        if len(self._kinds) > KINDS_MAX:
            self._kinds.popitem(last=False)

    def left(self, sequence: Sequence) -> int:
        """Return how many tokens a sequence will probably still generate, at least 1."""
        most = sequence.request.tokens_max - sequence.generated
        if not sequence.request.sampling.stop_token_ids:
            return max(1, most)
        return max(1, min(most, ceil(self._left(sequence.generated, kind_of(sequence)))))

    def _left(self, generated: int, kind: int) -> float:
        """Return the mean of what is left after so many tokens."""
        weight, left = self._all.longer(generated)
        # Longer than all that ended: as much again.
        mean = left / weight if weight > 1e-6 else generated + 1.0
        if (curve := self._kinds.get(kind)) is None:
            return mean
        weight, left = curve.longer(generated)
        return (left + SHRINKAGE * mean) / (weight + SHRINKAGE)

    def check(self) -> None:
        """Assert that the distributions are some."""
        for curve in (self._all, *self._kinds.values()):
            curve.check()


def kind_of(sequence: Sequence) -> int:
    """Return what texts have in common whose lengths are alike."""
    request = sequence.request
    head = tuple(sequence.tokens[: min(HEAD_TOKENS, request.prompt_count)])
    has_grammar = request.sampling.grammar is not None
    return hash((request.name_space, head, has_grammar, _bucket(request.tokens_max)))


def _bucket(tokens: int) -> int:
    """Return the bucket of a length: twice its binary logarithm, rounded down."""
    return min(int(2 * log2(max(1, tokens))), BUCKETS - 1)


class RunningText(NamedTuple):
    """What a running sequence holds, and what it will come to."""

    tokens: int
    left: int
    """Tokens that it will still generate, one in each round."""
    blocks: int
    rows: int = 1
    """Rows that grow: of a beam search, one for each branch."""


def expected_peak(used: int, block_size: int, running: Iterable[RunningText]) -> float:
    """Return the most blocks in use at any time from now on, if all texts end when expected.

    At the moment t at which a text ends, those that ended before have given back what they hold,
    and the others have grown by t tokens in each row:

        use(t) = used - sum of blocks, all + sum of rows * ((tokens + t) / block_size + 1/2), others

    as the last block of a row is half full on average.
    """
    ordered = sorted(running, key=lambda text: text.left, reverse=True)
    held = sum(text.blocks for text in ordered)
    peak, rows, slots = float(used), 0, 0
    for text in ordered:
        rows += text.rows
        slots += text.rows * text.tokens
        peak = max(peak, used - held + (slots + rows * text.left) / block_size + rows / 2)
    return peak


def held_blocks(sequence: Sequence) -> int:
    """Return how many blocks all memories of a sequence name."""
    return sum(memory.block_count for memory in sequence.memories())


def overflows(
    pool: BlockPool,
    lengths: TextLengths,
    running: Collection[Sequence],
    entering: Sequence,
    given_back: int = 0,
) -> bool:
    """Return whether a pool will probably be too small for those that run and one more, if
    others give back so many blocks."""
    texts = [
        RunningText(
            len(sequence.tokens),
            lengths.left(sequence),
            held_blocks(sequence),
            sequence.row_count,
        )
        for sequence in (*running, entering)
    ]
    if not entering.memory.block_count:
        texts[-1] = texts[-1]._replace(tokens=0)
    peak = expected_peak(pool.used - given_back, pool.block_size, texts)
    return peak > OVERBOOKING * pool.capacity
