"""Random operations on block tables over simulated pages, against texts kept in plain lists.

A table goes through what the scheduler puts one through: match, reserve, own, write drafts behind
the committed tokens, commit what was accepted; and it may be forked, truncated and released.
Whatever
was committed must read back through the table, whatever else came, copied, was evicted or left.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.kinds.window_table import WindowGroup, WindowTable
from draftwerk.cache.memory import CachePools, SequenceMemory
from draftwerk.cache.tables import BlockCopy, BlockNamer, BlockTable

Content = tuple[int, ...]
"""What a slot holds: like real KV, it depends on every token up to its own."""

PROMPTS = ([0] * 9, [0, 0, 0, 1, 1, 1, 0, 0, 0], [0, 1] * 4)
"""Few and alike, so that they meet each other's blocks."""


@dataclass
class Text:
    """One live table, and what must be read back from it."""

    memory: SequenceMemory
    space: str
    tokens: list[int]
    computed: int
    """Committed slots; the tokens behind them are known, but not in the pages."""
    drafts: list[int] = field(default_factory=list)
    planned_to: int = 0
    in_round: bool = False


class Tables:
    """Tables of a tiny pool, whose rounds copy first and then write, as a device does."""

    def __init__(
        self, capacity: int, size: int, window: int = 0, apart: int = 0, kept: int = 0
    ) -> None:
        """With a `window`, the layers that have it have so many blocks `apart`; a text's first
        ones are `kept`."""
        self.size = size
        self.pool = BlockPool(capacity, size)
        self.group: WindowGroup | None = None
        if window:
            self.group = WindowGroup(BlockPool(apart, size, first=capacity), window, 9, kept)
        self.namer = BlockNamer(b"secret")
        self.pages: list[Content] = [()] * ((capacity + apart) * size)
        self.texts: list[Text] = []
        self.past: list[list[int]] = list(PROMPTS)
        self.copies: list[BlockCopy] = []
        self.writes: list[tuple[int, Content]] = []

    # --- what may happen ----------------------------------------------------------------------

    def open(self, pick: int, length: int, space: str) -> None:
        """Start a text that begins as an earlier one did."""
        tokens = self.past[pick % len(self.past)][:length]
        memory = CachePools(self.pool, () if self.group is None else (self.group,)).memory(
            self.namer, space
        )
        found = memory.enter(tokens)
        assert found is not None and found % self.size == 0, "half a block was found"
        assert found < len(tokens), "nothing was left to compute"
        assert found == memory.slots
        self.texts.append(Text(memory, space, tokens, found))
        self.check_content(self.texts[-1])

    def reserve(self, pick: int, slots: int) -> None:
        """Take slots early, as an admission does."""
        text = self.pick(self.resting(), pick)
        blocks, available = list(text.memory.table.blocks), self.pool.available
        if text.memory.reserve(slots):
            assert text.memory.slots >= slots
            assert text.memory.table.blocks[: len(blocks)] == blocks, "growing moves nothing"
        else:
            assert self.pool.blocks_for(slots) - len(blocks) > available, "there was room"
            assert (blocks, available) == (text.memory.table.blocks, self.pool.available)

    def plan(self, pick: int, count: int, drafts: list[int], room: int) -> None:
        """Take slots for some known tokens, and for drafts behind the last of them."""
        text = self.pick(self.resting(), pick)
        stop = min(text.computed + count, len(text.tokens))
        drafts = drafts if stop == len(text.tokens) else []
        if not text.memory.reserve_row(stop + len(drafts) + room):
            return
        before = list(text.memory.table.blocks), self.pool.available
        copies = text.memory.make_writable(text.computed)
        if copies is None:
            assert before == (text.memory.table.blocks, self.pool.available), (
                "a refusal changes nothing"
            )
            return
        for part in text.memory.tables:
            written = part.blocks[text.computed // self.size :]
            assert not part.pool.shared(written), "a shared block is written"
            assert min(written, default=0) >= 0, "what is written has no block"
        self.copies += copies
        content = (*text.tokens[:stop], *drafts)
        for slot in range(text.computed, len(content)):
            for part in text.memory.tables:
                self.writes.append((self.page_slot(part, slot), content[: slot + 1]))
        text.drafts = drafts
        text.in_round = True
        text.planned_to = stop

    def run_round(self, accepted: list[int], own: int) -> None:
        """Copy, write, and commit the accepted drafts and one token more."""
        for source, target in self.copies:
            for offset in range(self.size):
                self.pages[target * self.size + offset] = self.pages[source * self.size + offset]
        for page_slot, content in self.writes:
            self.pages[page_slot] = content
        self.copies, self.writes = [], []
        members = [text for text in self.texts if text.in_round]
        for number, text in enumerate(members):
            text.in_round = False
            text.computed = text.planned_to
            if text.computed == len(text.tokens):
                kept = text.drafts[: accepted[number % len(accepted)]]
                text.tokens += [*kept, own]
                text.computed += len(kept)
            text.memory.commit(text.tokens, 0, text.computed)

    def advance(self, pick: int, drafts: list[int], accepted: int, own: int) -> None:
        """Run a round of this text to the end, with the texts that are in the round already."""
        self.plan(pick, 9, drafts, 0)
        self.run_round([accepted], own)

    def fork(self, pick: int) -> None:
        text = self.pick(self.resting(), pick)
        self.texts.append(Text(text.memory.fork(), text.space, list(text.tokens), text.computed))

    def truncate(self, pick: int, slots: int, other: list[int]) -> None:
        """Go back, and on with another text."""
        text = self.pick(self.resting(), pick)
        self.remember(text)
        # Never to where a window has been left behind: that text begins again.
        text.computed = slots % (text.computed + 1) if self.group is None else 0
        text.tokens = [*text.tokens[: text.computed], *(other or [0])]
        text.memory.truncate(text.computed)
        assert text.memory.slots - text.computed < self.size, "more blocks are kept than needed"

    def release(self, pick: int) -> None:
        text = self.pick(self.resting(), pick)
        text.memory.leave()
        assert text.memory.slots == 0
        self.texts.remove(text)
        self.remember(text)

    # --- what must always hold ----------------------------------------------------------------

    def check(self) -> None:
        self.every_committed_slot_reads_back()
        self.the_blocks_balance()
        self.no_block_is_shared_across_name_spaces()

    def every_committed_slot_reads_back(self) -> None:
        for text in self.texts:
            if not text.in_round:
                self.check_content(text)

    def the_blocks_balance(self) -> None:
        holders = Counter(
            block for text in self.texts for part in text.memory.tables for block in part.held()
        )
        for text in self.texts:
            text.memory.check()
        for pool in self.pools():
            pool.check()
            held = [block for block in pool.ids if holders[block]]
            assert [pool.holders(block) for block in pool.ids] == [holders[b] for b in pool.ids]
            assert pool.free + pool.used + pool.cached == pool.capacity
            assert pool.used == len(held)
            assert pool.available == pool.capacity - len(held)

    def no_block_is_shared_across_name_spaces(self) -> None:
        spaces: dict[int, str] = {}
        for text in self.texts:
            for block in text.memory.table.blocks:
                assert spaces.setdefault(block, text.space) == text.space

    def finish(self) -> None:
        """When all have left, every block is free or cached."""
        for text in self.texts:
            text.memory.leave()
        for pool in self.pools():
            pool.check()
            assert pool.used == 0

    # --- helpers ------------------------------------------------------------------------------

    def pools(self) -> list[BlockPool]:
        return [self.pool] if self.group is None else [self.pool, self.group.pool]

    def remember(self, text: Text) -> None:
        """Let later texts begin as this one did."""
        self.past = [*self.past[-5:], list(text.tokens)]

    def resting(self) -> list[Text]:
        return [text for text in self.texts if not text.in_round]

    def pick(self, texts: list[Text], number: int) -> Text:
        return texts[number % len(texts)]

    def page_slot(self, table: BlockTable, slot: int) -> int:
        return table.blocks[slot // self.size] * self.size + slot % self.size

    def check_content(self, text: Text) -> None:
        for slot in range(text.computed):
            content = self.pages[self.page_slot(text.memory.table, slot)]
            assert content == tuple(text.tokens[: slot + 1]), f"slot {slot} holds another text"
        window = text.memory.part(WindowTable)
        if self.group is None or window is None:
            return
        beginning = min(self.group.kept * self.size, text.computed)
        first = max(beginning, text.computed - self.group.window + 1)
        for slot in (*range(beginning), *range(first, text.computed)):
            content = self.pages[self.page_slot(window, slot)]
            assert content == tuple(text.tokens[: slot + 1]), f"the window lacks slot {slot}"
        held, most = len(window.held()), self.group.blocks_of(text.memory.slots)
        assert held <= most + 2, "more than a window is held"
        assert window.later_count(text.memory.slots) == max(0, most - held)


def story(seed: int, steps: int = 60, windows: bool = False) -> None:
    """Run one random series of operations."""
    rng = Random(seed)
    apart = (rng.randint(1, 9), rng.randint(3, 16), rng.randint(0, 2)) if windows else (0, 0)
    tables = Tables(rng.randint(3, 8), rng.randint(1, 3), *apart)
    acts = ["open", "plan", "run", "advance", "advance", "fork", "truncate", "release", "reserve"]
    for _ in range(steps):
        act, pick = rng.choice(acts), rng.randrange(1000)
        few = [rng.randrange(2) for _ in range(rng.randint(0, 4))]
        if act == "open":
            tables.open(pick, rng.randint(1, 9), rng.choice(["", "", "", "a"]))
        elif act == "run":
            tables.run_round([rng.randint(0, 3), rng.randint(0, 3)], rng.randrange(2))
        elif tables.resting():
            match act:
                case "plan":
                    tables.plan(pick, rng.randint(1, 8), few, rng.randint(0, 2))
                case "advance":
                    tables.advance(pick, few, rng.randint(0, 3), rng.randrange(2))
                case "fork":
                    tables.fork(pick)
                case "truncate":
                    tables.truncate(pick, rng.randrange(1000), few)
                case "release":
                    tables.release(pick)
                case "reserve":
                    tables.reserve(pick, rng.randint(0, 12))
        tables.check()
    tables.finish()
