"""Planted bugs: each is a small slip in the product, and the tests' own machinery must catch it.

A test that cannot fail proves nothing. The table of bugs is planted_bugs.txt; if a plant no longer
takes because its line was rewritten, plant the same slip in the new line.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

from draftwerk.actors.devices.restarts import RestartLimit
from draftwerk.speculative.sampling import Sampling
from tests.actors import loops, test_engine
from tests.actors.requests import test_ledger
from tests.cache import tables_world
from tests.cache.eviction import test_replacement
from tests.speculative import test_distribution as test_distribution
from tests.speculative.scheduling.scheduler_world import story
from tests.support import toy
from tests.support.simulation import Setting, few_windows, run, run_with_peers

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = ("cluster/", "tools/")
"""Folders that are no packages themselves."""
IMPORTERS = ("draftwerk", "tests.")
"""Packages whose modules may have imported a function that is replaced."""
GIVEN = {"backend": lambda: "trio", "desk": test_ledger.Desk}
"""What the tests among the hunts are given."""
RESTART_LIMIT = "tests.support.simulation.RestartLimit"
SEEDS = 15
"""Simulations or stories within which a bug must show."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


# --- who hunts ------------------------------------------------------------------------------------


def prefixes() -> None:
    """Prefixes in a cache that evicts."""
    for seed in range(10):
        test_replacement.prefixes_outlive(seed)


def tables() -> None:
    """The random life of block tables."""
    for seed in range(200):
        tables_world.story(seed)


def stories() -> None:
    """Schedulers over a toy target."""
    for seed in range(SEEDS):
        story(seed)


def simulations(**how: Any) -> None:
    """Whole engines; where no device is lost, nothing may need a restart."""
    for seed in range(SEEDS):
        counters = run(Setting(seed, **how)).counters
        assert counters["restarts"] == 0 or how.get("lost")


def recoveries() -> None:
    """Engines whose target dies over pages that outlive it; only a bug's actors start again."""
    for seed in range(60, 60 + SEEDS):  # where moves are under way as the target dies
        run(Setting(seed, lost=0.15, spare=bool(seed % 2), bugs=0.003))


def recoveries_ahead() -> None:
    """The same with two rounds in flight."""
    for seed in range(SEEDS):
        counters = run(Setting(seed, lost=0.15, spare=bool(seed % 2), run_ahead=True)).counters
        assert counters["restarts"] <= counters["recoveries"] + 2


def recurrent() -> None:
    """Engines of a model with recurrent states, in few slots or in many."""
    for seed in range(SEEDS):
        run(Setting(seed, state_slots=3 + seed % 12, run_ahead=bool(seed % 2)))
        run(Setting(seed, state_slots=9, lost=0.15, run_ahead=bool(seed % 2)))


def windows() -> None:
    """Block tables with windows, and engines whose windows have few blocks."""
    for seed in range(200):
        tables_world.story(seed, windows=True)
    for seed in range(SEEDS):
        run(Setting(seed, windows=few_windows(seed)))


def recurrent_model() -> None:
    """A model with a delta rule, in any schedule and with any trees."""
    from tests.model.checkpoint import test_families

    with TemporaryDirectory() as directory:
        test_families.test_greedy_text_equals_transformers_for_any_schedule_and_drafts(
            "qwen3_5_text", {}, Path(directory)
        )


def second_tiers() -> None:
    """Engines with a store, one after the other."""
    for seed in range(SEEDS):
        kept: dict[bytes, list[tuple[int, int]]] = {}
        for server in range(2):
            run(Setting(2 * seed + server, store=True, kept=kept))


def peers() -> None:
    """Engines that fetch blocks of peers, which are killed and lie."""
    for seed in range(SEEDS):
        run_with_peers(seed)


def joint_distribution() -> None:
    distribution = test_distribution.joint_distribution(2, Sampling())
    assert (
        test_distribution.chi_square_excess(test_distribution.texts(2, Sampling()), distribution)
        < 1
    )


def noise_over_positions() -> None:
    test_distribution.test_choices_follow_the_distribution_along_each_part_of_the_key(
        test_distribution.over_positions
    )


def ledger_in_any_order() -> None:
    for seed in range(200):
        desk = test_ledger.Desk()
        test_ledger.play(desk, Random(seed))
        assert desk.freed == len(desk.entries)


def crashes() -> None:
    for step in range(1, 8):
        test_engine.test_a_crash_at_any_moment_changes_no_text("trio", step)


# --- what is planted ------------------------------------------------------------------------------


class Bug(NamedTuple):
    """A slip, and what must notice it."""

    name: str
    hunt: str
    path: str
    right: str
    wrong: str

    @property
    def module(self) -> str:
        path = self.path.removesuffix(".py")
        for folder in DISTRIBUTIONS:
            path = path.removeprefix(folder)
        return path.replace("/", ".")

    def plant(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the function that has the right text by one that has the wrong one."""
        source = (ROOT / self.path).read_text(encoding="utf-8")
        assert source.count(self.right) == 1, f"plant it anew: {self.path} has no {self.right!r}"
        owner, node = enclosing(source, source.index(self.right))
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        lines = source.replace(self.right, self.wrong).splitlines()
        stop = node.end_lineno + self.wrong.count("\n") - self.right.count("\n")
        module = import_module(self.module)
        made: dict[str, Any] = {}
        text = dedent("\n".join(lines[first - 1 : stop]))
        text = text.replace("super()", f"super({owner}, self)")
        exec(text, vars(module), made)
        if owner:
            monkeypatch.setattr(getattr(module, owner), node.name, made[node.name])
            return
        sound = getattr(module, node.name)
        for each in [one for name, one in sys.modules.items() if name.startswith(IMPORTERS)]:
            if vars(each).get(node.name) is sound:
                monkeypatch.setattr(each, node.name, made[node.name])

    def hunter(self) -> Callable[[], object]:
        """Return the hunt: a function of this file, or a test by its path below `tests`."""
        name, _, arguments = self.hunt.partition("(")
        path, _, test = name.rpartition(".")
        function = getattr(import_module(f"tests.{path}"), test) if path else globals()[test]
        signature = inspect.signature(function)
        given = {each: make() for each, make in GIVEN.items() if each in signature.parameters}
        hunt = eval(
            f"partial(function, {arguments or ')'}", {"partial": partial, "function": function}
        )
        signature.bind(*hunt.args, **hunt.keywords, **given)
        return partial(hunt, **given)


def enclosing(source: str, index: int) -> tuple[str, Function]:
    """Return the function around a place of a source, and the class that it is of."""
    line = source.count("\n", 0, index) + 1
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for owner, body in (("", tree.body), *((each.name, each.body) for each in classes)):
        for node in body:
            if isinstance(node, Function) and node.lineno <= line <= (node.end_lineno or 0):
                return owner, node
    raise AssertionError(f"line {line} is in no function")


def read_bugs(text: str) -> Iterator[Bug]:
    """Yield the bugs of the table."""
    path, lines = "", iter(text.splitlines())
    title, right, wrong = "", list[str](), list[str]()
    for line in chain(lines, [""]):
        if line.startswith("    - "):
            right.append(line[6:])
        elif line.startswith("    + "):
            wrong.append(line[6:])
        else:
            if right:
                name, _, hunt = title.partition(" | ")
                yield Bug(name, hunt, path, "\n".join(right), "\n".join(wrong))
            title, right, wrong = line, [], []
            path = line.removeprefix("== ") if line.startswith("== ") else path


BUGS = [*read_bugs(Path(__file__).with_name("planted_bugs.txt").read_text(encoding="utf-8"))]


@pytest.fixture(autouse=True)
def nothing_remembered() -> Generator[None]:
    """A token that was computed without the bug, or with it, is none on the other side."""
    toy.forget()
    yield
    toy.forget()


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_planted_bug_is_caught(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    # A broken actor restarts over and over, or nothing comes of it: give up soon.
    monkeypatch.setattr(RESTART_LIMIT, lambda **_: RestartLimit(failures_max=30))
    monkeypatch.setattr(loops, "DEADLINE_S", 2.0)
    hunt = bug.hunter()
    bug.plant(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):  # Whatever it is, it is noticed.
        hunt()


def test_where_nothing_is_planted_giving_up_soon_catches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other hunts without a plant are tests of their own: test_simulation, test_scheduler."""
    monkeypatch.setattr(RESTART_LIMIT, lambda **_: RestartLimit(failures_max=30))
    simulations(lost=0.05, recovers=False)
    recoveries()
