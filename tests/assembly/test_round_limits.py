"""Limits of rounds: what was measured decides, unless the settings do."""

from math import inf

import pytest

from draftwerk.api.shared.config import load
from draftwerk.assembly.round_limits import PAUSE_S, MeasuredModel, reasons, round_limits
from draftwerk.settings.engine_checks import check_engine
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.protocol.frames import Ready
from draftwerk.speculative.scheduler import RoundLimits

COSTS = tuple((StepLoad(n, n), max(5.0, 0.01 * n)) for n in (1, 64, 512, 1024, 2048))
"""Of a machine that computes 500 tokens while it reads the weights."""
CACHE_TOKENS = 100_000
PLANNED = RoundLimits(draft_max=15, pipeline_depth=2, run_ahead=True)


def ready(costs: tuple[tuple[StepLoad, float], ...] = COSTS) -> Ready:
    return Ready(device="cpu", attention="native", exact=True, step_costs=costs)


def limits(cache_tokens: int = CACHE_TOKENS, measured: bool = True, **given: object) -> RoundLimits:
    return round_limits(load(given, {}), PLANNED, ready(COSTS if measured else ()), cache_tokens)


def told(ready: Ready, chosen: RoundLimits) -> dict[str, str]:
    """Return the reasons of what was chosen."""
    return dict(reasons(MeasuredModel(ready, chosen, CACHE_TOKENS)))


def test_limits_are_chosen_and_the_others_kept() -> None:
    found = limits()
    assert (found.rows_max, found.tokens_max, found.tokens_revised) == (390, 1728, True)
    assert (found.draft_max, found.pipeline_depth, found.run_ahead) == (15, 2, True)
    assert found.pause_s == PAUSE_S
    assert limits(cache_tokens=25_600).rows_max == 100


def test_throughput_knows_no_pauses() -> None:
    assert limits(prefer="throughput").pause_s == inf
    assert limits(prefer="throughput").in_order


def test_the_bound_of_a_prompt_that_waits_is_shown() -> None:
    shown = told(ready(()), RoundLimits(tokens_max=256))
    assert "four times the tokens before it in the queue" in shown["order of prompts"]
    assert "and 768 were read" in shown["order of prompts"]
    assert "order of prompts" not in told(ready(()), RoundLimits(in_order=True))


def test_settings_rule_and_what_depends_on_them_follows() -> None:
    found = limits(rows_max=300)
    assert (found.rows_max, found.tokens_max, found.tokens_revised) == (300, 1728, True)
    found = limits(round_tokens=96)
    assert (found.rows_max, found.tokens_max, found.tokens_revised) == (96, 96, False)
    found = limits(rows_max=4, round_tokens=32)
    assert (found.rows_max, found.tokens_max) == (4, 32)


def test_a_model_that_was_not_measured_has_the_usual_sizes() -> None:
    found = limits(measured=False)
    assert (found.rows_max, found.tokens_max) == (PLANNED.rows_max, PLANNED.tokens_max)
    found = limits(measured=False, rows_max=200)
    assert (found.rows_max, found.tokens_max) == (200, 400)
    assert limits(measured=False, round_tokens=16).rows_max == 16


def test_a_round_that_is_too_small_for_its_texts_is_refused() -> None:
    with pytest.raises(ConfigError, match="round_tokens 8 is less than a token for each of the 9"):
        check_engine(load({"rows_max": 9, "round_tokens": 8}, {}))


def test_what_was_chosen_is_told_with_its_reason() -> None:
    said = told(ready(), limits())
    assert said["texts at once"].startswith("390: the cache holds 100000")
    assert "in rounds of 1728" in said["tokens in a round"]
    pause = said["pause of a text while prompts are read"]
    assert pause.startswith(f"{1e3 * PAUSE_S:.0f} ms")
    free = told(ready(), limits(prefer="throughput"))
    assert "pause of a text while prompts are read" not in free


def test_rows_that_would_gain_nothing_are_told_so() -> None:
    even = tuple((StepLoad(n, n), 0.4 * n) for n in (1, 64, 128, 512))
    chosen = round_limits(load({}, {}), PLANNED, ready(even), CACHE_TOKENS)
    said = told(ready(even), chosen)
    assert said["texts at once"] == "128: more of them would bring hardly more tokens a second"
