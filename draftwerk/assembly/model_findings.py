"""The doctor's findings on a model that was measured."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from draftwerk.cache.pages.page_layout import PageLayout
    from draftwerk.speculative.protocol.frames import Ready

MB = 10**6
SHORT = 64
"""Keys that a token of a step may attend to, for the step to count as one without context."""
FREE_TOKENS = 8
"""A usual step of one reader: its token and what is guessed."""


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at."""

    state: str
    """good, poor (it works, slowly), or bad (it cannot serve)."""
    subject: str
    words: str


def expectations(ready: "Ready", snapshot_interval: int = 0) -> Iterator[Finding]:
    """Return the lines about a measured model's speed, and what its recurrent states take.

    `snapshot_interval` is in tokens.
    """
    ranks = f", {1 + len(ready.ranks)} processes" if ready.ranks else ""
    yield Finding("good", "runs on", f"{ready.device}, attention {ready.attention}{ranks}")
    if ready.kernels.startswith("none"):
        yield Finding("poor", "kernels", ready.kernels)
    if ready.draft_head:
        yield Finding("good", "draft head", ready.draft_head)
    if ready.states[0]:
        yield _states(*ready.states, snapshot_interval)
    if ready.pages is not None and ready.pages.window is not None:
        yield _windows(ready.pages, ready.pages.window)
    if ready.weight_bytes:
        rate = ready.weight_bytes / ready.weight_ms / 1e6
        words = (
            f"{ready.weight_bytes / 1e6:.0f} MB of weights, read at {rate:.0f} GB/s: "
            f"no step is under {ready.weight_ms:.1f} ms"
        )
        yield Finding("good", "bandwidth", words)
    costs = {
        load.tokens: ms
        for load, ms in ready.step_costs
        if load.context_tokens <= SHORT * load.tokens
    }
    if 1 not in costs:
        return
    table = ", ".join(f"{tokens}: {ms:.1f}" for tokens, ms in costs.items())
    yield Finding("good", "milliseconds of a step, by tokens in it", table)
    yield Finding("good", "expect", _expect([*costs.items()]))


def _windows(others: "PageLayout", windows: "PageLayout") -> Finding:
    """Say how the memory is divided between layers with windows and the others."""
    words = (
        f"{others.block_count} blocks of {others.block_bytes / MB:.2f} MB for layers without, "
        f"{windows.block_count} of {windows.block_bytes / MB:.2f} MB for layers with them: these "
        "keep of each text what its next tokens see, and what is cached"
    )
    return Finding("good", "attention windows", words)


def _states(slots: int, size: int, interval: int) -> Finding:
    """Say what recurrent layers keep of texts."""
    words = (
        f"{slots} slots of {size / MB:.1f} MB, {slots * size / MB:.0f} MB of kv-memory: two or "
        "three for each text that runs, two for each beam of a search, the others for snapshots, "
        f"at the end of a prompt, of a reply, where prompts part, and every {interval:,} tokens"
    )
    return Finding("good", "recurrent states", words)


def _expect(costs: Sequence[tuple[int, float]]) -> str:
    """Return the lines that explain the step costs."""
    alone = costs[0][1]
    best, ms = max(costs, key=lambda cost: cost[0] / cost[1])
    words = f"{1e3 / alone:.0f} tokens/s for one reader, {1e3 * best / ms:.0f} for {best} at once"
    for tokens, ms in costs:
        if tokens == FREE_TOKENS:
            words += (
                f"; {tokens} tokens in a step cost {ms / alone:.1f} of one: where guesses are "
                f"right, up to {tokens * alone / ms:.1f} times that"
            )
    return words
