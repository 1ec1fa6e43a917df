"""The default model's texts on a device, beside those of a CPU in float32.

Each text is decoded on the device without drafts, with them, and beside all others. The CPU is
given it as drafts: where it decides otherwise, its margin tells a near-tie from a mistake.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import anyio
import msgspec

from benchmarks.speed.speculation import decode
from benchmarks.support.engine import chat, engine
from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Failed
from draftwerk.api.shared.config import Settings
from draftwerk.model.native.isa import NONE, VARIABLE
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling

PROMPTS = (
    "Explain how a bicycle stays upright.",
    "Write a Python function that merges two sorted lists.",
    "List ten facts about the sea, then repeat the list in reverse.",
    "Summarise: a cache keeps what was asked for last, because it is asked for again soon.",
)
TIE_NATS = 0.02
"""Rounding of a forward pass in bf16 moves a token's score by about as much."""
WAYS = ("plain", "drafted", "together")


class TextCase(NamedTuple):
    """What is decoded."""

    prompt: str
    options: Options

    def way(self, name: str) -> Options:
        """Return the options of one way to decode it; no way drafts from another's text."""
        tenant = f"{self.options.tenant} {name}"
        speculation = Speculation(enabled=name != "plain")
        return msgspec.structs.replace(self.options, tenant=tenant, speculation=speculation)


class DeviceText(NamedTuple):
    """A case, and its tokens by the way that they were decoded."""

    case: TextCase
    tokens: dict[str, tuple[int, ...]]


class Parting(NamedTuple):
    """Where a CPU decides otherwise than a device."""

    place: int
    margin: float | None
    """In nats, noise included; None where the device's token could not be drawn at all."""


def text_cases(count: int, tokens: int) -> list[TextCase]:
    """Return greedy and drawn requests of the first prompts."""
    return [
        TextCase(prompt, Options(sampling=sampling, tokens_max=tokens, tenant=f"{number} {heat}"))
        for number, prompt in enumerate(PROMPTS[:count])
        for heat in (0.0, 0.8)
        for sampling in (Sampling(temperature=heat, seed=number),)
    ]


def device_rows(settings: Settings, cases: Sequence[TextCase], smoke: bool) -> list[dict[str, Any]]:
    """Decode the cases with some settings, and return how they compare; a row for each heat."""
    with torch_alone(smoke):
        texts = anyio.run(_decoded, settings, cases)
    plain = msgspec.structs.replace(settings, device="cpu", dtype="fp32", exact=False)
    partings = anyio.run(_partings, plain, texts)
    heats = sorted({text.case.options.sampling.temperature for text in texts})
    rows: list[dict[str, Any]] = []
    for heat in heats:
        chosen = [
            (text, parting)
            for text, parting in zip(texts, partings, strict=True)
            if text.case.options.sampling.temperature == heat
        ]
        rows.append({"temperature": heat, "exact": settings.exact, **compared(chosen)})
    return rows


def compared(texts: Sequence[tuple[DeviceText, Parting | None]]) -> dict[str, Any]:
    """Return counts of texts: those equal in every way, equal to a CPU's, and parted at a tie."""
    apart = [parting for _, parting in texts if parting is not None]
    ties = [one for one in apart if one.margin is not None and one.margin < TIE_NATS]
    return {
        "texts": len(texts),
        **{
            f"{way}_as_plain": sum(text.tokens[way] == text.tokens["plain"] for text, _ in texts)
            for way in WAYS[1:]
        },
        "as_on_a_cpu": len(texts) - len(apart),
        "parted_at_a_tie": len(ties),
        "largest_margin": max((one.margin or 0.0 for one in apart), default=0.0),
    }


@contextmanager
def torch_alone(smoke: bool) -> Generator[None]:
    """Have a rehearsal compute by torch what stands for the device."""
    before = os.environ.get(VARIABLE)
    if smoke:
        os.environ[VARIABLE] = NONE
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


async def _decoded(settings: Settings, cases: Sequence[TextCase]) -> list[DeviceText]:
    texts = [DeviceText(case, {}) for case in cases]
    async with engine(settings) as running:
        for text in texts:
            for way in WAYS[:2]:
                await _decode(running, text, way)
        async with anyio.create_task_group() as tasks:
            for text in texts:
                tasks.start_soon(_decode, running, text, WAYS[2])
    return texts


async def _decode(running: Engine, text: DeviceText, way: str) -> None:
    found = await decode(running, text.case.prompt, text.case.way(way))
    assert found is not None, text.case.prompt
    text.tokens[way] = tuple(found.tokens)


async def _partings(settings: Settings, texts: Sequence[DeviceText]) -> list[Parting | None]:
    async with engine(settings) as running:
        return [await _parting(running, text) for text in texts]


async def _parting(running: Engine, text: DeviceText) -> Parting | None:
    """Return where a CPU parts from a text, None where it decides all of it the same."""
    claimed = text.tokens["plain"]
    options = msgspec.structs.replace(
        text.case.options, forced_tokens=claimed, tokens_max=len(claimed)
    )
    place = 0
    async with running.generate(
        chat(text.case.prompt), options, request_id=options.tenant
    ) as events:
        async for event in events:
            if isinstance(event, Failed):
                raise RuntimeError(event.reason)
            for token in event.tokens if isinstance(event, Delta) else ():
                if token != claimed[place]:
                    return Parting(
                        place, event.further.margin if isinstance(event, Delta) else None
                    )
                place += 1
    return None
