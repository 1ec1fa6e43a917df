"""Given texts are verified in chains that let nobody else wait for long."""

from math import inf
from random import Random

import msgspec

from draftwerk.speculative.options.extended_sequence import extended
from draftwerk.speculative.options.forced_text import ChainRoom, ForcedText
from draftwerk.speculative.rounds import Decision, Round
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk.speculative.sequence import Sequence
from tests.speculative.scheduling.scheduler_world import World
from tests.speculative.test_scheduler import GREEDY, PROMPT, decide, planned, submit

LIMITS = RoundLimits(
    pipeline_depth=2, run_ahead=True, rows_max=8, tokens_max=64, draft_max=4, pause_s=0.06
)
STEPS = tuple((n, 4.3 + n) for n in (1, 2, 3, 4, 8, 16, 64))
"""A step of n tokens takes 4.3 + n ms: one of 15 takes nearly a third of a pause."""
TEXT = (5,) * 200


def world(limits: RoundLimits = LIMITS) -> World:
    found = World(Random(1), block_count=400, block_size=4, limits=limits)
    found.scheduler.cost.add_measured(STEPS)
    return found


def verified(world: World) -> Sequence:
    """Submit a text that is given."""
    name, count = f"r{len(world.wanteds)}", len(TEXT)
    text = world.sequence(name, 0, PROMPT, GREEDY, count, draft_max=count)
    room = ChainRoom(world.scheduler.cost, world.limits.pause_s)
    sequence = extended(text, ForcedText, forced_tokens=TEXT, chain_room=room)
    world.scheduler.submit(sequence)
    return sequence


def begun(world: World) -> Round:
    """Read all prompts, decide a token of each text, and return the next round."""
    round_ = planned(world)
    decide(world, round_, *[Decision(tokens=(5,))] * len(round_.rows))
    return planned(world)


def chains(round_: Round) -> list[int]:
    return [row.draft_max for row in round_.rows]


def test_alone_a_chain_lasts_for_a_third_of_a_pause() -> None:
    alone = world()
    verified(alone)
    (chain,) = chains(begun(alone))
    table = alone.scheduler.cost.table(64)
    assert table[1 + chain] <= 1e3 * LIMITS.pause_s / 3 < table[1 + chain + 1]


def test_several_share_that_time() -> None:
    several = world()
    for _ in range(4):
        verified(several)
    shares = chains(begun(several))
    table = several.scheduler.cost.table(64)
    assert len(set(shares)) == 1 and shares[0] >= 2
    assert table[4 + sum(shares)] <= 1e3 * LIMITS.pause_s / 3


def test_beside_a_text_that_decodes_a_round_takes_twice_as_long_at_most() -> None:
    mixed = world()
    verified(mixed)
    submit(mixed)
    chain, draft = chains(begun(mixed))
    table = mixed.scheduler.cost.table(64)
    assert table[2 + chain] <= 2 * table[2] < table[2 + chain + 1]
    assert draft == LIMITS.draft_max


def test_beside_a_prompt_it_has_a_token() -> None:
    mixed = world()
    verified(mixed)
    decide(mixed, begun(mixed), Decision(tokens=(5,)))
    submit(mixed, [*PROMPT, 7, 8])
    first, second = planned(mixed).rows
    assert (first.draft_max, first.stop - first.start) == (0, 1)
    assert second.samples, "the prompt is read meanwhile"


def test_no_round_is_planned_behind_one_that_verifies() -> None:
    """Who comes would wait for both."""
    ahead = world()
    verified(ahead)
    begun(ahead)
    assert ahead.scheduler.plan() is None


def test_without_a_bound_of_pauses_a_round_is_full_of_it() -> None:
    fast = world(msgspec.structs.replace(LIMITS, pause_s=inf))
    verified(fast)
    assert chains(begun(fast)) == [63]
