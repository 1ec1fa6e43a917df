"""The hardware report over a machine with known costs: its figures are those of the steps."""

from pathlib import Path

import pytest

from draftwerk.api.core.config import Settings, load
from draftwerk.assembly.hardware_report import Surveyed, report_page, write_report
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.costs.roofline import MachineRates, Roofline
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import ModelShape, StepLoad
from draftwerk.speculative.protocol.frames import Ready

SHAPE = ModelShape(
    layer_count=30,
    hidden_size=576,
    num_heads=9,
    num_kv_heads=3,
    head_size=64,
    ffn_size=1536,
    vocab_size=49152,
    weight_bytes=2.0,
    kv_bytes=2.0,
)
RATES = MachineRates(flops_per_s=4e11, bytes_per_s=2e10, attention_flops_per_s=4e11)
ROOFLINE = Roofline(shape=SHAPE, rates=RATES)


class Cache:
    block_count, block_size = 1000, 16


def machine(settings: Settings) -> tuple[Ready, Cache]:
    """Steps exactly on the roofline; int4 is refused."""
    if settings.dtype == "int4":
        raise ConfigError("no int4 here")
    loads = [StepLoad(n, n) for n in (1, 8, 64)]
    loads += [StepLoad().with_row(0, n, 1) for n in (64, 512)]
    costs = tuple((load, ROOFLINE.ms(load)) for load in loads)
    ready = Ready(device="cpu", attention="native", exact=True, step_costs=costs, roofline=ROOFLINE)
    return ready, Cache()


def test_users_are_as_many_as_get_their_tokens_in_time_and_fit() -> None:
    ready, _ = machine(load({}, {}))
    cost = StepCost(ready.step_costs, ROOFLINE)
    one = Surveyed("bf16", ready, ROOFLINE, cost, 16000)
    assert one.users(1e9, 1024) == 16000 // 1024
    users = one.users(30.0, 256)
    assert one.step_ms(users, 256) <= 30.0 < one.step_ms(users + 1, 256)
    assert one.users(1.0, 256) == 0


def test_the_page_has_every_format_that_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    assert write_report(target, load({}, {}), machine, 2.0, 50.0) == 0
    page = target.read_text()
    assert "no int4 here" in capsys.readouterr().out
    assert "bf16 roof" in page
    assert "int8 measured" in page
    assert "int4" not in page
    assert "<b>20 GB/s</b>" in page
    assert "<b>16,000</b>" in page


def test_a_price_becomes_the_cost_of_tokens() -> None:
    ready, cache = machine(load({}, {}))
    cost = StepCost(ready.step_costs, ROOFLINE)
    one = Surveyed("bf16", ready, ROOFLINE, cost, cache.block_count * cache.block_size)
    users = one.users(50.0, 1024)
    per_hour = 3.6e6 * users / one.step_ms(users, 1024)
    assert f"<b>{1e6 * 3.0 / per_hour:.2f}</b>" in report_page([one], 3.0, 50.0)
    assert "per million tokens</span>" not in report_page([one], None, 50.0)


@pytest.mark.parametrize(
    ("where", "price", "tpot_ms", "reason"),
    [
        ("report.html", -1.0, 50.0, "must be positive"),
        ("report.html", None, 0.0, "must be positive"),
        ("no/such/report.html", None, 50.0, "not a file in a folder that exists"),
    ],
)
def test_what_cannot_be_reported_is_refused_before_anything_is_measured(
    tmp_path: Path, where: str, price: float | None, tpot_ms: float, reason: str
) -> None:
    def never(settings: Settings) -> tuple[Ready, Cache]:
        raise AssertionError("measured")

    with pytest.raises(ConfigError, match=reason):
        write_report(tmp_path / where, load({}, {}), never, price, tpot_ms)
