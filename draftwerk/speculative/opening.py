"""The sequences of a request whose prompt is in tokens."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import BlockNamer, NameSalt
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.load.size_limits import MemorySizes, RoundLimits
from draftwerk.speculative.request import EncodedRequest, SequenceRequest
from draftwerk.speculative.requests.times import SequenceTimes
from draftwerk.speculative.scheduler import PolicyFactory
from draftwerk.speculative.sequence import Sequence

Extension = Callable[["SequenceFactory", EncodedRequest, Sequence], Sequence]
"""An option: returns the text extended by it, or as it is where the request does not ask for it."""


@dataclass(slots=True)
class SequenceFactory:
    """Makes sequences, and numbers them."""

    pools: CachePools
    namer: BlockNamer
    limits: RoundLimits
    stop_token_ids: tuple[int, ...]
    """The model's own, which end every text that does not ignore them."""
    context_max: int
    """Prompt and generated tokens at most."""
    extensions: tuple[Extension, ...] = ()
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    def new_id(self) -> int:
        """Return a number that no other sequence has."""
        return next(self._ids)

    def open(self, request: EncodedRequest, now_s: float) -> list[Sequence]:
        """Return the sequences of a request; the first reads the prompt for all."""
        opened: list[Sequence] = []
        for choice in request.texts:
            text = self._text(request, choice, now_s)
            text.leader = opened[0] if opened else None
            # One after another: a text with several options is extended by each, on top of the
            # others.
            for extension in self.extensions:
                text = extension(self, request, text)
            opened.append(text)
        return opened

    def memory(
        self, request: EncodedRequest, salt: NameSalt | None = None, slots_min: int = 0
    ) -> SequenceMemory:
        """Return the memory of a sequence, which is empty."""
        name_space, count = request.options.name_space, len(request.tokens)
        return self.pools.memory(self.namer, name_space, count, salt, slots_min)

    def _text(self, request: EncodedRequest, choice: int, now_s: float) -> Sequence:
        committed = request.committed[choice] if request.committed else ()
        # Its time runs from when the reader began to wait, elsewhere perhaps.
        came_s = now_s if request.arrived_s is None else request.arrived_s
        return Sequence(
            sequence_id=self.new_id(),
            request=self._request(request, choice),
            tokens=[*request.tokens, *request.options.written.tokens, *committed],
            memory=self.memory(request),
            times=SequenceTimes(came_s - request.options.waited_s, request.times),
        )

    def _request(self, request: EncodedRequest, choice: int) -> SequenceRequest:
        """Return what is asked of one choice."""
        options = request.options
        ends = () if options.ignore_eos else self.stop_token_ids
        room = self.context_max - len(request.tokens)
        drafted = draft_max(request, self.limits.draft_max)
        written = len(options.written.tokens)
        return SequenceRequest(
            request_id=request.request_id,
            choice=choice,
            prompt_count=len(request.tokens),
            written_count=written,
            sampling=replace(
                options.sampling,
                # Choices differ by their noise alone, which is the same again after a crash.
                branch=options.first_choice + choice,
                stop_token_ids=(*ends, *options.stop_token_ids),
            ),
            tokens_max=room
            if options.tokens_max is None
            else min(room, written + options.tokens_max),
            draft_max=drafted,
            priority=options.priority,
            # Without a draft no source is asked, and the draft head does not run.
            methods=options.speculation.methods if drafted else (),
            name_space=options.name_space,
            prediction=request.prediction,
            adapter=options.adapter,
            had_tokens=any(request.committed) or bool(request.ended),
            resumed=bool(request.committed),
        )


def draft_max(request: EncodedRequest, server_max: int) -> int:
    """Return how many tokens a round may draft for this request."""
    speculation = request.options.speculation
    if not speculation.enabled:
        return 0
    return server_max if speculation.draft_max is None else min(server_max, speculation.draft_max)


RequestCheck = Callable[[EncodedRequest, int, MemorySizes], tuple[str, str] | None]
"""Returns why a request that may generate so many tokens cannot be served, and the field to blame;
None if an option has nothing against it."""


@dataclass(slots=True, frozen=True, kw_only=True)
class OptionSet:
    """The options that an engine has."""

    extensions: Callable[[StepCost, RoundLimits], tuple[Extension, ...]]
    """Options that extend a text, where its request asks for them."""
    checks: tuple[RequestCheck, ...]
    """Options that refuse requests before these are queued."""
    policy: Callable[[], PolicyFactory]
    """Returns the policy of all schedulers of an engine, one after another."""
