"""`draftwerk doctor --report`: what this machine can do with a model, as a page.

Every figure follows from steps that the command measures, in each format: T(tokens, context) is
learnt from them, and rates, users and costs are read off it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from draftwerk.api.core.config import Settings
from draftwerk.loadtest.report.chart import PALETTE, Chart, Series
from draftwerk.loadtest.report.html import cards, heading, page, paragraph, table
from draftwerk.machine.host import cpu_name
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.protocol.frames import Ready

FORMATS = ("bf16", "int8", "int4")
USERS = (1, 4, 16, 64)
CONTEXTS = (256, 1024, 3072)
CONTEXT = 1024
"""Of the tables where one must do: a prompt and half of its answer."""
USERS_MAX = 1024
PROMPTS = (16, 32, 64, 128, 256, 512)


class PlannedCache(Protocol):
    """What is asked of the plan: how much the cache holds."""

    @property
    def block_count(self) -> int: ...
    @property
    def block_size(self) -> int: ...


class Surveyed(NamedTuple):
    """One format."""

    dtype: str
    ready: Ready
    roofline: Roofline
    cost: StepCost
    capacity: int
    """Tokens that the key-value cache holds."""

    def step_ms(self, users: int, context: int) -> float:
        """Return T of a step that gives each user a token."""
        return self.cost.ms(StepLoad(users, users, users * context, users * context))

    def users(self, tpot_ms: float, context: int) -> int:
        """Return how many users get their tokens in time, as far as the cache holds them."""
        low, high = 0, min(USERS_MAX, self.capacity // context)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if self.step_ms(middle, context) <= tpot_ms else (low, middle - 1)
            )
        return low


Survey = Callable[[Settings], tuple[Ready, PlannedCache]]


def write_report(
    target: Path, settings: Settings, survey: Survey, price: float | None, tpot_ms: float
) -> int:
    """Measure every format that can be served, and write the page. Raises ConfigError."""
    if (price is not None and price < 0) or tpot_ms <= 0:
        raise ConfigError("--price-per-hour and --tpot-ms must be positive")
    if target.is_dir() or not target.parent.is_dir():
        raise ConfigError(f"--report {target}: not a file in a folder that exists")
    found: list[Surveyed] = []
    for dtype in FORMATS if settings.dtype == "auto" else (settings.dtype,):
        print(f"measuring {dtype} ...", flush=True)
        try:
            found.append(_surveyed(dtype, settings, survey))
        except ConfigError as error:
            print(f"  {error}")
    if not found:
        raise ConfigError("--report: no format could be measured")
    target.write_text(report_page(found, price, tpot_ms))
    print(target)
    return 0


def _surveyed(dtype: str, settings: Settings, survey: Survey) -> Surveyed:
    ready, planned = survey(msgspec.structs.replace(settings, dtype=dtype))
    if ready.roofline is None:
        raise ConfigError(f"{dtype}: this device's rates are not measured yet; a CPU's are")
    cost = StepCost(ready.step_costs, ready.roofline)
    return Surveyed(dtype, ready, ready.roofline, cost, planned.block_count * planned.block_size)


def report_page(found: Sequence[Surveyed], price: float | None, tpot_ms: float) -> str:
    """Return the page."""
    charts = [_roofline(found), _prefill(found), *(_decoding(found, each) for each in CONTEXTS)]
    ready = found[0].ready
    body = [
        cards(_headlines(found, price, tpot_ms)),
        '<div class="charts">' + "".join(chart.html() for chart in charts) + "</div>",
        heading("Which format for which load"),
        paragraph(f"Tokens per second of all users together, each behind {CONTEXT} tokens."),
        table(_by_load(found)),
        heading(f"Users at {tpot_ms:g} ms a token, and what a million tokens costs"),
        paragraph(
            "The most users whose tokens come in time and whose context the cache holds; without "
            "drafts, and without the prompts of new requests."
        ),
        table(_by_context(found, price, tpot_ms)),
        heading("Measured steps"),
        paragraph("Predicted is T(tokens, context), learnt from the same steps."),
        table(_steps(found)),
    ]
    sub = f"{cpu_name()}, {ready.threads} threads, {ready.kernels}"
    return page("What this machine can do", sub, body)


def _headlines(
    found: Sequence[Surveyed], price: float | None, tpot_ms: float
) -> list[tuple[str, str]]:
    best = max(found, key=lambda one: one.users(tpot_ms, CONTEXT))
    users = best.users(tpot_ms, CONTEXT)
    values = [
        (f"{found[0].roofline.rates.bytes_per_s / 1e9:.0f} GB/s", "reading weights"),
        *(
            (f"{one.roofline.rates.flops_per_s / 1e9:,.0f} GFLOP/s", f"peak, {one.dtype}")
            for one in found
        ),
        (f"{best.capacity:,}", f"tokens in the cache, {best.dtype}"),
        (f"{users}", f"users at {tpot_ms:g} ms a token, {best.dtype}"),
    ]
    if price is not None and users:
        values.append((f"{_cost(best, users, CONTEXT, price):.2f}", "per million tokens"))
    return values


def _roofline(found: Sequence[Surveyed]) -> Chart:
    """Products of steps without context: arithmetic rate over FLOPs per byte of weights."""
    series: list[Series] = []
    for one, colour in zip(found, PALETTE, strict=False):
        series.append(Series(f"{one.dtype} roof", _roof(one.roofline), colour=colour))
        points = [
            (_intensity(one.roofline, load), one.roofline.shape.product_flops(load) / ms / 1e6)
            for load, ms in one.ready.step_costs
            if load.context_tokens <= 64 * load.tokens
        ]
        series.append(Series(f"{one.dtype} measured", points, "dots", colour))
    return Chart(
        title="Roofline",
        note="Below the bend a step waits for memory, to the right of it for arithmetic.",
        x_label="FLOP per byte of weights",
        y_label="GFLOP/s",
        series=series,
        log_x=True,
    )


def _roof(roofline: Roofline) -> list[tuple[float, float]]:
    rates = roofline.rates
    bend = rates.flops_per_s / rates.bytes_per_s
    spots = sorted({bend, *(2.0**power for power in range(0, 11))})
    return [(at, min(rates.flops_per_s, at * rates.bytes_per_s) / 1e9) for at in spots]


def _intensity(roofline: Roofline, load: StepLoad) -> float:
    return roofline.shape.product_flops(load) / roofline.shape.weights_read(load)


def _prefill(found: Sequence[Surveyed]) -> Chart:
    series: list[Series] = []
    for one, colour in zip(found, PALETTE, strict=False):
        line = [(count, one.cost.ms(StepLoad().with_row(0, count, 1))) for count in PROMPTS]
        dots = [
            (load.tokens, ms)
            for load, ms in one.ready.step_costs
            if load.outputs == 1 and load == StepLoad().with_row(0, load.tokens, 1)
        ]
        series += [
            Series(f"{one.dtype} predicted", line, colour=colour),
            Series(f"{one.dtype} measured", dots, "dots", colour),
        ]
    return Chart(title="Prefill", x_label="tokens of the prompt", y_label="ms", series=series)


def _decoding(found: Sequence[Surveyed], context: int) -> Chart:
    series: list[Series] = []
    for one, colour in zip(found, PALETTE, strict=False):
        line = [(users, one.step_ms(users, context)) for users in (1, 2, 4, 8, 16, 32, 64)]
        dots = [
            (load.tokens, ms)
            for load, ms in one.ready.step_costs
            if load.kv_tokens == load.context_tokens
            and load.outputs == load.tokens
            and abs(load.context_tokens / load.tokens - context) < context / 64
        ]
        series += [
            Series(f"{one.dtype} predicted", line, colour=colour),
            Series(f"{one.dtype} measured", dots, "dots", colour),
        ]
    return Chart(
        title=f"Decoding behind {context} tokens",
        x_label="users, a token each",
        y_label="ms a step",
        series=series,
    )


def _by_load(found: Sequence[Surveyed]) -> list[list[str]]:
    lines = [["users", *(one.dtype for one in found), "take"]]
    for users in USERS:
        rates = {one.dtype: 1e3 * users / one.step_ms(users, CONTEXT) for one in found}
        best = max(rates, key=rates.__getitem__)
        lines.append([str(users), *(f"{rate:,.0f}" for rate in rates.values()), best])
    return lines


def _by_context(found: Sequence[Surveyed], price: float | None, tpot_ms: float) -> list[list[str]]:
    lines = [["format", "context", "cache holds", "users", "tokens/s", "per million tokens"]]
    for one in found:
        for context in CONTEXTS:
            users = one.users(tpot_ms, context)
            rate = 1e3 * users / one.step_ms(users, context) if users else 0.0
            asked = price is not None and users > 0
            cost = f"{_cost(one, users, context, price or 0.0):.2f}" if asked else "-"
            holds = f"{one.capacity // context}"
            lines.append([one.dtype, str(context), holds, str(users), f"{rate:,.0f}", cost])
    return lines


def _cost(one: Surveyed, users: int, context: int, price: float) -> float:
    """Return the price of a million tokens, in the currency of the price of an hour."""
    tokens_per_hour = 3.6e6 * users / one.step_ms(users, context)
    return 1e6 * price / tokens_per_hour


def _steps(found: Sequence[Surveyed]) -> list[list[str]]:
    head = ["format", "tokens", "logits", "keys attended", "slots read", "ms", "predicted"]
    lines = [head]
    for one in found:
        for load, ms in one.ready.step_costs:
            counts = (load.tokens, load.outputs, load.context_tokens, load.kv_tokens)
            shown = [f"{count:,}" for count in counts]
            lines.append([one.dtype, *shown, f"{ms:.1f}", f"{one.cost.ms(load):.1f}"])
    return lines
