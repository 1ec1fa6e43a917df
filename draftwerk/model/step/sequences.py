"""What a device remembers of a sequence, and what that does to its logits."""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field

from draftwerk.model.reference.logit_edits import LogitEdits
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.text.grammar import BadGrammar, Grammars, Matcher
from draftwerk.speculative.rounds import NewSequence, Round, Row
from draftwerk.speculative.sampling import Sampling


class BadRow(ValueError):
    """A row that cannot be computed, with the reason in words for the client."""


@dataclass(slots=True)
class CachedSequence:
    """Known tokens of one sequence, and what they do to its logits."""

    tokens: list[int]
    prompt_count: int
    sampling: Sampling
    new_sequence: NewSequence | None = None
    """The data that it began with, for options."""
    matcher: Matcher | None = None
    """Where the generated tokens stand in the grammar, if there is one."""
    logit_edits: LogitEdits | None = field(init=False)
    checked_blocks: int = field(init=False, default=0)
    """The number of blocks of its table that an earlier row named."""

    def __post_init__(self) -> None:
        self.logit_edits = None
        if self.matcher is not None:
            self.matcher.extend(self.tokens[self.prompt_count :])
        if self.sampling.edits_logits:
            self.logit_edits = LogitEdits(self.sampling, self.tokens[: self.prompt_count])
            self.logit_edits.extend(self.tokens[self.prompt_count :])

    def extend(self, new_token_ids: tuple[int, ...]) -> None:
        """Append committed tokens."""
        self.tokens.extend(new_token_ids)
        if self.logit_edits is not None:
            self.logit_edits.extend(new_token_ids)
        if self.matcher is not None:
            self.matcher.extend(new_token_ids)

    def fork(self) -> "CachedSequence":
        """Return a sequence that begins alike and goes on apart."""
        # What never changes is shared; what grows with the text is copied below.
        twin = copy(self)
        twin.tokens = self.tokens.copy()
        twin.logit_edits = None if self.logit_edits is None else self.logit_edits.copy()
        twin.matcher = None if self.matcher is None else self.matcher.fork()
        return twin

    def sampling_request(self, logits_row: int, path: list[int]) -> SamplingRequest:
        """Return the question which token follows `path`, itself after the known tokens.

        Raises BadGrammar if the grammar allows none, or not `path`.
        """
        logit_edits = None if self.logit_edits is None else self.logit_edits.after(path)
        allowed = None if self.matcher is None else self.matcher.allowed(path)
        return SamplingRequest(
            logits_row, len(self.tokens) + len(path), self.sampling, logit_edits, allowed
        )


class CachedSequences:
    """The live sequences of one device, by id."""

    def __init__(self, grammars: Grammars | None = None) -> None:
        self.grammars = grammars
        self.sequences: dict[int, CachedSequence] = {}

    def begin(self, round_: Round) -> None:
        """Fork the branches that begin, then forget the sequences that ended.

        In this order and before any row is read: a fork copies what was known before the round.
        Both may name sequences never seen here; a row without history then says so.
        """
        forks = [row for row in round_.rows if row.options.forked_from]
        origins = [self.sequences.get(row.options.forked_from) for row in forks]
        for row, origin in zip(forks, origins, strict=True):
            if origin is not None:
                self.sequences[row.sequence_id] = origin.fork()
        self.close(round_.finished_ids)

    def close(self, sequence_ids: Iterable[int]) -> None:
        """Forget sequences; an unknown one was never sent here, which is fine."""
        for sequence_id in sequence_ids:
            self.sequences.pop(sequence_id, None)

    def check(self) -> None:
        """Assert that every sequence has counted what it knows."""
        for sequence in self.sequences.values():
            assert sequence.prompt_count <= len(sequence.tokens)
            if sequence.logit_edits is not None:
                sequence.logit_edits.check()
                assert sequence.logit_edits.length == len(sequence.tokens) - sequence.prompt_count

    def read(self, row: Row) -> CachedSequence:
        """Take in a row's new sequence and new token ids.

        Raises BadRow for a sequence never opened, or one whose grammar cannot be followed.
        """
        try:
            return self._read(row)
        except BadGrammar as error:
            raise BadRow(f"the grammar cannot be followed: {error}") from error

    def _read(self, row: Row) -> CachedSequence:
        if row.new_sequence is not None:
            self.sequences[row.sequence_id] = self._cached(row.new_sequence)
        sequence = self.sequences.get(row.sequence_id)
        if sequence is None:
            raise BadRow(f"sequence {row.sequence_id} was never opened")
        if row.new_token_ids:
            sequence.extend(row.new_token_ids)
        return sequence

    def _cached(self, new_sequence: NewSequence) -> CachedSequence:
        """Return the state that a new sequence begins with."""
        sampling, matcher = new_sequence.sampling, None
        if sampling.grammar is not None:
            if self.grammars is None:
                raise BadGrammar("the model has no tokenizer")
            matcher = self.grammars.matcher(sampling.grammar, sampling.stop_token_ids)
        return CachedSequence(
            list(new_sequence.tokens),
            new_sequence.prompt_count,
            sampling,
            new_sequence,
            matcher,
        )
