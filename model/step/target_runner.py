"""One device step of the target model: a proposal in, a verdict out, plain data both."""

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter

from torch import Tensor

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.draft_head.tree import BEST, Start
from draftwerk.model.native.gumbel import fastest
from draftwerk.model.reference.sampler import TopTokens
from draftwerk.model.step.backend import LoadedModel
from draftwerk.model.step.presampled import RoundRequests
from draftwerk.model.step.sequences import BadRow, CachedSequences
from draftwerk.model.step.tree_walk import RowVerification
from draftwerk.model.step.validation import check_row
from draftwerk.model.step.verify import Rule, keyed
from draftwerk.speculative.beams.survivors import UnexpandedSurvivor, unexpanded_survivors
from draftwerk.speculative.protocol.rounds import (
    Decision,
    Draft,
    HeadCandidates,
    Proposal,
    Row,
    Verdict,
)
from draftwerk.speculative.sources.sequence_noise import SequenceNoise


class TargetRunner:
    """The target model on its device, and the sequences it knows."""

    def __init__(
        self,
        parts: LoadedModel,
        successor_count: int = 0,
        clock: Callable[[], float] = perf_counter,
        rule: Rule = keyed,
    ) -> None:
        """`successor_count` best next tokens are reported of every node that is computed."""
        self.rule = rule
        self.parts = parts
        self.pages, self.vocab_size = parts.pages, parts.vocab_size
        self.backend = parts.backend
        self.successor_count = successor_count
        self.clock = clock
        self.cached_sequences = CachedSequences(parts.grammars)

    def step(self, proposal: Proposal) -> Verdict:
        """Compute one round; a row that cannot be computed fails alone."""
        begun = self.clock()
        round_ = proposal.round
        self.cached_sequences.begin(round_)
        builder = BatchBuilder(self.pages.block_size)
        walks = [
            self._open(builder, row, draft)
            for row, draft in zip(round_.rows, proposal.drafts, strict=True)
        ]
        self.backend.copy_blocks(self.pages, round_.copies)
        self.backend.move_slots(self.pages, round_.moves)
        sampling = [
            walk for walk in walks if isinstance(walk, RowVerification) and walk.row.samples
        ]
        whole = self._compute(builder, sampling)
        computed = self.clock()
        self._guess([walk for walk in whole if walk.wants_topk])
        self._draft_for_beams([walk for walk in whole if walk.row.branch and walk.draft.wants_topk])
        return Verdict(
            round_.round_id,
            round_.pipeline_slot,
            tuple(_decision(walk) for walk in walks),
            (computed - begun) * 1e3,
            len(builder.tokens),
            (self.clock() - computed) * 1e3,
        )

    def _open(self, builder: BatchBuilder, row: Row, draft: Draft) -> RowVerification | BadRow:
        """Take in a row and lay it out, or say what is wrong with it."""
        try:
            sequence = self.cached_sequences.read(row)
            check_row(row, draft, sequence, self.pages, self.vocab_size)
        except BadRow as error:
            return error
        known = sequence.tokens[row.start : row.stop]
        first = builder.add(known, row.start, row.blocks, draft, row.samples)
        return RowVerification(row, sequence, draft, first)

    def _compute(
        self, builder: BatchBuilder, walks: list[RowVerification]
    ) -> list[RowVerification]:
        """Run the model and walk every sampling row; return those that came through."""
        if not builder.tokens:
            return []
        logits = self.parts.run(builder)
        presampled = self.backend.presample(logits, self._round_requests(walks))
        for walk in walks:
            walk.mark(presampled)
        self.rule(self.backend, logits, [walk for walk in walks if walk.row.branch is None])
        moves = [move for walk in walks for move in walk.moves(self.pages.block_size)]
        self.backend.move_slots(self.pages, moves)
        whole = [walk for walk in walks if not walk.error]
        self._report(logits, whole, presampled.best)
        return whole

    def _round_requests(self, walks: list[RowVerification]) -> RoundRequests:
        requests = (request for walk in walks for request in walk.presample_requests())
        trees = (walk.tree(self.pages.block_size) for walk in walks)
        return RoundRequests(requests, self._topk_rows(walks), self.successor_count, trees)

    def _topk_rows(self, walks: list[RowVerification]) -> Iterator[int]:
        """Yield the rows of logits whose best tokens are to be reported."""
        wants_topk = (walk for walk in walks if self.successor_count and walk.wants_topk)
        return (row for walk in wants_topk for row in walk.logits_rows())

    def _report(
        self, logits: Tensor, walks: list[RowVerification], known: Mapping[int, TopTokens]
    ) -> None:
        """Add what is asked for beside the tokens: all rows at once, or nothing."""
        for walk in walks:
            if walk.row.draft_max:
                walk.look_ahead()
        asked = [walk.asked_logprobs() for walk in walks]
        if any(asked):
            found = iter(self.backend.logprobs(logits, [one for wanted in asked for one in wanted]))
            for walk, wanted in zip(walks, asked, strict=True):
                walk.logprobs = tuple(next(found) for _ in wanted)
        branches = [walk for walk in walks if walk.row.branch is not None]
        offering = [walk.candidate_requests() for walk in branches]
        requests = [one for asked in offering for one in asked if one is not None]
        candidates = iter(self.backend.candidates(logits, requests))
        for walk, asked in zip(branches, offering, strict=True):
            walk.candidates = tuple(() if one is None else next(candidates) for one in asked)
        rows = list(self._topk_rows(walks))
        if not rows:
            return
        if not known:
            known = dict(
                zip(rows, self.backend.top_tokens(logits[rows], self.successor_count), strict=True)
            )
        for walk in walks:
            if walk.wants_topk:
                walk.topk = walk.named(known)

    def _guess(self, walks: list[RowVerification]) -> None:
        """Run the draft head from each row's last committed token and store its draft tree."""
        head = self.parts.draft_head
        for walk in walks:
            if walk.goes_on:
                walk.head_tree = walk.presampled.head_tree.get(walk.first, ())
        going = [walk for walk in walks if walk.goes_on and not walk.head_tree]
        if head is None or not going:
            return
        states = head.states
        noise = fastest()
        starts = [
            Start(
                states[walk.current_row],
                walk.tokens[-1],
                walk.row.stop + len(walk.tokens),
                SequenceNoise(walk.sequence.sampling, noise),
            )
            for walk in going
        ]
        for walk, head_tree in zip(going, head.step.grow(starts), strict=True):
            walk.head_tree = head_tree

    def _draft_for_beams(self, walks: list[RowVerification]) -> None:
        """Run the draft head where beam searches probably continue, and store its candidates."""
        head = self.parts.draft_head
        if head is None:
            return
        positions: list[tuple[RowVerification, UnexpandedSurvivor, int]] = []
        for branches in _searches(walks):
            row = branches[0].row
            assert row.branch is not None
            stops = branches[0].sequence.sampling.stop_token_ids
            for survivor in unexpanded_survivors(
                [walk.verified_branch() for walk in branches], row.branch.width, stops
            ):
                here = branches[survivor.row].logits_row(survivor.node)
                if here is not None:
                    positions.append((branches[survivor.row], survivor, here))
        if not positions:
            return
        rows, said = (
            [row for *_, row in positions],
            [survivor.token for _, survivor, _ in positions],
        )
        _, tokens, logprobs = head.step(head.states[rows], said, BEST)
        for (walk, survivor, _), *candidates in zip(positions, tokens, logprobs, strict=True):
            offered = tuple(zip(*candidates, strict=True))
            walk.head_candidates.append(HeadCandidates(survivor.node, survivor.token, offered))


def _searches(walks: list[RowVerification]) -> Iterator[list[RowVerification]]:
    """Yield the branches of each search."""
    found: dict[int, list[RowVerification]] = {}
    for walk in walks:
        assert walk.row.branch is not None
        found.setdefault(walk.row.branch.group_id, []).append(walk)
    yield from found.values()


def _decision(walk: RowVerification | BadRow) -> Decision:
    if isinstance(walk, BadRow):
        return Decision(error=str(walk))
    if walk.error:
        return Decision(error=walk.error)
    return Decision(
        tuple(walk.tokens),
        tuple(walk.path),
        walk.logprobs,
        topk=walk.topk,
        candidates=walk.candidates,
        jump_forward=walk.jump_forward,
        head_tree=walk.head_tree,
        head_candidates=tuple(walk.head_candidates),
    )
