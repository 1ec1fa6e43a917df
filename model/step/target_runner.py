"""One device step of the target model: a proposal in, a verdict out, plain data both."""

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter

from torch import Tensor

from draftwerk.model.batch.builder import Layout
from draftwerk.model.draft_head.tree import BEST, Start, guesses
from draftwerk.model.native.gumbel import fastest
from draftwerk.model.reference.sampler import Ranked
from draftwerk.model.step.ops import Parts
from draftwerk.model.step.presampled import Questions
from draftwerk.model.step.sequences import BadRow, Histories
from draftwerk.model.step.tree_walk import Walk
from draftwerk.model.step.validation import check_row
from draftwerk.model.step.verify import Rule, keyed
from draftwerk.speculative.beams.frontier import Outpost, frontier
from draftwerk.speculative.protocol.rounds import Decision, Draft, Hunch, Proposal, Row, Verdict
from draftwerk.speculative.sources.sequence_noise import Key


class Runner:
    """The target model on its device, and the sequences it knows."""

    def __init__(
        self,
        parts: Parts,
        successor_count: int = 0,
        clock: Callable[[], float] = perf_counter,
        rule: Rule = keyed,
    ) -> None:
        """`successor_count` best next tokens are reported of every node that is computed."""
        self.rule = rule
        self.parts = parts
        _, self.pages, self.vocab_size, self.kit, grammars, *_ = parts
        self.successor_count = successor_count
        self.clock = clock
        self.histories = Histories(grammars)

    def step(self, proposal: Proposal) -> Verdict:
        """Compute one round; a row that cannot be computed fails alone."""
        begun = self.clock()
        round_ = proposal.round
        self.histories.begin(round_)
        layout = Layout(self.pages.block_size)
        walks = [
            self._open(layout, row, draft)
            for row, draft in zip(round_.rows, proposal.drafts, strict=True)
        ]
        self.kit.copy_blocks(self.pages, round_.copies)
        self.kit.move_slots(self.pages, round_.moves)
        sampling = [walk for walk in walks if isinstance(walk, Walk) and walk.row.samples]
        whole = self._compute(layout, sampling)
        computed = self.clock()
        self._guess([walk for walk in whole if walk.is_curious])
        self._foretell([walk for walk in whole if walk.row.branch and walk.draft.curious])
        return Verdict(
            round_.round_id,
            round_.lane,
            tuple(_decision(walk) for walk in walks),
            (computed - begun) * 1e3,
            len(layout.tokens),
            (self.clock() - computed) * 1e3,
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

    def _compute(self, layout: Layout, walks: list[Walk]) -> list[Walk]:
        """Run the model and walk every sampling row; return those that came through."""
        if not layout.tokens:
            return []
        logits = self.parts.run(layout)
        foreseen = self.kit.foresee(logits, self._questions(walks))
        for walk in walks:
            walk.mark(foreseen)
        self.rule(self.kit, logits, [walk for walk in walks if walk.row.branch is None])
        moves = [move for walk in walks for move in walk.moves(self.pages.block_size)]
        self.kit.move_slots(self.pages, moves)
        whole = [walk for walk in walks if not walk.error]
        self._report(logits, whole, foreseen.best)
        return whole

    def _questions(self, walks: list[Walk]) -> Questions:
        asks = (ask for walk in walks for ask in walk.foreseeable())
        trees = (walk.tree(self.pages.block_size) for walk in walks)
        return Questions(asks, self._curious_rows(walks), self.successor_count, trees)

    def _curious_rows(self, walks: list[Walk]) -> Iterator[int]:
        """Yield the rows of logits whose best tokens are to be reported."""
        curious = (walk for walk in walks if self.successor_count and walk.is_curious)
        return (row for walk in curious for row in walk.logits_rows())

    def _report(self, logits: Tensor, walks: list[Walk], known: Mapping[int, Ranked]) -> None:
        """Add what is asked for beside the tokens: all rows at once, or nothing."""
        for walk in walks:
            if walk.row.draft_max:
                walk.look_ahead()
        asked = [walk.asked_logprobs() for walk in walks]
        if any(asked):
            found = iter(self.kit.report(logits, [one for wanted in asked for one in wanted]))
            for walk, wanted in zip(walks, asked, strict=True):
                walk.logprobs = tuple(next(found) for _ in wanted)
        branches = [walk for walk in walks if walk.row.branch is not None]
        offering = [walk.offer_asks() for walk in branches]
        asks = [one for asked in offering for one in asked if one is not None]
        offers = iter(self.kit.offer(logits, asks))
        for walk, asked in zip(branches, offering, strict=True):
            walk.offers = tuple(() if one is None else next(offers) for one in asked)
        rows = list(self._curious_rows(walks))
        if not rows:
            return
        if not known:
            known = dict(zip(rows, self.kit.rank(logits[rows], self.successor_count), strict=True))
        for walk in walks:
            if walk.is_curious:
                walk.outlooks = walk.named(known)

    def _guess(self, walks: list[Walk]) -> None:
        """Let the draft head, if there is one, think on from where the rows stand."""
        step, states = self.parts.step, self.parts.states
        for walk in walks:
            if walk.goes_on:
                walk.thoughts = walk.foreseen.thoughts.get(walk.first, ())
        going = [walk for walk in walks if walk.goes_on and not walk.thoughts]
        if step is None or states is None or not going:
            return
        noise = fastest()
        starts = [
            Start(
                states[walk.place],
                walk.tokens[-1],
                walk.row.stop + len(walk.tokens),
                Key(walk.sequence.sampling, noise),
            )
            for walk in going
        ]
        for walk, thoughts in zip(going, guesses(step, starts), strict=True):
            walk.thoughts = thoughts

    def _foretell(self, walks: list[Walk]) -> None:
        """Let the draft head say what follows where beam searches probably go on."""
        step, states = self.parts.step, self.parts.states
        if step is None or states is None:
            return
        places: list[tuple[Walk, Outpost, int]] = []
        for branches in _searches(walks):
            row = branches[0].row
            assert row.branch is not None
            stops = branches[0].sequence.sampling.stop_token_ids
            for outpost in frontier([walk.reached() for walk in branches], row.branch.width, stops):
                here = branches[outpost.row].logits_row(outpost.node)
                if here is not None:
                    places.append((branches[outpost.row], outpost, here))
        if not places:
            return
        rows, said = [row for *_, row in places], [outpost.token for _, outpost, _ in places]
        _, tokens, logprobs = step(states[rows], said, BEST)
        for (walk, outpost, _), *offers in zip(places, tokens, logprobs, strict=True):
            offered = tuple(zip(*offers, strict=True))
            walk.hunches.append(Hunch(outpost.node, outpost.token, offered))


def _searches(walks: list[Walk]) -> Iterator[list[Walk]]:
    """Yield the branches of each search."""
    found: dict[int, list[Walk]] = {}
    for walk in walks:
        assert walk.row.branch is not None
        found.setdefault(walk.row.branch.group_id, []).append(walk)
    yield from found.values()


def _decision(walk: Walk | BadRow) -> Decision:
    if isinstance(walk, BadRow):
        return Decision(error=str(walk))
    if walk.error:
        return Decision(error=walk.error)
    return Decision(
        tuple(walk.tokens),
        tuple(walk.path),
        walk.logprobs,
        outlooks=walk.outlooks,
        offers=walk.offers,
        forced=walk.forced,
        thoughts=walk.thoughts,
        hunches=tuple(walk.hunches),
    )
