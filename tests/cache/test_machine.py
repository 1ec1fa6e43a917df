"""Random operations on block tables, drawn by seeds and by Hypothesis, which shrinks failures."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.cache.tables_world import Tables, story

few_tokens = st.lists(st.integers(0, 1), max_size=4)
picks = st.integers(0, 2**16)


def resting(machine: "TableMachine") -> bool:
    return bool(machine.tables.resting())


class TableMachine(RuleBasedStateMachine):
    @initialize(capacity=st.integers(3, 8), size=st.integers(1, 3))
    def start(self, capacity: int, size: int) -> None:
        self.tables = Tables(capacity, size)

    @rule(pick=picks, length=st.integers(1, 9), space=st.sampled_from(["", "", "", "a"]))
    def open(self, pick: int, length: int, space: str) -> None:
        self.tables.open(pick, length, space)

    @precondition(resting)
    @rule(pick=picks, slots=st.integers(0, 12))
    def reserve(self, pick: int, slots: int) -> None:
        self.tables.reserve(pick, slots)

    @precondition(resting)
    @rule(pick=picks, count=st.integers(1, 8), drafts=few_tokens, room=st.integers(0, 2))
    def plan(self, pick: int, count: int, drafts: list[int], room: int) -> None:
        self.tables.plan(pick, count, drafts, room)

    @rule(accepted=st.lists(st.integers(0, 3), min_size=1, max_size=3), own=st.integers(0, 1))
    def run_round(self, accepted: list[int], own: int) -> None:
        self.tables.run_round(accepted, own)

    @precondition(resting)
    @rule(pick=picks, drafts=few_tokens, accepted=st.integers(0, 3), own=st.integers(0, 1))
    def advance(self, pick: int, drafts: list[int], accepted: int, own: int) -> None:
        self.tables.advance(pick, drafts, accepted, own)

    @precondition(resting)
    @rule(pick=picks)
    def fork(self, pick: int) -> None:
        self.tables.fork(pick)

    @precondition(resting)
    @rule(pick=picks, slots=picks, other=few_tokens)
    def truncate(self, pick: int, slots: int, other: list[int]) -> None:
        self.tables.truncate(pick, slots, other)

    @precondition(resting)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        self.tables.release(pick)

    @invariant()
    def everything_holds(self) -> None:
        if hasattr(self, "tables"):
            self.tables.check()

    def teardown(self) -> None:
        if hasattr(self, "tables"):
            self.tables.finish()


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_every_story_ends_well() -> None:
    for seed in range(300):
        story(seed)


def test_every_story_with_windows_ends_well() -> None:
    for seed in range(300):
        story(seed, windows=True)
