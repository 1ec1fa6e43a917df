"""A blended prompt on its way through the scheduler: which segments it holds, what comes next.

    text before    parts: read, or found --copy--> own slots --> chosen places computed again

With a rule that probes, all parts are copied and probed before the first place is chosen; else a
row copies and computes at once. What a row does depends on the prompt and on what was committed;
what comes out, on the prompt alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile

from draftwerk.cache.memory import SequenceMemory
from draftwerk.cache.tables import NameSalt
from draftwerk.speculative.options.blend.blend_step import (
    PROBE_MAX,
    BlendStep,
    PartState,
    SegmentUse,
    release,
)
from draftwerk.speculative.options.blend.rules import CanonicalPart, choose_positions
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.row_parts.row_blend import RowBlend, SegmentCopy, SegmentRead


@dataclass(slots=True)
class Blending:
    """The state of one sequence's blend; only the scheduler changes it."""

    blend: Blend
    parts: tuple[CanonicalPart, ...]
    new_memory: Callable[[], SequenceMemory]
    """Makes the memory of a part."""
    states: list[PartState] = field(init=False)
    probed: int = field(init=False)
    """Slots below it are copied and probed."""
    chosen: frozenset[int] | None = field(init=False)
    """Places computed again, once that is known."""
    deviations: list[float] = field(init=False)
    repaired: int = 0
    """How many canonical tokens are computed again."""
    is_found: bool = False
    """Whether the whole blend was found in the prefix cache."""
    found: int = 0
    """Canonical tokens that were found in the pool, over all admissions."""
    found_first: dict[int, int] = field(default_factory=dict[int, int])
    """The tokens of each part that were found, by where it begins, when it was first looked for."""
    _uses: tuple[SegmentUse, ...] = ()

    def __post_init__(self) -> None:
        self.states = []
        self.reset()

    @property
    def start(self) -> int:
        return self.parts[0].start

    @property
    def stop(self) -> int:
        return self.parts[-1].stop

    def reset(self) -> None:
        """Give back what the parts hold, and begin again."""
        for state in self.states:
            release(state)
        self.states = [PartState(part) for part in self.parts]
        self.probed, self.deviations = self.start, []
        self.chosen = None if self.blend.probes else choose_positions(self.blend, self.parts)
        self.repaired = repaired_count(self.blend, self.parts)

    def begin(self, memory: SequenceMemory, found: int) -> int:
        """Keep what was found of the sequence itself: all of the blend, or only what is before."""
        self.reset()
        self.is_found = found >= self.stop
        if self.is_found:
            self.found_first = {p.start: p.length for p in self.parts} | self.found_first
        if not self.is_found:
            found = min(found, self.start // memory.block_size * memory.block_size)
            memory.truncate(found)
        return found

    @property
    def room(self) -> int:
        """Tokens that must find room beside the sequence itself: those of its largest part."""
        return 0 if self.is_found else max(part.slots for part in self.parts)

    def covers(self, computed: int) -> bool:
        """Whether the next row is one of the blend's."""
        return self.start <= computed < self.stop

    def memories(self) -> list[SequenceMemory]:
        return [state.memory for state in self.states if state.memory is not None]

    # --- planning -----------------------------------------------------------------------------

    def step(
        self, tokens: Sequence[int], computed: int, end: int, tokens_left: int
    ) -> BlendStep | None:
        """Return what the next row does, None if blocks for the next part cannot be had.

        `end` is where the sequence's own reading ends. Parts that are in the pool already, or find
        room, are held from now on.
        """
        self._open_all(tokens)
        if self.chosen is None:
            start = self.probed
            stop = min(self._ready_until(start), start + PROBE_MAX)
            copies = self._copies(start, stop)
            row = RowBlend(copies=copies, probes=True)
            places: list[int] = []
        else:
            start = computed
            until = end if self.blend.probes else self._ready_until(start)
            places, stop = self._places(start, until if until < self.stop else end, tokens_left)
            copies = () if self.blend.probes else self._copies(start, stop)
            row = RowBlend(copies=copies, places=tuple(places))
        reads = self._reads(tokens_left - len(places))
        if start == stop and not reads:
            return None
        cost = len(places) + sum(read.stop - read.start for read in reads)
        return BlendStep(start, stop, RowBlend(row.copies, row.probes, reads, row.places), cost)

    def _open_all(self, tokens: Sequence[int]) -> None:
        """Hold the memories of parts, as far as there are blocks."""
        list(takewhile(lambda state: self._open(state, tokens), self._unread()))

    def _ready_until(self, start: int) -> int:
        """Return the place before which every part is read, from `start` on."""
        missing = next((s for s in self.states if not s.ready and s.part.stop > start), None)
        return self.stop if missing is None else missing.part.start

    def _places(self, start: int, end: int, tokens_left: int) -> tuple[list[int], int]:
        """Return the next places to compute, and the one behind all that need not wait."""
        assert self.chosen is not None
        places: list[int] = []
        for place in range(start, end):
            if self._is_kept(place):
                continue
            if len(places) == tokens_left:
                return places, place
            places.append(place)
        return places, end

    def _is_kept(self, place: int) -> bool:
        assert self.chosen is not None
        return place not in self.chosen and any(p.start <= place < p.stop for p in self.parts)

    def _copies(self, start: int, stop: int) -> tuple[SegmentCopy, ...]:
        """Return the copies that fill start .. stop."""
        copies: list[SegmentCopy] = []
        for state in self.states:
            part = state.part
            first, last = max(start, part.start), min(stop, part.stop)
            if first < last:
                assert state.memory is not None and state.ready
                blocks, turn = tuple(state.memory.table.blocks), part.turn
                copies.append(SegmentCopy(blocks, first - turn, last - turn, first, turn))
        return tuple(copies)

    def _reads(self, tokens_left: int) -> tuple[SegmentRead, ...]:
        """Return the next tokens of parts to be read, as far as blocks can be had."""
        reads: list[SegmentRead] = []
        for state in self._unread():
            if tokens_left <= 0 or state.memory is None:
                break
            part = state.part
            count = min(tokens_left, part.slots - state.read)
            if count:
                blocks = tuple(state.memory.table.blocks)
                stop = state.read + count
                reads.append(SegmentRead(part.start, state.read, stop, blocks, part.beginning))
                tokens_left -= count
        return tuple(reads)

    def _unread(self) -> list[PartState]:
        return [state for state in self.states if not state.ready]

    def missing(self) -> int:
        """Return how many tokens' blocks the next part needs, if it holds none."""
        state = next(iter(self._unread()), None)
        return 0 if state is None or state.memory is not None else state.part.slots

    def _open(self, state: PartState, tokens: Sequence[int]) -> bool:
        """Hold a part's memory, with what is known of it; False if there are no blocks."""
        if state.memory is not None:
            return True
        part = state.part
        memory = self.new_memory()
        found = memory.enter([*part.text(tokens), 0])
        if found is None or not memory.reserve(part.slots):
            memory.leave()
            return False
        state.memory, state.read = memory, found
        found = max(found - part.beginning, 0)
        self.found += found
        self.found_first.setdefault(part.start, found)
        return True

    # --- committing ---------------------------------------------------------------------------

    def commit(
        self, tokens: Sequence[int], row: RowBlend, stop: int, deviations: Sequence[float]
    ) -> None:
        """Take in a row that went up to `stop`."""
        for read in row.reads:
            state = next(each for each in self.states if each.part.start == read.at)
            assert state.memory is not None
            state.read = read.stop
            state.memory.commit(state.part.text(tokens), read.start, read.stop)
        if row.probes:
            for place, deviation in enumerate(deviations, start=self.probed):
                if any(part.start <= place < part.stop for part in self.parts):
                    self.deviations.append(deviation)
            self.probed = stop
            if stop == self.stop:
                self.chosen = choose_positions(self.blend, self.parts, self.deviations)
        if row.copies:
            for state in self.states:
                if state.part.stop <= stop:
                    release(state)

    def uses(self) -> tuple[SegmentUse, ...]:
        """Return how each declared segment was come by, in the order of the prompt.

        Only after the prompt has been read; it does not change any more.
        """
        if self._uses:
            return self._uses
        parts = {part.start: part for part in self.parts}
        uses: list[SegmentUse] = []
        for start, stop in self.blend.spans:
            part = parts.get(start)
            kept = 0 if part is None else part.length - self._repaired_of(part)
            uses.append(SegmentUse(stop - start, self.found_first.get(start, 0), kept))
        self._uses = tuple(uses)
        return self._uses

    def _repaired_of(self, part: CanonicalPart) -> int:
        """Return how many tokens of a part are computed again, as far as they are chosen."""
        return sum(part.start <= place < part.stop for place in self.chosen or ())

    def check(self) -> None:
        """Assert that what is held is needed."""
        for state in self.states:
            assert 0 <= state.read <= state.part.slots
            if state.memory is not None:
                state.memory.check()


def repaired_count(blend: Blend, parts: tuple[CanonicalPart, ...]) -> int:
    """Return how many canonical tokens a rule computes again, whichever they are."""
    return len(choose_positions(blend, parts, [0.0] * sum(part.length for part in parts)))


def blended(blend: Blend, tokens: Sequence[int], parts: tuple[CanonicalPart, ...]) -> NameSalt:
    """Return from where a table is the blend's, and all that it depends on.

    A choice may depend on every part, also on those behind a block.
    """
    named = repr((blend.rule, blend.ratio, parts, list(tokens[: parts[-1].stop])))
    return NameSalt(parts[0].start, blake2b(named.encode(), digest_size=16).hexdigest())
