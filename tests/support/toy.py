"""A toy model whose state is in real pages: it sees only what the block tables lead it to.

Its logits are a hash of the last tokens, so a wrong block, slot, copy or path is a wrong text.
"""

import itertools
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp, log

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.options.beams.decisions import BeamRules, Candidate
from draftwerk.speculative.options.beams.sampled import new_beams, path_key
from draftwerk.speculative.options.blend.rules import canonical_parts, choose_positions
from draftwerk.speculative.protocol.journal import MoveJournal
from draftwerk.speculative.replies.half_written import ReplyPiece
from draftwerk.speculative.requests.client_prompts import ChatMessage, Variable
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.requests.pooling import PoolingOutput, PoolingParams
from draftwerk.speculative.rounds import Decision, Draft, Proposal, Row, Verdict
from draftwerk.speculative.row_parts.beam_rows import HeadCandidates
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.decision_options import DecisionOptions
from draftwerk.speculative.row_parts.feedback import LOSS_NATS, Feedback, HeadNode, TokenTopK
from draftwerk.speculative.row_parts.row_blend import RowBlend, SegmentCopy, SegmentRead
from draftwerk.speculative.row_parts.state_sums import LONG
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.sampling import (
    Grammar,
    Sampling,
    choose,
    edited,
    gumbel,
    philox,
)
from tests.support.beams.naive_beams import Text, best_candidates, naive_beam_search
from tests.support.distributions import probabilities

VOCAB = 23
STOP = 0
POISON = (VOCAB - 1,) * 3
"""How a prompt begins that the toy cannot compute."""


def logits(context: Sequence[int]) -> list[float]:
    """Return the toy's logits after a context: fixed, uneven, and sensitive to five tokens."""
    state = len(context)
    for token in context[-5:]:
        state = (state * 31 + token + 7) * 2654435761 % 2**32
    row: list[float] = []
    for _ in range(VOCAB):
        state = (state * 1664525 + 1013904223) % 2**32
        row.append(state / 2**29)
    row[STOP] -= 3.0
    return row


def allowed(output: Sequence[int], sampling: Sampling) -> Sequence[int] | None:
    """Return the tokens that the toy's one grammar allows: even, then a forced one, then odd."""
    if sampling.grammar is None:
        return None
    turn = len(output) % 3
    if turn == 1:
        return (1 + output[-1] * 7 % (VOCAB - 1),)
    return range(STOP if turn == 0 else 1, VOCAB, 2)


def jump_forward(output: Sequence[int], sampling: Sampling) -> tuple[int, ...]:
    """Return the tokens about which the grammar leaves no choice."""
    tokens = list(output)
    while (choices := allowed(tokens, sampling)) is not None and len(choices) == 1:
        tokens += choices
    return tuple(tokens[len(output) :])


def next_token(context: Sequence[int], prompt_count: int, sampling: Sampling) -> int:
    """Return the seeded toy's token at position len(context)."""
    return _next_token(tuple(context), prompt_count, sampling)


@lru_cache(maxsize=1 << 16)  # one text is decoded plainly, drafted and verified
def _next_token(context: tuple[int, ...], prompt_count: int, sampling: Sampling) -> int:
    output = context[prompt_count:]
    choices = allowed(output, sampling)
    scores = edited(logits(context), context[:prompt_count], output, sampling, choices)
    return choose(scores, len(context), sampling)


def forget() -> None:
    """Drop what was computed before the product is changed under a test, or changed back."""
    _next_token.cache_clear()
    philox.cache_clear()


def plain_text(prompt: Sequence[int], sampling: Sampling, tokens_max: int) -> list[int]:
    """Return what a request must get: one token at a time, no engine at all."""
    context = list(prompt)
    while len(context) - len(prompt) < tokens_max:
        context.append(next_token(context, len(prompt), sampling))
        if context[-1] in sampling.stop_token_ids:
            break
    return context[len(prompt) :]


def log_distribution(context: Sequence[int], prompt_count: int, sampling: Sampling) -> list[float]:
    """Return the toy's log-probabilities after a context, penalties and bias applied to them."""
    row = logits(context)
    total = log(sum(map(exp, row)))
    prompt, output = context[:prompt_count], context[prompt_count:]
    return edited([score - total for score in row], prompt, output, sampling)


def sampled_distribution(
    context: Sequence[int], prompt_count: int, sampling: Sampling
) -> dict[int, float]:
    """Return the log-probabilities that the seeded toy samples from, by token."""
    scores = edited(logits(context), context[:prompt_count], context[prompt_count:], sampling)
    return {token: log(each) for token, each in probabilities(scores, sampling).items()}


def plain_beams(
    prompt: Sequence[int], sampling: Sampling, rules: BeamRules
) -> list[tuple[Text, float]]:
    """Return what a beam search must find: no engine at all.

    At temperature 0 by the naive search; above, by one that is offered every token.
    """
    if rules.seed is not None:
        beams = new_beams(rules)
        while not beams.done:
            contexts = [[*prompt, *each.tokens] for each in beams.live]
            distributions = [sampled_distribution(each, len(prompt), sampling) for each in contexts]
            beams.step([tuple(distribution.items()) for distribution in distributions])
        return [(each.tokens, each.score) for each in beams.finished]
    return naive_beam_search(
        lambda text: log_distribution([*prompt, *text], len(prompt), sampling), rules
    )


def state(context: Sequence[int]) -> int:
    """Return the toy's hidden state after a context: one number, in fixed point."""
    return round(1e6 * logits(context)[1])


def plain_reading(prompt: Sequence[int], pooling: PoolingParams) -> PoolingOutput:
    """Return what a prompt that is read must come to: no engine at all."""
    answers = log_distribution(prompt, len(prompt), Sampling())
    first = {"mean": 0, "last": len(prompt) - 1}.get(pooling.pooling or "", len(prompt))
    states = [state(prompt[: stop + 1]) for stop in range(first, len(prompt))]
    return PoolingOutput(
        array(LONG, [sum(states)]).tobytes() if states else b"",
        tuple(answers[token] for token in pooling.answers),
    )


def _read(row: Row, context: list[int]) -> Decision:
    """Return the report of a row that pools or weighs answers."""
    if row.options.pools:
        total = sum(state(context[: at + 1]) for at in range(*row.options.scored))
        return Decision(options=DecisionOptions(state_sum=array(LONG, [total]).tobytes()))
    assert row.stop == row.options.scored[1] == row.options.scored[0] + 1, (
        "answers to the beginning of a prompt"
    )
    distribution = log_distribution(context, len(context), Sampling())
    found = tuple(ChosenLogprob(distribution[token]) for token in row.options.answers)
    return Decision(options=DecisionOptions(prompt_logprobs=found))


def _head_tree(context: list[int], prompt_count: int, sampling: Sampling) -> Iterator[HeadNode]:
    """Guess three tokens ahead, and be wrong first at every third place."""
    text = list(context)
    for level in range(3):
        if text[-1] in sampling.stop_token_ids:
            return
        right = next_token(text, prompt_count, sampling)
        best = (right, (right + 1) % VOCAB)
        yield HeadNode(level - 1, text[-1], best if len(text) % 3 else best[::-1], (8, 24))
        text.append(right)


def head_candidates(context: Sequence[int]) -> tuple[Candidate, ...]:
    """Return the toy's head candidates for a text: arbitrary, but a function of that text alone."""
    return ((sum(context) % VOCAB, -1.0), (len(context) % VOCAB, -2.0))


Cell = tuple[int, int]
"""A token, and a hash of all that it saw."""


def origin(adapter: str) -> Cell:
    """Return what the first token of a text sees: whose weights it is computed with."""
    return -1, sum(map(ord, adapter))


def chained(tokens: Sequence[int], start: int, before: Cell = (-1, 0)) -> list[Cell]:
    """Return the cells of tokens from a position on, each computed after the one before."""
    cells: list[Cell] = []
    for position, token in enumerate(tokens, start):
        before = (token, hash((before, position)))
        cells.append(before)
    return cells


def scanned(state: Cell, token: int) -> Cell:
    """Return the state behind one more token."""
    return state[0] + 1, hash((state, token))


def rotated(cell: Cell, turn: int) -> Cell:
    """Return a cell whose keys were rotated."""
    return cell[0], hash((cell[1], "turned", turn)) if turn else cell[1]


def probed(cell: Cell) -> Cell:
    """Return a cell whose lowest layers were computed anew."""
    return cell[0], hash((cell[1], "probed"))


def deviation(tokens: Sequence[int], position: int) -> float:
    """Return how far the copy of a token is from what is computed: any function of the text."""
    return float(hash(tuple(tokens[: position + 1])) % 97)


def cells_of(
    tokens: Sequence[int],
    prompt_count: int,
    blend: Blend | None,
    block_size: int,
    adapter: str = "",
) -> list[Cell]:
    """Return all cells of a text by the definition of its blend, without engine or cache."""
    parts = () if blend is None else canonical_parts(blend, prompt_count, block_size)
    kept: dict[int, Cell] = {}
    for part in parts:
        assert blend is not None
        read = chained(part.text(tokens), 0)[part.beginning :]
        for place, cell in enumerate(read, part.start):
            moved = rotated(cell, part.turn)
            kept[place] = probed(moved) if blend.probes else moved
    if blend is not None:
        deviations = [deviation(tokens, place) for place in kept]
        for place in choose_positions(blend, parts, deviations):
            del kept[place]
    cells: list[Cell] = []
    for place, token in enumerate(tokens):
        before = cells[-1] if cells else origin(adapter)
        cells.append(kept.get(place) or (token, hash((before, place))))
    return cells


class KilledError(Exception):
    """The process ends here, in the middle of a round."""


@dataclass
class ToyTarget:
    """The target's side of a device step, over `block_count` blocks of token-sized KV."""

    block_count: int
    block_size: int
    histories: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    openings: dict[int, tuple[int, Sampling]] = field(
        default_factory=dict[int, tuple[int, Sampling]]
    )
    adapters: dict[int, str] = field(default_factory=dict[int, str])
    """Those that sequences are computed with, by their ids."""
    asked: dict[int, str] = field(default_factory=dict[int, str])
    """Those that requests have asked for, by their seeds."""
    steps: int = 0
    deviations: dict[int, tuple[float, ...]] = field(default_factory=dict[int, tuple[float, ...]])
    pages: list[Cell] = field(default_factory=list[Cell])
    """As in real KV, a slot's content depends on its token and on all that the token saw."""
    journal: MoveJournal = field(default_factory=MoveJournal)
    blends: dict[int, Blend] = field(default_factory=dict[int, Blend])
    """What is declared of the prompts of some requests, by their seeds."""
    states: list[Cell] = field(default_factory=list[Cell])
    """Slots of recurrent states: a position, and a hash of all tokens before it."""
    window: int = 0
    """Positions that tokens see in layers with blocks of their own, which hold the same cells."""
    window_count: int = 0
    """Of those blocks."""
    dies_after: int | None = None
    """Writes to the pages that are left to it; None means all."""

    def __post_init__(self) -> None:
        if not self.pages:
            blocks = self.block_count + self.window_count
            self.pages.extend([(-1, 0)] * (blocks * self.block_size))

    def known_counts(self) -> dict[int, int]:
        """Return how many tokens it knows of each sequence."""
        return {sequence_id: len(tokens) for sequence_id, tokens in self.histories.items()}

    def step(self, proposal: Proposal) -> Verdict:
        """Verify a proposal the way a real model does, except for the arithmetic."""
        self.steps += 1
        round_ = proposal.round
        self._live()
        for row in round_.rows:
            if row.options.branch is not None and row.options.branch.origin:
                assert row.sequence_id not in self.histories, "copied over a living sequence"
                self.histories[row.sequence_id] = list(self.histories[row.options.branch.origin])
                self.openings[row.sequence_id] = self.openings[row.options.branch.origin]
                self.adapters[row.sequence_id] = self.adapters[row.options.branch.origin]
        for sequence_id in round_.finished_ids:
            for known in (self.histories, self.openings, self.adapters):
                del known[sequence_id]
        self.journal.begin(round_)
        size = self.block_size
        for source, target in round_.copies:
            for offset in range(size):
                self._put(target * size + offset, self.pages[source * size + offset])
        moved = [(to, self.pages[slot]) for slot, to in round_.moves]
        for to, cell in moved:
            self._put(to, cell)
        self._live()
        self.journal.end(round_)
        for row, draft in zip(round_.rows, proposal.drafts, strict=True):
            self._write(row, draft)
        decisions = tuple(
            self._decide(row, draft)
            for row, draft in zip(round_.rows, proposal.drafts, strict=True)
        )
        tokens = sum(row.stop - row.start for row in round_.rows)
        return Verdict(
            round_id=round_.round_id,
            pipeline_slot=round_.pipeline_slot,
            decisions=decisions,
            report=StepReport(device_ms=1.0, load=StepLoad(tokens, tokens)),
        )

    def _write(self, row: Row, draft: Draft) -> None:
        if row.new_sequence is not None:
            self.histories[row.sequence_id] = list(row.new_sequence.tokens)
            self.openings[row.sequence_id] = (
                row.new_sequence.prompt_count,
                row.new_sequence.sampling,
            )
            self.adapters[row.sequence_id] = row.new_sequence.options.adapter
        history = self.histories[row.sequence_id]
        history.extend(row.new_token_ids)
        assert len(draft.tokens) <= row.draft_max, "more drafts than slots"
        is_whole, reads = row.stop == len(history), row.options.pools or bool(row.options.answers)
        assert is_whole or not row.samples, "a row must know its end"
        assert not is_whole or row.samples or reads, "a row leads to nothing"
        if row.options.blend is not None:
            self._blend(row, row.options.blend, history)
            return
        first = origin(self.adapters[row.sequence_id])
        for position in range(row.start, row.stop):
            seen = self.pages[self._slot(row, position - 1)] if position else first
            self._store(row, position, (history[position], hash((seen, position))))
        if row.options.state is not None:
            source = row.options.state.source
            state = self.states[source] if source >= 0 else (0, 0)
            assert state[0] == row.start, "a state of another position"
            self._scan(row.options.state, row.start, state, history[row.start : row.stop])
        depths = draft.depths()
        for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            before = row.stop - 1 if parent < 0 else row.stop + parent
            seen = self.pages[self._slot(row, before)]
            cell = (token, hash((seen, row.stop + depths[node])))
            self._store(row, row.stop + node, cell)

    def _scan(self, use: RowState, start: int, state: Cell, tokens: Sequence[int]) -> None:
        """Go on with a state, and keep it where it is to be kept; the row begins at `start`."""
        for token in tokens:
            state = scanned(state, token)
            for position, slot in use.saves:
                if start < position == state[0]:
                    self._live()
                    self.states[slot] = state
        self.states[use.target] = (-1, 0)  # half written
        self._live()
        self.states[use.target] = state

    def _blend(self, row: Row, blend: RowBlend, history: list[int]) -> None:
        """Copy, probe, read segments and compute some places, in this order."""
        self.deviations[row.sequence_id] = ()
        for copy in blend.copies:
            for index in range(copy.start, copy.stop):
                cell = rotated(self.pages[self._slot(copy, index)], copy.turn)
                self._put(self._slot(row, copy.to + index - copy.start), cell)
        if blend.probes:
            self.deviations[row.sequence_id] = tuple(
                self._probe(row, history, position) for position in range(row.start, row.stop)
            )
        for read in blend.reads:
            for index, token in enumerate(read.tokens(history), read.start):
                seen = self.pages[self._slot(read, index - 1)] if index else (-1, 0)
                self._put(self._slot(read, index), (token, hash((seen, index))))
        for position in blend.places:
            seen = self.pages[self._slot(row, position - 1)] if position else (-1, 0)
            self._put(self._slot(row, position), (history[position], hash((seen, position))))

    def _probe(self, row: Row, history: list[int], position: int) -> float:
        """Return how far a copied token is off, and overwrite the copy's lowest layers."""
        slot = self._slot(row, position)
        token, seen = self.pages[slot]
        is_copy = (token, seen) in {
            rotated(cell, turn) for turn, cells in self._canonical(row).items() for cell in cells
        }
        self._put(slot, probed((history[position], seen)))
        return deviation(history, position) if is_copy else 0.0

    def _canonical(self, row: Row) -> dict[int, list[Cell]]:
        """Return the cells of each part as it is read, by how far it is moved."""
        prompt_count, sampling = self.openings[row.sequence_id]
        blend, history = self.blends[sampling.seed], self.histories[row.sequence_id]
        return {
            part.turn: chained(part.text(history), 0)
            for part in canonical_parts(blend, prompt_count, self.block_size)
        }

    def _decide(self, row: Row, draft: Draft) -> Decision:
        reads = row.options.pools or bool(row.options.answers)
        if not (row.samples or reads):
            return Decision(
                options=DecisionOptions(deviations=self.deviations.pop(row.sequence_id, ()))
            )
        prompt_count, sampling = self.openings[row.sequence_id]
        prompt = self.histories[row.sequence_id][:prompt_count]
        if tuple(prompt[: len(POISON)]) == POISON:
            return Decision(error="this cannot be computed")
        cells = [self.pages[self._slot(row, position)] for position in range(row.stop)]
        context = [token for token, _ in cells]
        known = self.histories[row.sequence_id]
        assert context == known[: row.stop], "the pages hold another text"
        if self.window:
            self._check_window(row, cells)
        if reads:
            assert cells == chained(context, 0), "a token's KV was computed after another text"
            return _read(row, context)
        blend = self.blends.get(sampling.seed)
        adapter = self.asked.get(sampling.seed, "")
        expected = cells_of(context, prompt_count, blend, self.block_size, adapter)
        assert cells == expected, "a token's KV was computed after another text"
        if row.options.state is not None:
            state = (0, 0)
            for token in context:
                state = scanned(state, token)
            assert self.states[row.options.state.target] == state, "a state of another text"
        if row.options.branch is not None:
            candidates = tuple(self._offers(row, draft, context))
            return Decision(
                options=DecisionOptions(
                    candidates=candidates,
                    head_candidates=tuple(self._head_candidates(row, draft, context, candidates)),
                )
            )
        path: list[int] = []
        tokens: list[int] = []
        children = draft.children()
        while True:
            token = next_token(context, prompt_count, sampling)
            context.append(token)
            tokens.append(token)
            node = children.get((path[-1] if path else -1, token))
            if node is None or token in sampling.stop_token_ids:
                break
            path.append(node)
        kept = [self.pages[self._slot(row, row.stop + node)] for node in path]
        for depth, cell in enumerate(kept):
            self._store(row, row.stop + depth, cell)
        if row.options.state is not None:
            state = self.states[row.options.state.target]
            self._scan(row.options.state, row.start, state, [draft.tokens[node] for node in path])
        logprobs = tuple(ChosenLogprob(-0.5) for _ in tokens) if sampling.logprobs >= 0 else ()
        output = context[prompt_count:]
        if tokens[-1] in sampling.stop_token_ids:
            return Decision(tokens=tuple(tokens), path=tuple(path), logprobs=logprobs)
        ahead = jump_forward(output, sampling)
        head_tree = tuple(_head_tree(context, prompt_count, sampling)) if draft.wants_levels else ()
        return Decision(
            tokens=tuple(tokens),
            path=tuple(path),
            logprobs=logprobs,
            feedback=Feedback(jump_forward=ahead, head_tree=head_tree),
        )

    def _contexts(self, row: Row, draft: Draft, context: list[int]) -> list[list[int]]:
        """Return the texts up to the last known token and each node, as the pages have them."""
        contexts = [context]
        for node, parent in enumerate(draft.parents):
            token, _ = self.pages[self._slot(row, row.stop + node)]
            contexts.append([*contexts[parent + 1], token])
        return contexts

    def _head_candidates(
        self,
        row: Row,
        draft: Draft,
        context: list[int],
        candidates: tuple[tuple[Candidate, ...], ...],
    ) -> Iterator[HeadCandidates]:
        """Draft for every text that could be the next one and has not been computed."""
        assert row.options.branch is not None
        contexts, children = self._contexts(row, draft, context), draft.children()
        known = (row.options.branch.known,) if row.start == row.stop else ()
        for index, (text, offered) in enumerate(zip(contexts, (*known, *candidates), strict=True)):
            for token, _ in offered:
                if (index - 1, token) not in children:
                    yield HeadCandidates(index - 1, token, head_candidates([*text, token]))

    def _offers(self, row: Row, draft: Draft, context: list[int]) -> list[tuple[Candidate, ...]]:
        assert row.options.branch is not None
        prompt_count, sampling = self.openings[row.sequence_id]
        contexts = self._contexts(row, draft, context)
        if row.start == row.stop:
            del contexts[0]
        if sampling.temperature > 0.0:
            return [
                _drawn(each, prompt_count, sampling, row.options.branch.candidates)
                for each in contexts
            ]
        distributions = [log_distribution(each, prompt_count, sampling) for each in contexts]
        return [
            best_candidates(distribution, row.options.branch.candidates)
            for distribution in distributions
        ]

    def _store(self, row: Row, position: int, cell: Cell) -> None:
        """Write a cell in every group of layers."""
        self._put(self._slot(row, position), cell)
        if self.window:
            self._put(self._window_slot(row, position), cell)

    def _window_slot(self, row: Row, position: int) -> int:
        block, offset = divmod(position, self.block_size)
        assert row.options.window_blocks[block] >= self.block_count, (
            "a slot outside the window's blocks"
        )
        return row.options.window_blocks[block] * self.block_size + offset

    def _check_window(self, row: Row, cells: list[Cell]) -> None:
        """Assert that the row finds in its window what it has everywhere."""
        for position in range(max(0, row.start - self.window + 1), row.stop):
            cell = self.pages[self._window_slot(row, position)]
            assert cell == cells[position], "a window holds another text"

    def _put(self, slot: int, cell: Cell) -> None:
        self._live()
        self.pages[slot] = cell

    def _live(self) -> None:
        """Raise KilledError once the process has done what it may."""
        if self.dies_after is not None:
            if self.dies_after == 0:
                raise KilledError
            self.dies_after -= 1

    def _slot(self, row: Row | SegmentRead | SegmentCopy, position: int) -> int:
        return (
            row.blocks[position // self.block_size] * self.block_size + position % self.block_size
        )


class TalkativeTarget(ToyTarget):
    """Also returns the top-k after each token of the path."""

    def _decide(self, row: Row, draft: Draft) -> Decision:
        decision = super()._decide(row, draft)
        context = list(self.histories[row.sequence_id])
        found: list[TokenTopK] = []
        for token in decision.tokens:
            scores = logits(context)
            total = log(sum(map(exp, scores)))
            best = sorted(range(VOCAB), key=lambda t: -scores[t])[:8]
            losses = (round((total - scores[token]) / LOSS_NATS) for token in best)
            found.append(TokenTopK(context[-1], tuple(best), tuple(losses)))
            context.append(token)
        return Decision(
            tokens=decision.tokens, path=decision.path, feedback=Feedback(topk=tuple(found))
        )


def _drawn(
    context: list[int], prompt_count: int, sampling: Sampling, count: int
) -> tuple[Candidate, ...]:
    """Return the tokens that the noise puts first after a context."""
    key = path_key(context[prompt_count:])
    distribution = sampled_distribution(context, prompt_count, sampling)
    order = sorted(
        distribution,
        key=lambda token: -distribution[token] - gumbel(sampling.seed, key, len(context), token),
    )
    return tuple((token, distribution[token]) for token in order[:count])


class ToyText:
    """Tokens are words "w3 "; the template numbers the speakers."""

    vocab_size = VOCAB

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Accept any: there are no placeholders."""

    def encode_pieces(self, pieces: Sequence[ReplyPiece]) -> list[int]:
        return self.encode("".join(each.text for each in pieces))

    def check_grammar(self, grammar: Grammar, written: Sequence[int] = ()) -> None:
        """Accept any: there is only one."""

    def encode(self, text: str) -> list[int]:
        return [int(word.removeprefix("w")) for word in text.split()]

    encode_continuation = encode_following = encode

    def encode_chat(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Variable]] = (),
    ) -> list[int]:
        return [token for message in messages for token in self.encode(message.content)]

    def encode_segments(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Variable]] = (),
    ) -> tuple[list[int], list[tuple[int, int]]]:
        tokens: list[int] = []
        spans: list[tuple[int, int]] = []
        for message in messages:
            cuts = [0, *(cut for span in message.segments for cut in span), len(message.content)]
            for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
                own = self.encode(message.content[start:stop])
                if number % 2:
                    spans.append((len(tokens), len(tokens) + len(own)))
                tokens += own
        return tokens, spans

    def encode_pair(self, query: str, document: str, instruction: str = "") -> list[int]:
        return self.encode(f"{instruction} {query} {document}")

    def encode_passages(
        self, documents: Sequence[str], text: str
    ) -> tuple[list[int], list[tuple[int, int]]]:
        tokens: list[int] = []
        spans: list[tuple[int, int]] = []
        for document in documents:
            own = self.encode(document)
            spans.append((len(tokens), len(tokens) + len(own)))
            tokens += own
        return tokens + self.encode(text), spans

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        return "".join(f"w{token} " for token in tokens if token != STOP)

    def token_bytes(self, token: int) -> bytes:
        return f"w{token} ".encode()

    def stream(self, prompt: Sequence[int], shown: frozenset[int] = frozenset()) -> "ToyStream":
        return ToyStream(self)


@dataclass
class ToyStream:
    text: ToyText

    def push(self, token: int) -> str:
        return self.text.decode([token])

    def hides(self, token: int) -> bool:
        return token == STOP

    def flush(self) -> str:
        return ""
