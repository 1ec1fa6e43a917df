"""Sizes of rounds, chosen for machines of several shapes."""

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.support.virtual_server import (
    RATES,
    ROOFLINE,
    SHAPE,
    VirtualServer,
    VirtualText,
)
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.speculative.costs.roofline import MachineRates, Roofline
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.options.service.round_sizes import (
    FIRST_REVISIONS,
    NEAR_LEAST,
    ROWS_ALWAYS,
    ROWS_MAX,
    ROWS_MIN,
    TEXT_TOKENS,
    TOKENS_MAX,
    TOKENS_MIN,
    knee_tokens,
    revised_tokens,
    rows_of,
    tokens_of,
)
from draftwerk.speculative.options.service.service_policy import ServicePolicy
from draftwerk.speculative.scheduler import RoundLimits, Scheduler

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def curve(read_ms: float, token_ms: float) -> StepCost:
    """Return what steps cost that read the weights once, while products wait for them."""
    return StepCost(tuple((tokens, max(read_ms, token_ms * tokens)) for tokens in SIZES))


TWO_CORES = curve(read_ms=10.0, token_ms=0.4)
SIXTEEN_CORES = curve(read_ms=5.0, token_ms=0.015)


def test_machines_of_three_shapes_choose_different_sizes() -> None:
    cache, small_cache = 200 * TEXT_TOKENS, 50 * TEXT_TOKENS
    found = [
        (rows := rows_of(cost, tokens), tokens_of(cost, rows))
        for cost, tokens in (
            (TWO_CORES, cache),
            (TWO_CORES, small_cache),
            (SIXTEEN_CORES, 8 * cache),
        )
    ]
    assert found == [(ROWS_ALWAYS, TOKENS_MIN), (50, TOKENS_MIN), (512, 1600)]


def test_cheap_tokens_of_prompts_bring_no_rows() -> None:
    prompts = StepCost(tuple((n, (0.4 if n <= ROWS_ALWAYS else 0.3) * n) for n in SIZES))
    assert knee_tokens(prompts) > ROWS_ALWAYS
    assert rows_of(prompts, 800 * TEXT_TOKENS) == ROWS_ALWAYS


def test_a_tiny_cache_has_a_few_rows_nevertheless() -> None:
    assert rows_of(TWO_CORES, 16) == ROWS_MIN


def test_many_texts_decode_at_once_wherever_memory_allows() -> None:
    for read_ms, token_ms in ((200.0, 40.0), (10.0, 0.4), (1.0, 0.001)):
        assert rows_of(curve(read_ms, token_ms), ROWS_ALWAYS * TEXT_TOKENS) == ROWS_ALWAYS


@given(read_ms=st.floats(0.1, 100.0), token_ms=st.floats(0.001, 50.0))
def test_the_knee_is_the_smallest_size_that_is_nearly_the_best(
    read_ms: float, token_ms: float
) -> None:
    cost = curve(read_ms, token_ms)
    knee = knee_tokens(cost, gap_ms=0.0)
    table = cost.table(TOKENS_MAX)
    least = min(table[size] / size for size in range(64, TOKENS_MAX + 1, 64))
    assert table[knee] / knee <= NEAR_LEAST * least * (1 + 1e-9)
    assert all(table[size] / size > NEAR_LEAST * least for size in range(64, knee, 64))


def test_what_every_round_costs_makes_rounds_larger() -> None:
    sizes = [tokens_of(TWO_CORES, 64, gap_ms) for gap_ms in (0.0, 1.0, 4.0, 16.0)]
    assert sizes == sorted(sizes)
    assert sizes[0] == TOKENS_MIN < sizes[2]


@given(
    read_ms=st.floats(0.1, 100.0),
    token_ms=st.floats(0.001, 50.0),
    cache=st.integers(1, 10**7),
)
def test_every_row_has_room_in_a_round(read_ms: float, token_ms: float, cache: int) -> None:
    cost = curve(read_ms, token_ms)
    rows = rows_of(cost, cache)
    assert ROWS_MIN <= rows <= ROWS_MAX
    assert rows * TEXT_TOKENS <= max(cache, ROWS_MIN * TEXT_TOKENS)
    assert 2 * rows <= tokens_of(cost, rows) <= TOKENS_MAX


# --- in service -----------------------------------------------------------------------------------


def many_cores(share: float) -> Roofline:
    """Return the roofline of a machine that computes so many times what two cores do."""
    rates = MachineRates(
        flops_per_s=share * RATES.flops_per_s,
        bytes_per_s=2.0 * RATES.bytes_per_s,
        attention_flops_per_s=share * RATES.attention_flops_per_s,
    )
    return Roofline(shape=SHAPE, rates=rates)


def served(
    machine: Roofline, gap_ms: float, told: float = 1.0, revised: bool = True
) -> tuple[Scheduler, list[int]]:
    """Serve prompts on a machine with gaps between steps, as it was measured to be.

    `told` is how many times as much its large steps seemed to cost at start.
    """
    sizes: list[int] = []

    def step_ms(load: StepLoad) -> float:
        sizes.append(load.tokens)
        return machine.ms(load)

    seeds = ((n, machine.products_ms(StepLoad(n, n))) for n in SIZES if n <= 128)
    cost = StepCost(((n, ms * (told if n > 64 else 1.0)) for n, ms in seeds), machine)
    limits = RoundLimits(rows_max=ROWS_MIN, tokens_max=TOKENS_MIN, tokens_revised=revised)
    scheduler = Scheduler(CachePools(BlockPool(4096, 16)), limits, cost=cost, policy=ServicePolicy)
    texts = [VirtualText(prompt=1000, answer=2) for _ in range(40)]
    VirtualServer(scheduler, texts, step_ms, 4096, users=ROWS_MIN, gap_ms=gap_ms).run()
    assert len(sizes) > FIRST_REVISIONS[0]
    return scheduler, sizes


def test_sizes_measured_in_service_reach_the_rounds() -> None:
    scheduler, sizes = served(ROOFLINE, gap_ms=8.0)
    assert max(sizes[: FIRST_REVISIONS[0]]) == TOKENS_MIN
    assert max(sizes[FIRST_REVISIONS[0] :]) == scheduler.load.round_tokens > TOKENS_MIN
    scheduler, sizes = served(ROOFLINE, gap_ms=0.0)
    assert max(sizes) == scheduler.load.round_tokens == TOKENS_MIN


def test_sizes_that_were_set_stay() -> None:
    _, sizes = served(ROOFLINE, gap_ms=8.0, revised=False)
    assert max(sizes) == TOKENS_MIN


def test_a_machine_that_was_measured_while_busy_has_its_sizes_in_the_end() -> None:
    machine = many_cores(30.0)
    scheduler, sizes = served(machine, gap_ms=0.5, told=4.0)
    assert max(sizes[: FIRST_REVISIONS[0]]) == TOKENS_MIN < scheduler.load.round_tokens


def test_sizes_stay_where_no_round_was_as_large_of_late() -> None:
    cost = StepCost([(1, 10.0), (64, 12.0)])
    assert revised_tokens(cost, ROWS_MIN, 512, gap_ms=4.0) == 512
    assert revised_tokens(cost, ROWS_MIN, 128, gap_ms=4.0) == 256
