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
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from draftwerk.speculative.requests.slo import Slo
from draftwerk.speculative.rounds import NewSequence, Round
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


ROW = (
    *("sequence_id", "start", "stop", "samples", "draft_max", "blocks", "window_blocks"),
    *("new_token_ids", "new_sequence", "feedback", "branch", "tokens_left", "continues", "blend"),
    *("scored", "prompt_logprobs", "state", "pools", "answers"),
)
SEQUENCE = (
    *("tokens", "prompt_count", "sampling", "methods", "name_space", "prediction"),
    *("forced_tokens", "adapter"),
)
"""Fields, those of options among them, in the order in which the rounds were recorded."""


def as_recorded(round_: Round) -> list[Any]:
    """Return what a round says, laid out as it was recorded; the report has real times."""
    rows = [flat(row, ROW) for row in round_.rows]
    values = msgspec.structs.asdict(replace(round_, report=NO_STEP)) | {"rows": rows}
    return [*values.values()]


def flat(part: Any, names: tuple[str, ...]) -> list[Any]:
    """Return the values of a part of a round, whether they are its own or of its options."""
    found = (getattr(part if hasattr(part, name) else part.options, name) for name in names)
    return [flat(one, SEQUENCE) if isinstance(one, NewSequence) else one for one in found]


def digest(story: Callable[[], object]) -> str:
    """Return the number of rounds that a story plans, and a digest of all."""
    rounds, plan = list[bytes](), Scheduler.plan

    def recording_plan(scheduler: Scheduler, now_s: float = 0.0) -> Round | None:
        round_ = plan(scheduler, now_s)
        if round_ is not None:
            rounds.append(msgspec.msgpack.encode(as_recorded(round_)))
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
