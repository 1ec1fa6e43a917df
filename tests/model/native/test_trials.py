"""The time of a model on so many threads, by a clock that is given."""

from itertools import accumulate, chain

from draftwerk.model.fingerprint.tiny_model import tiny_config, tiny_weights
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.trials import REPEATS, STEPS, foretold_ms, trial_s

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
