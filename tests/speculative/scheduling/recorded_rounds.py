"""Digests of the rounds that random stories and engines plan, one a story.

    python -m tests.speculative.scheduling.recorded_rounds [STORIES] > FILE

Two files are equal where no decision changed, whatever PYTHONHASHSEED is. `rounds.txt` has the
first stories: record it anew with a change that is to change decisions.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from draftwerk.speculative.requests.slo import Slo
from draftwerk.speculative.rounds import Round
from draftwerk.speculative.row_parts.step_report import NO_STEP
from draftwerk.speculative.scheduler import Scheduler
from tests.speculative.options.beams import beam_world
from tests.speculative.scheduling import scheduler_world
from tests.support.simulation import Setting, few_windows, run

RECORDED = Path(__file__).with_name("rounds.txt")
STORIES = 6
"""Of each kind, in that file."""
SOON = Slo(ttft=0.05, tpot=0.01)
Story = Callable[[int], object]
KINDS: dict[str, Story] = {
    "scheduler": scheduler_world.story,
    "beams": lambda seed: beam_world.story(seed, state_slots=(0, 24)[seed % 2]),
    "engine": lambda seed: run(Setting(seed, run_ahead=True, store=seed % 3 == 0)),
    "states": lambda seed: run(Setting(seed, run_ahead=seed % 2 == 0, state_slots=3 + seed % 12)),
    "windows": lambda seed: run(
        Setting(seed, run_ahead=seed % 2 == 0, windows=few_windows(seed), store=seed % 3 == 0)
    ),
    "deadlines": lambda seed: run(Setting(seed, slo=SOON, policy="last", promised=0.5)),
    "segments": lambda seed: run(Setting(seed, blended=0.5, run_ahead=seed % 2 == 0)),
    "pooled": lambda seed: run(Setting(seed, reading=0.4, lost=0.05 * (seed % 2))),
}
"""What each is about: the rest of its requests are of any kind."""


def digest(story: Callable[[], object]) -> str:
    """Return the number of rounds that a story plans, and a digest of all."""
    rounds, plan = list[bytes](), Scheduler.plan

    def recording_plan(scheduler: Scheduler, now_s: float = 0.0) -> Round | None:
        round_ = plan(scheduler, now_s)
        if round_ is not None:
            rounds.append(msgspec.msgpack.encode(replace(round_, report=NO_STEP)))  # real time
        return round_

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "plan", recording_plan)
        story()
    return f"{len(rounds)} {sha256(b''.join(rounds)).hexdigest()[:16]}"


def recorded(stories: int = STORIES) -> Iterator[str]:
    """Yield a line for each story of each kind."""
    for kind, story in KINDS.items():
        for seed in range(stories):
            yield f"{kind} {seed} {digest(partial(story, seed))}"


if __name__ == "__main__":
    for line in recorded(*map(int, sys.argv[1:])):
        print(line)
