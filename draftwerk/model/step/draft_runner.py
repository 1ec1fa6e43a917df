"""A draft model beside the target: fed the same tokens, predicting the target's next ones.

Its KV lives in pages of its own under the target's block ids, so prefix hits, forks and truncation
are decided once. It draws with the target's own noise: same seed, branch and position.
"""

from dataclasses import dataclass, field

from torch import Tensor

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.draft_head.chains import LENGTH_MAX, Wanted
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.draft_coverage import DraftCoverage
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.sequences import BadRow, CachedSequence, CachedSequences
from draftwerk.model.step.validation import check_row
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.rounds import NO_DRAFT, Draft, Round, Row, chain
from draftwerk.speculative.row_parts.row_blend import RowBlend

SOURCE = "draft"
CATCH_UP_MAX = 128
"""Most tokens that all rows are fed in one round beyond the target's own: the target waits."""


@dataclass(slots=True)
class ReadProgress:
    """How far the draft model has read one sequence."""

    wanted: bool
    """Whether the request allows this source; if not, it is not read either."""
    valid: int = 0
    """Leading slots that hold its KV of the known tokens."""
    guesses: list[int] = field(default_factory=list)
    """Tokens it fed itself after those, not known to be right."""

    def confirm(self, known: list[int], stop: int) -> None:
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
    sequence: CachedSequence
    reading: ReadProgress
    index: int
    """The index of the row in its round."""
    logits_row: int
    length_max: int
    tokens: list[int] = field(default_factory=list)

    def draft(self) -> Draft:
        """Return the chain as it is."""
        return chain(tuple(self.tokens), SOURCE)

    def request(self) -> SamplingRequest | None:
        """Return the question after the tokens guessed so far; None ends the guess."""
        try:
            return self.sequence.sampling_request(self.logits_row, self.tokens)
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


class DraftRunner:
    """The draft model on its device, and how far it has read the sequences."""

    def __init__(self, parts: LoadedModel) -> None:
        self.parts = parts
        self.pages, self.vocab_size = parts.pages, parts.vocab_size
        self.backend = parts.backend
        self.cached_sequences = CachedSequences(parts.grammars)
        self.readings: dict[int, ReadProgress] = {}
        self._catch_up_left = 0
        self.coverage = DraftCoverage(self.pages.keys.shape[1], self.pages.block_size)

    def propose(self, round_: Round) -> tuple[Draft, ...]:
        """Read what is new of rows that ask for drafts, then guess on; NO_DRAFT for others.

        A row that does not sample asks with its `draft_max` to be read.
        """
        self._begin(round_)
        self._catch_up_left = CATCH_UP_MAX
        builder = BatchBuilder(self.pages.block_size)
        opened = (self._read(builder, row, index) for index, row in enumerate(round_.rows))
        guesses = [guess for guess in opened if guess is not None]
        logits = self._run(builder)
        drafts = [NO_DRAFT] * len(round_.rows)
        if logits is not None:
            self._guess(logits, guesses)
        for guess in guesses:
            drafts[guess.index] = guess.draft()
        return tuple(drafts)

    def check(self) -> None:
        """Assert that every sequence known is read, and none further than it goes."""
        self.coverage.check()
        assert self.readings.keys() == self.cached_sequences.sequences.keys()
        for sequence_id, reading in self.readings.items():
            assert 0 <= reading.valid <= len(self.cached_sequences.sequences[sequence_id].tokens)

    def _begin(self, round_: Round) -> None:
        self.cached_sequences.begin(round_)
        for row in round_.rows:
            origin = self.readings.get(row.options.forked_from)
            if origin is not None:
                self.readings[row.sequence_id] = ReadProgress(origin.wanted)
        for sequence_id in round_.finished_ids:
            self.readings.pop(sequence_id, None)
        # Of blocks that the target has for its windows, a draft model has none.
        known = self.pages.keys.shape[1]
        copies = tuple(copy for copy in round_.copies if copy[0] < known)
        self.backend.copy_blocks(self.pages, copies)
        self.coverage.copy(copies)

    def _read(self, builder: BatchBuilder, row: Row, index: int) -> Guess | None:
        """Lay out the tokens of a row not read yet; return a guess to begin if it is wanted."""
        if row.new_sequence is not None and row.new_sequence.options.adapter:
            return None  # an adapter is the target's alone: the draft model knows no such text
        try:
            sequence = self.cached_sequences.read(row)
            check_row(row, NO_DRAFT, sequence, self.pages, self.vocab_size)
        except BadRow:
            return None  # the target says so, in words
        reading = self._reading(row)
        if row.options.blend is not None and not row.samples:
            self._pass_over(row, row.options.blend)
            return None
        reading.confirm(sequence.tokens, row.stop)
        if not reading.wanted or row.draft_max < 1:
            # Not asked now: it may never be again, and catching up later costs little.
            self.coverage.missed(row.blocks, row.start, row.stop)
            return None
        start = reading.valid
        stop = min(row.stop, start + row.stop - row.start + self._catch_up_left)
        self._catch_up_left -= max(0, stop - start - (row.stop - row.start))
        drafts = row.samples and stop == row.stop
        length_max = min(row.draft_max, LENGTH_MAX) if drafts else 0
        first = builder.add(
            sequence.tokens[start:stop], start, row.blocks, NO_DRAFT, length_max > 0
        )
        self.coverage.missed(row.blocks, row.start, row.stop)
        self.coverage.fed(row.blocks, start, stop)
        reading.valid = stop
        if length_max < 1:
            return None
        return Guess(row, sequence, reading, index, first, length_max)

    def _pass_over(self, row: Row, blend: RowBlend) -> None:
        """Note the slots that a blended prompt's row writes: here they are read with its last."""
        self.coverage.missed(row.blocks, row.start, row.stop)
        for read in blend.reads:
            self.coverage.missed(read.blocks, read.start, read.stop)

    def _reading(self, row: Row) -> ReadProgress:
        if row.new_sequence is not None:
            methods = row.new_sequence.methods
            self.readings[row.sequence_id] = ReadProgress(methods is None or SOURCE in methods)
        reading = self.readings[row.sequence_id]
        if row.new_sequence is not None or row.options.in_group:
            # New blocks, or some that a search has shuffled: only the coverage tells what is there.
            reading.valid = self.coverage.leading(row.blocks, row.start)
            reading.guesses.clear()
        return reading

    def _run(self, builder: BatchBuilder) -> Tensor | None:
        if not builder.tokens:
            return None
        return self.parts.run(builder)

    def _guess(self, logits: Tensor, guesses: list[Guess]) -> None:
        """Let the device go all the way where it can; ask it token by token for the others."""
        chains = self.parts.chains
        if chains is None:
            return self._extend(logits, guesses)
        questions = [(guess, self._wanted(guess)) for guess in guesses]
        whole = [(guess, wanted) for guess, wanted in questions if wanted and chains.serves(wanted)]
        arrived = chains.begin(logits, [wanted for _, wanted in whole])
        served = {guess.index for guess, _ in whole}
        self._extend(logits, [guess for guess in guesses if guess.index not in served])
        for (guess, _), tokens in zip(whole, arrived(), strict=True):
            guess.take(tokens)

    def _wanted(self, guess: Guess) -> Wanted | None:
        """Return a guess as one question, if no token changes the distribution of those after
        it."""
        sequence = guess.sequence
        if sequence.logit_edits is not None or sequence.matcher is not None:
            return None
        request = sequence.sampling_request(guess.logits_row, guess.tokens)
        return Wanted(request, guess.row.blocks, guess.length_max)

    def _extend(self, logits: Tensor, guesses: list[Guess]) -> None:
        """Extend chains by one token at a time, the rows together."""
        while guesses:
            questions = [
                (guess, request) for guess in guesses if (request := guess.request()) is not None
            ]
            tokens = self.backend.choose(logits, [request for _, request in questions])
            pairs = zip(questions, tokens, strict=True)
            guesses = [guess for (guess, _), token in pairs if guess.advance(token)]
            builder = BatchBuilder(self.pages.block_size)
            for guess in guesses:
                slot = guess.row.stop + len(guess.tokens) - 1
                newest = guess.tokens[-1]
                guess.logits_row = builder.add([newest], slot, guess.row.blocks, NO_DRAFT, True)
                guess.reading.guesses.append(newest)
            next_logits = self._run(builder)
            if next_logits is not None:
                logits = next_logits
