"""One device step of the target model: a proposal in, a verdict out, plain data both."""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from time import perf_counter
from typing import Protocol

from torch import Tensor

from model.batch import Forward, Pages
from model.flatten import Layout
from model.history import BadRow, Histories
from model.pages import copy_blocks, move_slots
from model.rows import check_row
from model.sampler import Ask, choose_many, logprobs
from model.walk import Walk
from speculative.rounds import Decision, Draft, Proposal, Row, TokenLogprob, Verdict


class Chooser(Protocol):
    """`model.sampler.choose_many`, or a faster twin of it."""

    def __call__(self, logits: Tensor, asks: SequenceOf[Ask]) -> list[int]: ...


class Runner:
    """The target model on its device, and the sequences it knows."""

    def __init__(
        self,
        forward: Forward,
        pages: Pages,
        vocab_size: int,
        choose: Chooser = choose_many,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.forward = forward
        self.pages = pages
        self.vocab_size = vocab_size
        self.choose = choose
        self.clock = clock
        self.histories = Histories()

    def step(self, proposal: Proposal) -> Verdict:
        """Compute one round; a row that cannot be computed fails alone."""
        round_ = proposal.round
        self.histories.close(round_.closed)
        layout = Layout(self.pages.block_size)
        walks = [
            self._open(layout, row, draft)
            for row, draft in zip(round_.rows, proposal.drafts, strict=True)
        ]
        begun = self.clock()
        copy_blocks(self.pages, round_.copies)
        sampling = [walk for walk in walks if isinstance(walk, Walk) and walk.row.samples]
        found = self._compute(layout, sampling)
        return Verdict(
            round_.round_id,
            round_.lane,
            tuple(_decision(walk, found) for walk in walks),
            (self.clock() - begun) * 1e3,
            len(layout.tokens),
        )

    def _open(self, layout: Layout, row: Row, draft: Draft) -> Walk | BadRow:
        """Take in a row and lay it out, or say what is wrong with it."""
        try:
            sequence = self.histories.read(row)
            check_row(row, draft, sequence, self.pages, self.vocab_size)
        except BadRow as error:
            return error
        known = sequence.tokens[row.start : row.stop]
        first = layout.add(known, row.start, row.blocks, draft, row.samples)
        return Walk(row, sequence, draft, first)

    def _compute(self, layout: Layout, walks: list[Walk]) -> dict[int, list[TokenLogprob]]:
        """Run the model and walk every sampling row; return logprobs by sequence."""
        if not layout.tokens:
            return {}
        logits = self.forward(layout.batch(self.pages.keys.device), self.pages)
        walking = walks
        while walking:
            tokens = self.choose(logits, [walk.ask() for walk in walking])
            walking = [
                walk for walk, token in zip(walking, tokens, strict=True) if walk.advance(token)
            ]
        move_slots(
            self.pages, [move for walk in walks for move in walk.moves(self.pages.block_size)]
        )
        return _logprobs(logits, walks)


def _logprobs(logits: Tensor, walks: list[Walk]) -> dict[int, list[TokenLogprob]]:
    """Return the log-probabilities of the rows that want them, all computed at once."""
    asked = [(walk.row.sequence_id, walk.asked_logprobs()) for walk in walks]
    found = iter(logprobs(logits, [one for _, wanted in asked for one in wanted]))
    return {sequence_id: [next(found) for _ in wanted] for sequence_id, wanted in asked if wanted}


def _decision(walk: Walk | BadRow, found: dict[int, list[TokenLogprob]]) -> Decision:
    if isinstance(walk, BadRow):
        return Decision(error=str(walk))
    reported = tuple(found.get(walk.row.sequence_id, ()))
    return Decision(tuple(walk.tokens), tuple(walk.path), reported)
