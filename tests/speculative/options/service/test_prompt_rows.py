"""Prompts of a running scheduler share rounds: who has its first token when, on virtual time."""

from random import Random

import pytest

from benchmarks.support.virtual_server import ROOFLINE, VirtualServer, VirtualText
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.options.service.prompt_shares import CREDIT_ROUNDS
from draftwerk.speculative.options.service.service_policy import ServicePolicy
from draftwerk.speculative.requests.slo import Slo
from draftwerk.speculative.rounds import Round
from draftwerk.speculative.scheduler import RoundLimits, Scheduler
from tests.speculative.scheduling.scheduler_world import World
from tests.speculative.test_scheduler import make_world, submit

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
ROUND = 256
GAP_MS = 1.0


def served(*texts: VirtualText, in_order: bool = False, blocks: int = 2000) -> VirtualServer:
    """Serve texts on a device like two cores, in the order of their arrival."""
    cost = StepCost(((n, ROOFLINE.products_ms(StepLoad(n, n))) for n in SIZES), ROOFLINE)
    limits = RoundLimits(rows_max=128, tokens_max=ROUND, pause_s=0.06, in_order=in_order)
    scheduler = Scheduler(
        CachePools(BlockPool(blocks, 16)), limits, cost=cost, policy=ServicePolicy
    )
    ordered = sorted(texts, key=lambda text: text.arrives_s)
    server = VirtualServer(scheduler, ordered, ROOFLINE.ms, 16384, gap_ms=GAP_MS)
    server.run()
    scheduler.check()
    return server


def text(prompt: int, answer: int, arrives_s: float = 0.0, priority: int = 0) -> VirtualText:
    return VirtualText(prompt=prompt, answer=answer, arrives_s=arrives_s, priority=priority)


def alone_s(prompt: int) -> float:
    one = text(prompt, 2)
    served(one)
    return one.first_s


def round_s(start: int) -> float:
    """Return what a round of one prompt takes behind so many of its tokens."""
    return 1e-3 * (ROOFLINE.ms(StepLoad().with_row(start, ROUND, 0)) + GAP_MS)


@pytest.mark.parametrize("long", [6000, 12000])
@pytest.mark.parametrize("came_s", [1.0, 1.3, 4.7, 9.1])
def test_a_short_prompt_does_not_wait_for_a_long_one(long: int, came_s: float) -> None:
    first, chat = text(long, 20), text(10, 20, came_s)
    served(first, chat)
    assert chat.first_s <= 3.0 * alone_s(10) + round_s(long)
    assert first.first_s <= 1.15 * alone_s(long)


def test_in_order_it_waits_for_all_of_it() -> None:
    first, chat = text(6000, 20), text(10, 20, 1.0)
    served(first, chat, in_order=True)
    assert chat.first_s > 0.8 * first.first_s


def test_in_order_the_more_urgent_goes_first() -> None:
    first, chat = text(6000, 20), text(500, 20, 1.0, priority=-1)
    served(first, chat, in_order=True)
    assert chat.first_s < 0.4 * first.first_s


@pytest.mark.parametrize("in_order", [True, False])
def test_texts_that_are_decoded_pause_no_longer(in_order: bool) -> None:
    """By the cost of a mean round; a step of sixteen texts alone takes 20 ms here."""
    readers = [text(100, 200) for _ in range(16)]
    chats = [text(200, 10, 1.0 + 0.2 * number) for number in range(8)]
    served(*readers, text(6000, 5, 0.8), *chats, in_order=in_order)
    assert max(reader.pause_s for reader in readers) < 0.1


def test_a_newcomer_that_fits_a_round_is_in_the_next_one() -> None:
    first, chat = text(8000, 2), text(200, 2, 3.0)
    served(first, chat)
    assert chat.first_s <= round_s(8000) + 2.2 * alone_s(200)


def test_a_flood_of_short_prompts_does_not_starve_a_long_one() -> None:
    """More come than are read, for as long as it is: it ends within four times its time."""
    long_s = alone_s(2000)
    flood = [text(100, 1, 0.01 * number) for number in range(int(500 * long_s))]
    first = text(2000, 2)
    served(first, *flood)
    assert 3.0 * long_s < first.first_s < 4.0 * long_s + (CREDIT_ROUNDS + 1) * round_s(0)
    assert sum(one.times_s[0] < first.times_s[0] for one in flood) > 20


def test_no_less_urgent_prompt_goes_before_a_more_urgent_one() -> None:
    for priority, before in ((0, True), (1, False), (-1, True)):
        first, chat = text(6000, 2), text(100, 2, 1.0, priority)
        served(first, chat)
        assert (chat.times_s[0] < first.times_s[0]) == before


def test_what_is_due_soon_goes_before_what_is_shorter() -> None:
    due = text(400, 2, 1.0)
    due.slo = Slo(ttft=1.0)
    chats = [text(200, 2, 0.99) for _ in range(20)]
    served(text(6000, 2), due, *chats)
    assert due.first_s < 1.0
    assert max(chat.times_s[0] for chat in chats) > due.times_s[0]


def submitted(world: World, prompt: list[int]) -> int:
    return submit(world, prompt, tokens_max=1, draft_max=0).sequence_id


def stepped(world: World) -> Round:
    """Run a round to its verdict."""
    assert world.plan()
    round_ = world.verdicts[-1][0]
    world.commit()
    return round_


def test_what_is_cached_is_not_counted_as_left_to_read() -> None:
    """Of two prompts, the longer one is found in the cache for the most part."""
    world = make_world(block_count=300, rows_max=4, tokens_max=8)
    known = [1 + n % 7 for n in range(16)]
    submitted(world, known)
    while not world.scheduler.idle:
        stepped(world)
    submitted(world, [8 + n % 5 for n in range(40)])
    stepped(world)
    short, cached = submitted(world, [9] * 7), submitted(world, [*known, 3, 4])
    read = {row.sequence_id: row.stop for row in stepped(world).rows}
    assert cached in read
    assert read.get(short, 0) < 7


def test_a_prompt_that_a_shorter_one_waits_for_is_read_with_its_urgency() -> None:
    """Both begin alike; what they share is read at once, though a third prompt is short."""
    world = make_world(block_count=300, rows_max=4, tokens_max=16)
    shared = [1 + n % 9 for n in range(48)]
    first = submitted(world, [4] * 300)
    stepped(world)
    reader = submitted(world, [*shared, *[7] * 100])
    stepped(world)
    waits, other = submitted(world, [*shared, 2, 3]), submitted(world, [5] * 60)
    firsts: list[int] = []
    while waits not in firsts:
        rows = stepped(world).rows
        firsts += [row.sequence_id for row in rows if row.samples]
        read = {row.sequence_id: row.stop for row in rows}
    assert {first, reader, other}.isdisjoint(firsts), "who is waited for is read first"
    assert read[waits] == len(shared) + 2


CONTEXT = 16384
PAUSE_S = 0.06


def test_a_prompt_of_the_whole_context_beside_a_hundred_short_ones() -> None:
    long, rng = text(CONTEXT - 2, 2), Random(1)
    chats = [text(10, 4, 1.0 + 20.0 * rng.random()) for _ in range(100)]
    served(long, *chats, blocks=2 * CONTEXT // 16)
    waits = sorted(chat.first_s for chat in chats)
    assert waits[-1] <= 3.0 * alone_s(10) + round_s(CONTEXT)
    others_s = sum(chat.times_s[-1] - chat.arrives_s for chat in chats)
    assert long.first_s <= alone_s(CONTEXT - 2) + others_s


@pytest.mark.parametrize("behind", [1000, 4000, 12000])
def test_no_text_pauses_longer_beside_a_longer_prompt(behind: int) -> None:
    """A chunk that takes longer behind more tokens has fewer of its own."""
    readers = [text(100, 300) for _ in range(16)]
    long = text(behind, 2, 0.5)
    served(*readers, long, blocks=2 * CONTEXT // 16)
    # The mean of rounds of which one in twenty is longer; here all are as they are expected.
    assert max(reader.pause_s for reader in readers) <= PAUSE_S + 1e-3 * GAP_MS
    assert long.first_s > 0.0


@pytest.mark.parametrize("seed", range(4))
def test_clients_that_go_while_they_wait_leave_nothing_behind(seed: int) -> None:
    rng = Random(seed)
    staying = [text(rng.choice([10, 400, 3000]), 8, 2.0 * rng.random()) for _ in range(20)]
    alone = [text(one.prompt, one.answer, one.arrives_s) for one in staying]
    going = [text(rng.choice([10, 3000, 9000]), 50, 2.0 * rng.random()) for _ in range(60)]
    for one in going:
        one.leaves_s = one.arrives_s + rng.choice([0.0, 0.05, 0.5])
    server = served(*staying, *going, blocks=1500)
    served(*alone, blocks=1500)
    assert server.scheduler.pool.used == 0
    assert server.scheduler.idle
    assert all(len(one.times_s) == one.answer for one in staying)
    assert all(len(one.times_s) < one.answer for one in going)
    # The last has gone half a second after it came: who stays is that much later at most, and by
    # what a round takes that was begun before.
    late = max(one.first_s - plain.first_s for one, plain in zip(staying, alone, strict=True))
    assert late <= 2.5 + round_s(9000)


@pytest.mark.parametrize("seed", range(4))
def test_a_pool_of_the_least_size_serves_all(seed: int) -> None:
    """It holds the longest prompt and its answer, and not a block more."""
    rng = Random(seed)
    longest = text(800, 32, 0.1)
    others = [text(rng.choice([5, 200, 700]), rng.choice([1, 30]), rng.random()) for _ in range(30)]
    server = served(longest, *others, blocks=-(-832 // 16) + 1)
    assert server.scheduler.pool.used == 0
    assert all(len(one.times_s) == one.answer for one in (longest, *others))
    # One after the other, each with its tokens in rounds of its own, and read twice.
    alone = sum(2.0 * (1.0 + one.prompt / ROUND + one.answer) * round_s(800) for one in others)
    assert longest.first_s <= alone
