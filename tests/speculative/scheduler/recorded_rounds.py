"""A digest of every round that random schedulers and engines plan.

    python -m tests.speculative.scheduler.recorded_rounds [STORIES [ENGINES]]

prints how many rounds there were and their digest. It is equal before and after a change that is to
change no decision, and under every PYTHONHASHSEED.
"""

import sys
from hashlib import sha256

import msgspec
import pytest
from msgspec.structs import replace

from draftwerk.speculative.protocol.rounds import Round
from draftwerk.speculative.protocol.step_report import NO_STEP
from draftwerk.speculative.scheduler.scheduler import Scheduler
from tests.speculative.scheduler.scheduler_world import story
from tests.support.simulation import Setting, run


def recorded(stories: int, engines: int) -> tuple[int, str]:
    """Run schedulers over a toy target, and whole engines on virtual time; returns the number of
    their rounds, and a digest of all."""
    digest, count, plan = sha256(), 0, Scheduler.plan

    def recording_plan(scheduler: Scheduler, now_s: float = 0.0) -> Round | None:
        nonlocal count
        round_ = plan(scheduler, now_s)
        if round_ is not None:
            digest.update(msgspec.msgpack.encode(replace(round_, report=NO_STEP)))  # real time
            count += 1
        return round_

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "plan", recording_plan)
        for seed in range(stories):
            story(seed)
        for seed in range(engines):
            run(Setting(seed, state_slots=9 * (seed % 2), store=seed % 3 == 0, run_ahead=True))
    return count, digest.hexdigest()[:32]


if __name__ == "__main__":
    print(*recorded(*(int(count) for count in [*sys.argv[1:], "120", "20"][:2])))
