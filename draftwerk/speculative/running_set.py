"""The sequences of requests: which hold blocks, which wait for some, and which are preempted.

waiting --admit--> running --end-->
   ^                  |
   +---- preempt -----+      (its blocks go home; the prefix index makes coming back cheap)
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import BlockNamer, NameSalt
from draftwerk.speculative.load.occupancy import Occupancy
from draftwerk.speculative.load.size_limits import RequestSizes, RoundLimits
from draftwerk.speculative.load.stats import SchedulerStats
from draftwerk.speculative.request import EncodedRequest, SequenceRequest
from draftwerk.speculative.sequence import (
    Sequence,
    awaits_leader,
    known_slots,
)

AGING_ROUNDS = 256
"""Rounds for which a sequence goes before those of the next less urgent priority."""


Extension = Callable[["SequenceFactory", EncodedRequest, Sequence], Sequence]
"""An option: returns the text extended by it, or as it is where the request does not ask for it."""

RequestCheck = Callable[[EncodedRequest, RequestSizes], None]
"""Raises RefusedError for a request that cannot be served."""


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
    new_id: Callable[[], int] = field(default_factory=lambda: count(1).__next__)
    """Returns a number that no other sequence has."""

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
        return Sequence(
            sequence_id=self.new_id(),
            request=self._request(request, choice),
            tokens=[*request.tokens, *request.options.written.tokens, *request.sent_tokens(choice)],
            memory=self.memory(request),
            times=request.sequence_times(now_s),
        )

    def _request(self, request: EncodedRequest, choice: int) -> SequenceRequest:
        """Return what is asked of a choice, within the model's context and the server's drafts."""
        options, written = request.options, len(request.options.written.tokens)
        ends = () if options.ignore_eos else self.stop_token_ids
        room, most = self.context_max - len(request.tokens), options.tokens_max
        drafted = options.speculation.limit(self.limits.draft_max)
        return SequenceRequest(
            request_id=request.request_id,
            choice=choice,
            prompt_count=len(request.tokens),
            written_count=written,
            sampling=request.sampling(choice, ends),
            tokens_max=room if most is None else min(room, written + most),
            draft_max=drafted,
            priority=options.priority,
            # Without a draft no source is asked, and the draft head does not run.
            methods=options.speculation.methods if drafted else (),
            name_space=options.name_space,
            prediction=request.prediction,
        )


class WaitingQueue(deque[Sequence]):
    """Waiting sequences in the order of their queue keys."""

    @property
    def first_ready(self) -> Sequence | None:
        """The first that waits for no other choice of its request."""
        return next((sequence for sequence in self if not awaits_leader(sequence)), None)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence behind those of its key."""
        self.insert(bisect_right(self, sequence.queue_key, key=queue_key), sequence)

    def requeue(self, sequence: Sequence) -> None:
        """Queue a sequence before those of its key, to the place that it had."""
        self.insert(bisect_left(self, sequence.queue_key, key=queue_key), sequence)

    def check(self) -> None:
        """Assert the order."""
        keys = [sequence.queue_key for sequence in self]
        assert keys == sorted(keys), "the queue is out of order"


def queue_key(sequence: Sequence) -> int:
    return sequence.queue_key


class RunningSet:
    """Every live sequence: running ones in order of admission, and the queue of waiting ones."""

    def __init__(self, pools: CachePools, stats: SchedulerStats) -> None:
        self.pools = pools
        self.pool = pools.blocks
        self.stats = stats
        self.holds_back: Callable[[Sequence], bool] = lambda _: False
        """Returns whether a sequence that enters is held back from rounds, until it is let go."""
        self.admits: Callable[[Sequence], bool] = lambda _: True
        """Returns whether one more may run, of which it knows before it enters and after."""
        self.waiting = WaitingQueue()
        self.running: OrderedDict[int, Sequence] = OrderedDict()
        self.now_s = 0.0  # of the round that is planned
        self.finished_ids: list[int] = []
        """Sequences that the devices are to forget with the next round."""
        self.occupancy = Occupancy()
        """How likely another sequence takes the place of one that ends."""
        self._refused = (0,)  # the last that found no room, and what was available then

    def submit(self, sequence: Sequence) -> None:
        """Queue a new sequence by its key."""
        sequence.turn.found = known_slots(sequence)
        self.waiting.add(sequence)

    def admit(self, sequence: Sequence) -> bool:
        """Run a sequence, which the caller takes from the queue; or leave it, if it has no room."""
        if (sequence.sequence_id, *self.pools.available()) == self._refused:
            return False  # its prefix need not be named again while nothing has become free
        if not self.admits(sequence):
            return False
        if (
            not sequence.enter()
            or not self._fits(sequence)
            # Again, now that it is in: only then what it takes is known.
            or not self.admits(sequence)
        ):
            sequence.leave()
            sequence.computed = sequence.planned = 0
            self._refused = sequence.sequence_id, *self.pools.available()
            return False
        sequence.sent_count, sequence.turn.passing = 0, False
        self.running[sequence.sequence_id] = sequence
        # What is loaded for it counts as found: then it is counted once that has come.
        sequence.held_back = self.holds_back(sequence)
        if not sequence.held_back:
            self.count_admission(sequence)
        return True

    def count_admission(self, sequence: Sequence) -> None:
        """Count a sequence that enters: its client's prompt once, in the words of usage."""
        prompt = sequence.request.prompt_count + sequence.request.written_count
        cached, reads = sequence.computed, sequence.leader is None
        self.stats.count_admission(sequence.tally, prompt, len(sequence.tokens), cached, reads)
        sequence.times.begin_device(self.now_s)
        self.occupancy.started()

    def preempt(self, sequence: Sequence) -> None:
        """Send a running sequence back to its place in the queue with its text, but no blocks."""
        self.stats.preemptions += 1
        sequence.tally.preemptions += 1
        assert not sequence.in_flight, "a round under way writes to its blocks"
        self._release(sequence)
        sequence.computed = sequence.planned = 0
        sequence.turn.found = known_slots(sequence)
        self.waiting.requeue(sequence)

    def end(self, sequence: Sequence) -> None:
        """Remove a sequence, running or waiting."""
        # A round planned behind its last one may be under way: by this its verdict is dropped.
        sequence.ended = True
        if sequence.sequence_id in self.running:
            self._release(sequence)
            self.occupancy.ended(len(self.running))
        else:
            self.waiting.remove(sequence)

    def check(self) -> None:
        """Assert every invariant: each block's holders are the tables that name it."""
        self.waiting.check()
        for sequence in self.running.values():
            assert sequence.computed <= sequence.planned <= len(sequence.tokens), (
                "more KV than tokens"
            )
            sequence.check()
        self.pools.check(
            memory
            for sequence in (*self.running.values(), *self.waiting)
            for memory in sequence.memories()
        )
        holding = (memory for sequence in self.waiting for memory in sequence.memories())
        assert not any(memory.block_count for memory in holding), "a waiting sequence holds blocks"

    def _fits(self, entered: Sequence) -> bool:
        """Return whether one that has entered, and all that run, find the blocks to take later."""
        if not self.running:
            return True
        available = self.pool.available + entered.memory.block_count
        return available >= entered.entry_blocks(self.pool) and self.pools.has_later(
            (memory, len(sequence.tokens) + 1)
            for sequence in (entered, *self.running.values())
            for memory in sequence.memories()
        )

    def preempt_last(self, asking: Sequence) -> bool:
        """Preempt the last in order that is in no round; False if there is none, or it asked."""
        victim = next(iter(self.preemptible()), None)
        if victim is not None:
            self.preempt(victim)
        return victim is not None and victim is not asking

    def preemptible(self) -> list[Sequence]:
        """Return the running sequences in no round: the last in order, and admitted, first."""
        free = [sequence for sequence in self.running.values() if not sequence.in_flight]
        # `reverse` leaves equal ones in their order, which is the last admitted first.
        return sorted(reversed(free), key=queue_key, reverse=True)

    def _release(self, sequence: Sequence) -> None:
        del self.running[sequence.sequence_id]
        sequence.held_back = False
        self.finished_ids.extend(sequence.leave())
        # Devices that never heard of a sequence have nothing to forget.
        if sequence.sent_count:
            self.finished_ids.append(sequence.sequence_id)
            sequence.sent_count = 0
