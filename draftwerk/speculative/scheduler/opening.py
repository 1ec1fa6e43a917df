"""Opening: the sequences of a request whose prompt is in tokens."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf

from msgspec.structs import replace

from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.prefix import BlockNamer
from draftwerk.speculative.beams.decisions import BeamRules
from draftwerk.speculative.beams.root import search_root
from draftwerk.speculative.beams.sampled import new_beams
from draftwerk.speculative.beams.search import SEARCH_ROOM, BeamSearch
from draftwerk.speculative.blend.blending import Blending, blended
from draftwerk.speculative.blend.rules import canonical_parts
from draftwerk.speculative.requests.read_sequence import ReadSequence
from draftwerk.speculative.requests.request import EncodedRequest, Options
from draftwerk.speculative.requests.sequence import Sequence
from draftwerk.speculative.requests.sequence_request import SequenceRequest
from draftwerk.speculative.requests.slo import Deadlines
from draftwerk.speculative.scheduler.scheduler import RoundLimits


@dataclass(slots=True)
class Opener:
    """Opens sequences, and numbers them."""

    pools: CachePools
    namer: BlockNamer
    limits: RoundLimits
    stop_token_ids: tuple[int, ...]
    """The model's own, which end every text that does not ignore them."""
    context_max: int
    """Prompt and generated tokens at most."""
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    def open(self, request: EncodedRequest, now_s: float) -> list[Sequence]:
        """Return the sequences of a request: one for each choice that has not ended, or the root
        of its beam search."""
        options = request.options
        if options.beam_width > 1:
            return [self._search(request, now_s)]
        choices = (choice for choice in range(options.choices) if choice not in request.ended)
        return led(self._sequence(request, choice, now_s) for choice in choices)

    def _search(self, request: EncodedRequest, now_s: float) -> Sequence:
        """Return the one sequence that all branches of a beam search will come from."""
        root = self._sequence(request, 0, now_s, SEARCH_ROOM)
        del root.tokens[len(request.tokens) :]  # sent before a crash; the search finds them again
        return search_root(root, self._beam_search(request, root.request))

    def _beam_search(self, request: EncodedRequest, root: SequenceRequest) -> BeamSearch:
        """Return a search at its beginning; it sends only what the client has not been sent."""
        options, sampling = request.options, root.sampling
        rules = BeamRules(
            width=options.beam_width,
            tokens_max=root.tokens_max,
            stop_token_ids=sampling.stop_token_ids,
            length_penalty=options.length_penalty,
            early_stopping=options.early_stopping,
            seed=sampling.seed if sampling.temperature > 0.0 else None,
            prompt_count=root.prompt_count,
        )
        sent = len(request.committed[0]) if request.committed else 0
        return BeamSearch(
            new_beams(rules),
            lambda: next(self._ids),
            options.choices,
            sent,
            options.shows_hypotheses,
        )

    def _sequence(
        self, request: EncodedRequest, choice: int, now_s: float, draft_factor: int = 1
    ) -> Sequence:
        committed = request.committed[choice] if request.committed else ()
        memory, blending = self._memory(request)
        kind = Sequence if request.options.reading is None else ReadSequence
        return kind(
            sequence_id=next(self._ids),
            request=self._request(request, choice, draft_factor),
            tokens=[*request.tokens, *request.options.written.tokens, *committed],
            memory=memory,
            blending=blending,
            scored=request.options.scored_from,
            deadlines=self._deadlines(request, now_s),
        )

    def _request(self, request: EncodedRequest, choice: int, draft_factor: int) -> SequenceRequest:
        """Return what is asked of one choice; drafts may be `draft_factor` times as long."""
        options = request.options
        ends = () if options.ignore_eos else self.stop_token_ids
        room = self.context_max - len(request.tokens)
        drafted = draft_max(request, draft_factor * self.limits.draft_max)
        return SequenceRequest(
            request_id=request.request_id,
            choice=choice,
            prompt_count=len(request.tokens),
            written_count=len(options.written.tokens),
            sampling=replace(
                options.sampling,
                branch=options.first_choice + choice,
                stop_token_ids=(*ends, *options.stop_token_ids),
            ),
            tokens_max=_tokens_max(options, room),
            draft_max=drafted,
            priority=options.priority,
            # Without a draft no source is asked, and the draft head does not run.
            methods=options.speculation.methods if drafted else (),
            name_space=options.name_space,
            prediction=request.prediction,
            given=options.given,
            adapter=options.adapter,
            prompt_logprobs=options.prompt_logprobs,
            reading=options.reading,
            had_tokens=any(request.committed) or bool(request.ended),
            resumed=bool(request.committed),
        )

    def _deadlines(self, request: EncodedRequest, now_s: float) -> Deadlines:
        options = request.options
        came_s = now_s if request.arrived_s is None else request.arrived_s
        arrived_s = came_s - options.waited_s
        return Deadlines(
            arrived_s=arrived_s,
            promise=self.limits.promise if options.promise is None else options.promise,
            expires_s=arrived_s + (options.deadline_s or inf),
            times=request.times,
        )

    def _memory(self, request: EncodedRequest) -> tuple[SequenceMemory, Blending | None]:
        """Return a sequence's memory, which is empty, and what its segments need."""
        options, tokens, blend = request.options, request.tokens, request.blend
        width = options.beam_width
        memory = partial(self.pools.memory, self.namer, options.name_space)
        own = partial(memory, len(tokens), state_slots=2 * width if width > 1 else 0)
        size = self.pools.blocks.block_size
        parts = () if blend is None else canonical_parts(blend, len(tokens), size)
        if blend is None or not parts:
            return own(), None
        return own(blended(blend, tokens, parts)), Blending(blend, parts, memory)


def _tokens_max(options: Options, room: int) -> int:
    """Return how many tokens a text may have at most, where the context has room for so many."""
    if options.reading is not None:
        return 0
    written = len(options.written.tokens)
    return room if options.tokens_max is None else min(room, written + options.tokens_max)


def draft_max(request: EncodedRequest, server_max: int) -> int:
    """Return how many tokens a round may draft for this request."""
    speculation = request.options.speculation
    if request.options.given:
        return len(request.options.given)
    if request.options.reading is not None or not speculation.enabled:
        return 0
    return server_max if speculation.draft_max is None else min(server_max, speculation.draft_max)


def led(sequences: Iterable[Sequence]) -> list[Sequence]:
    """Make the first of a request's choices the leader of the others: it scores the prompt."""
    leader, *others = sequences
    for other in others:
        other.leader = leader
        other.scored = other.request.prompt_count
    return [leader, *others]
