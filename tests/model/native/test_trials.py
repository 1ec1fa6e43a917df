"""The time of a model on so many threads, by a clock that is given."""

from itertools import accumulate, chain
from time import process_time

import pytest

from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.trials import (
    ALL_LOOPS,
    REPEATS,
    STEPS,
    VECTOR_LOOPS,
    foretold_ms,
    model_shape,
    peak_flops,
    trial_s,
)
from draftwerk_tools.trials.tiny_model import tiny_config, tiny_weights
from tests.model.native.stored.stored_models import Kinds, stored_weights, wide_config
from tests.support.runners import require_kernels

TOOK_S = (5.0, 3.0, 4.0)
"""Of the repeats of a step."""


def test_a_trial_is_the_sum_of_the_best_steps_and_leaves_the_model_alone(pool: Pool) -> None:
    config = tiny_config()
    weights = tiny_weights(config)
    for dtype in ("bf16", "int8"):
        # Nothing passes between a step's end and the next one's begin.
        passing = [0.0, *chain.from_iterable((took, 0.0) for took in TOOK_S * len(STEPS))]
        clock = accumulate(passing)
        assert len(TOOK_S) == REPEATS
        assert trial_s(config, weights, dtype, 3, lambda clock=clock: next(clock)) == (
            min(TOOK_S) * len(STEPS)
        )
    assert len(weights.layers) == config.layer_count == 2


def test_what_is_in_memory_by_chance_is_not_read_from_disk() -> None:
    assert foretold_ms(0.0, 300.0, 20.0) == 300.0
    assert foretold_ms(0.75, 300.0, 20.0) == 90.0
    assert foretold_ms(1.0, 300.0, 20.0) == 20.0


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize(("rows", "loops"), [(8, VECTOR_LOOPS), (32, ALL_LOOPS)])
def test_no_product_is_faster_than_the_peak(kind: str, rows: int, loops: tuple[int, ...]) -> None:
    require_kernels()
    pool, config = Pool(1), wide_config()
    forward = NativeForward(config, stored_weights(config, Kinds.all(kind)), "stored", pool)
    shape = model_shape(config, 1.0, 1.0)
    weights = shape.layer_count * shape.layer_weights + shape.head_weights
    products_s: list[float] = []
    for _ in range(50):
        begun = process_time()
        pool.library.measure_linears(forward.handle, rows, rows)
        products_s.append(process_time() - begun)
    rate = 2.0 * rows * weights / min(products_s)
    # The best of several: a neighbour on the core halves one reading or all of a moment's.
    peak = max(peak_flops(pool, forward.format, process_time, loops) for _ in range(4))
    assert 0.05 * peak_flops(pool, forward.format, process_time) < rate < peak
