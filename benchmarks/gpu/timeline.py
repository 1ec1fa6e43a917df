"""Steps of the model process on a timeline: a Chrome trace, and how long the device waits between.

A step here is the runner's: a proposal in, a verdict out. Open the trace in a browser's tracing
page or in Perfetto. Recording costs time itself: the part `steps` has the time of a step alone.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.gpu.steps import random_model
from draftwerk.model.batch.batch import Batch, Forward, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.graphs import Recorder
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.protocol.rounds import NO_DRAFT, NewSequence, Proposal, Round, Row, chain
from draftwerk.speculative.sampling.params import Sampling

STEP, FORWARD = "step", "forward"
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of a trace's events."""
SAMPLING = Sampling(temperature=0.8, seed=1)


class TimelineSpan(NamedTuple):
    """From when to when, in microseconds."""

    begin: float
    end: float


class Marked:
    """A forward pass that shows on the timeline; without a GPU it stands for the device's work."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        with record_function(FORWARD):
            return self.forward(batch, pages)


class Sequences:
    """Rows that decode side by side, each with drafts of its own."""

    def __init__(self, rows: int, length: int, context: int, goal: int, page: int, vocab: int):
        """`length` new tokens a row and step; room for `goal` tokens after the context."""
        self.rng, self.length, self.vocab = Random(1), length, vocab
        self.texts = [[self.rng.randrange(vocab) for _ in range(context)] for _ in range(rows)]
        self.computed = [0] * rows
        self.sent_count = [0] * rows
        width = -(-(context + goal + length) // page)
        self.blocks = [tuple(range(row * width, (row + 1) * width)) for row in range(rows)]
        self.rounds = 0

    def proposal(self) -> Proposal:
        """Return the next round: what is known is computed, and as much is drafted as fits."""
        drafted = 0 if self.rounds == 0 else self.length - 1
        rows: list[Row] = []
        for index, text in enumerate(self.texts):
            sent = self.sent_count[index]
            new_sequence = None if sent else NewSequence(tuple(text), len(text), SAMPLING)
            new_token_ids = tuple(text[sent:]) if sent else ()
            rows.append(
                Row(
                    sequence_id=index,
                    start=self.computed[index],
                    stop=len(text),
                    samples=True,
                    draft_max=drafted,
                    blocks=self.blocks[index],
                    new_token_ids=new_token_ids,
                    new_sequence=new_sequence,
                )
            )
            self.sent_count[index] = len(text)
        drafts = [
            chain(tuple(self.rng.randrange(self.vocab) for _ in range(drafted)), "benchmark")
            if drafted
            else NO_DRAFT
            for _ in rows
        ]
        self.rounds += 1
        return Proposal(
            Round(round_id=self.rounds, pipeline_slot=0, rows=tuple(rows)), tuple(drafts)
        )

    def commit(self, decided: Iterable[tuple[int, ...]]) -> None:
        """Take the tokens of every row."""
        for index, tokens in enumerate(decided):
            self.computed[index] = len(self.texts[index]) + len(tokens) - 1
            self.texts[index].extend(tokens)


def timeline_rows(
    config: ModelConfig,
    settings: GpuSettings,
    device: torch.device,
    dtype: torch.dtype,
    recorder: Recorder | None,
    cases: list[tuple[int, int, int]],
    steps: int,
    path: Path | None,
) -> list[dict[str, Any]]:
    """Trace so many steps of each (rows, new tokens, context); write the first case's trace."""
    parts, _ = gpu_parts(random_model(config, dtype, device), settings, recorder, progress=print)
    runner = TargetRunner(replace(parts, forward=Marked(parts.forward)))
    found: list[dict[str, Any]] = []
    for index, (rows, length, context) in enumerate(cases):
        goal = (steps + 3) * length
        sequences = Sequences(rows, length, context, goal, settings.block_size, config.vocab_size)
        trace = _traced(runner, sequences, device, steps)
        row = {"rows": rows, "length": length, "context": context, **times(trace["traceEvents"])}
        found.append(row)
        if path is not None and index == 0:
            path.write_text(json.dumps(trace | {"draftwerk": row}))
        closing = Round(round_id=0, pipeline_slot=0, rows=(), finished_ids=tuple(range(rows)))
        runner.step(Proposal(closing, ()))
    return found


def _traced(
    runner: TargetRunner, sequences: Sequences, device: torch.device, steps: int
) -> dict[str, Any]:
    def step() -> None:
        proposal = sequences.proposal()
        with record_function(STEP):
            verdict = runner.step(proposal)
        assert not any(decision.error for decision in verdict.decisions)
        sequences.commit(decision.tokens for decision in verdict.decisions)

    for _ in range(2):  # the context, and whatever is made on first use
        step()
    kinds = [ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    with profile(activities=kinds) as recorded:
        for _ in range(steps):
            step()
    return _exported(recorded)


def _exported(recorded: profile) -> dict[str, Any]:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        recorded.export_chrome_trace(str(path))
        trace: dict[str, Any] = json.loads(path.read_text())
    trace.pop("host_name", None)
    return trace


def times(events: list[dict[str, Any]]) -> dict[str, float]:
    """Return medians of a step, of the device's work in it, and of the gap before the next's."""
    marks = [event for event in events if event.get("cat") == "user_annotation"]
    steps = _spans(event for event in marks if event["name"] == STEP)
    work = _spans(event for event in events if event.get("cat") in ON_DEVICE)
    work = work or _spans(event for event in marks if event["name"] == FORWARD)
    # What a step leaves queued, such as moved slots, still belongs to it.
    bounds = pairwise([*(step.begin for step in steps), inf])
    inside = [[one for one in work if begin <= one.begin < end] for begin, end in bounds]
    ends = [(own[0].begin, max(one.end for one in own)) for own in inside if own]
    pairs = list(pairwise(ends))
    gaps = [following[0] - ended[1] for ended, following in pairs]
    periods = [following[0] - ended[0] for ended, following in pairs]
    return {
        "steps": len(steps),
        "period_us": median(periods),
        "step_us": median(step.end - step.begin for step in steps),
        "device_us": median(map(covered, inside)),
        "gap_us": median(gaps),
        "gap_max_us": max(gaps),
    }


def covered(spans: list[TimelineSpan]) -> float:
    """Return how long at least one of the spans, ordered by their beginnings, lasts."""
    total, until = 0.0, -inf
    for begin, end in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _spans(events: Iterable[dict[str, Any]]) -> list[TimelineSpan]:
    return sorted(TimelineSpan(event["ts"], event["ts"] + event["dur"]) for event in events)
