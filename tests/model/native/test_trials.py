"""The time of a model on so many threads."""

from draftwerk.model.fingerprint.tiny_model import tiny_config, tiny_weights
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.trials import trial_s


def test_a_trial_takes_time_and_leaves_the_model_alone(pool: Pool) -> None:
    config = tiny_config()
    weights = tiny_weights(config)
    assert all(0 < trial_s(config, weights, dtype, 3) < 5 for dtype in ("bf16", "int8"))
    assert len(weights.layers) == config.layer_count == 2
