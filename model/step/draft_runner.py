"""A draft model beside the target: fed the same tokens, asked what the target will say.

Its KV lives in pages of its own under the target's block ids, so prefix hits, forks and truncation
are decided once. It draws with the target's own noise: same seed, branch and position.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace
from torch import Tensor

from draftwerk.model.batch.builder import Layout
from draftwerk.model.draft_head.chains import LENGTH_MAX, Wanted
from draftwerk.model.reference.sampler import Ask
from draftwerk.model.step.draft_coverage import Mirror
from draftwerk.model.step.ops import Parts
from draftwerk.model.step.sequences import BadRow, Histories, Sequence
from draftwerk.model.step.validation import check_row
from draftwerk.model.step.verify import draft_law
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.protocol.rounds import NO_DRAFT, Draft, Round, Row, chain
from draftwerk.speculative.sampling.rejection import draw
from draftwerk.speculative.sampling.verification import Coin, Verify, coin

SOURCE = "draft"
DraftLaw = tuple[tuple[int, float], ...]
CATCH_UP_MAX = 512
"""Most tokens a row is fed in one round beyond the target's own: the other rows are waiting."""


@dataclass(slots=True)
class Reading:
    """How far the draft model has read one sequence."""

    wanted: bool
    """Whether the request allows this source; if not, it is not read either."""
    valid: int = 0
    """Leading slots that hold its KV of the known tokens."""
    guesses: list[int] = field(default_factory=list)
    """Tokens it fed itself after those, not known to be right."""

    def settle(self, known: list[int], stop: int) -> None:
        """Keep the guesses that came true; leave at least one token to be read again."""
        for guess in self.guesses:
            if self.valid >= len(known) or known[self.valid] != guess:
                break
            self.valid += 1
        self.guesses.clear()
        self.valid = min(self.valid, stop - 1)


@dataclass(slots=True)
class Guess:
    """A chain under construction."""

    row: Row
    sequence: Sequence
    reading: Reading
    index: int
    """Of the row in its round."""
    logits_row: int
    length_max: int
    tokens: list[int] = field(default_factory=list)
    laws: list[DraftLaw] = field(default_factory=list[DraftLaw])

    def draft(self) -> Draft:
        """Return the chain as it is."""
        found = chain(tuple(self.tokens), SOURCE)
        return replace(found, laws=tuple(self.laws)) if self.laws else found

    def drawn(self, logits: Tensor, ask: Ask) -> int:
        """Draw the next guess from the model's own law, with noise that the target never uses."""
        law = draft_law(logits, ask)
        toss = coin(self.sequence.sampling, self.row.stop, len(self.tokens), Coin.DRAFT)
        self.laws.append(law)
        return law[draw([chance for _, chance in law], toss)][0]

    def ask(self) -> Ask | None:
        """Return the question after the tokens guessed so far; None ends the guess."""
        try:
            return self.sequence.ask(self.logits_row, self.tokens)
        except BadGrammar:
            return None  # the target says so, in words

    def advance(self, token: int) -> bool:
        """Take a guess; return whether to go on."""
        self.tokens.append(token)
        ended = token in self.sequence.sampling.stop_token_ids
        return not ended and len(self.tokens) < self.length_max

    def take(self, tokens: list[int]) -> None:
        """Take guesses until one ends the chain; the device has fed itself all before it."""
        for token in tokens:
            if not self.advance(token):
                return
            self.reading.guesses.append(token)


class Drafter:
    """The draft model on its device, and how far it has read the sequences."""

    def __init__(
        self, parts: Parts, length_max: int = LENGTH_MAX, verify: Verify = "keyed"
    ) -> None:
        """Chains are at most `length_max` long; `verify` is the rule that will verify them."""
        self.keyed = verify == "keyed"
        self.parts = parts
        _, self.pages, self.vocab_size, self.kit, grammars, *_ = parts
        self.length_max = length_max
        self.histories = Histories(grammars)
        self.readings: dict[int, Reading] = {}
        self.mirror = Mirror(self.pages.keys.shape[1], self.pages.block_size)

    def propose(self, round_: Round) -> tuple[Draft, ...]:
        """Read what is new, then guess on; NO_DRAFT for a row that is not to be drafted."""
        self._begin(round_)
        layout = Layout(self.pages.block_size)
        opened = (self._read(layout, row, index) for index, row in enumerate(round_.rows))
        guesses = [guess for guess in opened if guess is not None]
        logits = self._run(layout)
        drafts = [NO_DRAFT] * len(round_.rows)
        if logits is not None:
            self._guess(logits, guesses)
        for guess in guesses:
            drafts[guess.index] = guess.draft()
        return tuple(drafts)

    def check(self) -> None:
        """Assert that every sequence known is read, and none further than it goes."""
        self.mirror.check()
        assert self.readings.keys() == self.histories.sequences.keys()
        for sequence_id, reading in self.readings.items():
            assert 0 <= reading.valid <= len(self.histories.sequences[sequence_id].tokens)

    def _begin(self, round_: Round) -> None:
        self.histories.begin(round_)
        for row in round_.rows:
            origin = self.readings.get(row.branch.origin) if row.branch is not None else None
            if origin is not None:
                self.readings[row.sequence_id] = Reading(origin.wanted)
        for sequence_id in round_.closed:
            self.readings.pop(sequence_id, None)
        self.kit.copy_blocks(self.pages, round_.copies)
        self.mirror.copy(round_.copies)

    def _read(self, layout: Layout, row: Row, index: int) -> Guess | None:
        """Lay out the tokens of a row not read yet; return a guess to begin if it is wanted."""
        try:
            sequence = self.histories.read(row)
            check_row(row, NO_DRAFT, sequence, self.pages, self.vocab_size)
        except BadRow:
            return None  # the target says so, in words
        reading = self._reading(row)
        reading.settle(sequence.tokens, row.stop)
        if not reading.wanted or (row.samples and row.draft_max < 1):
            # Not asked now: it may never be again, and catching up later costs little.
            self.mirror.missed(row.blocks, row.start, row.stop)
            return None
        start = reading.valid
        stop = min(row.stop, start + row.stop - row.start + CATCH_UP_MAX)
        # A drawn chain must be judged at every node, and a grammar knows none after its end.
        drafts = row.samples and stop == row.stop and (self.keyed or sequence.matcher is None)
        length_max = min(row.draft_max, self.length_max) if drafts else 0
        first = layout.add(sequence.tokens[start:stop], start, row.blocks, NO_DRAFT, length_max > 0)
        self.mirror.missed(row.blocks, row.start, row.stop)
        self.mirror.fed(row.blocks, start, stop)
        reading.valid = stop
        if length_max < 1:
            return None
        return Guess(row, sequence, reading, index, first, length_max)

    def _reading(self, row: Row) -> Reading:
        if row.opening is not None:
            methods = row.opening.methods
            self.readings[row.sequence_id] = Reading(methods is None or SOURCE in methods)
        reading = self.readings[row.sequence_id]
        if row.opening is not None or row.branch is not None:
            # New blocks, or some that a search has shuffled: only what the mirror knows is there.
            reading.valid = self.mirror.leading(row.blocks, row.start)
            reading.guesses.clear()
        return reading

    def _run(self, layout: Layout) -> Tensor | None:
        if not layout.tokens:
            return None
        return self.parts.run(layout)

    def _chosen(self, logits: Tensor, asked: list[tuple[Guess, Ask]]) -> list[int]:
        """Guess with the target's noise, or draw where the target will ask for probabilities."""
        if self.keyed:
            return self.kit.choose(logits, [ask for _, ask in asked])
        return [
            self.kit.choose(logits, [ask])[0] if ask.is_greedy else guess.drawn(logits, ask)
            for guess, ask in asked
        ]

    def _guess(self, logits: Tensor, guesses: list[Guess]) -> None:
        """Let the device go all the way where it can; ask it token by token for the others."""
        chains = self.parts.chains
        if chains is None:
            return self._extend(logits, guesses)
        asked = [(guess, self._wanted(guess)) for guess in guesses]
        whole = [(guess, wanted) for guess, wanted in asked if wanted and chains.serves(wanted)]
        arrived = chains.begin(logits, [wanted for _, wanted in whole])
        served = {guess.index for guess, _ in whole}
        self._extend(logits, [guess for guess in guesses if guess.index not in served])
        for (guess, _), tokens in zip(whole, arrived(), strict=True):
            guess.take(tokens)

    def _wanted(self, guess: Guess) -> Wanted | None:
        """Return a guess as one question, if no token changes the law of those after it."""
        sequence = guess.sequence
        if sequence.edits is not None or sequence.matcher is not None:
            return None
        ask = sequence.ask(guess.logits_row, guess.tokens)
        if not self.keyed and not ask.is_greedy:
            return None  # to be drawn, and its chances told
        return Wanted(ask, guess.row.blocks, guess.length_max)

    def _extend(self, logits: Tensor, guesses: list[Guess]) -> None:
        """Extend chains by one token at a time, the rows together."""
        while guesses:
            asked = [(guess, ask) for guess in guesses if (ask := guess.ask()) is not None]
            tokens = self._chosen(logits, asked)
            pairs = zip(asked, tokens, strict=True)
            guesses = [guess for (guess, _), token in pairs if guess.advance(token)]
            layout = Layout(self.pages.block_size)
            for guess in guesses:
                slot = guess.row.stop + len(guess.tokens) - 1
                newest = guess.tokens[-1]
                guess.logits_row = layout.add([newest], slot, guess.row.blocks, NO_DRAFT, True)
                guess.reading.guesses.append(newest)
            found = self._run(layout)
            if found is not None:
                logits = found
