"""A visit to a GPU: `python -m benchmarks.gpu all --minutes 9 --output FOLDER`.

Runs the stages in the order of their worth, each in a process of its own; writes what came of it
when it ends, and goes on at the next visit where this one stopped. Nothing is installed. `--smoke`
rehearses the visit on a CPU.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec

from benchmarks.gpu.stages import StageOutcome, VisitStage, next_stage

TIMES_MAX = 2.5
"""A stage is ended after so many times what it probably takes."""
END_CHARACTERS = 1500
ENDED = -9
NOTHING = "nothing to rehearse"
OUTCOMES = "outcomes.json"
Execute = Callable[[VisitStage, float], StageOutcome]


class Visit(NamedTuple):
    """Stages, where their results lie, and how long there is."""

    stages: Sequence[VisitStage]
    folder: Path
    seconds: float
    execute: Execute
    """Runs a stage for so many seconds at most."""
    clock: Callable[[], float] = monotonic

    def run(self) -> dict[str, StageOutcome]:
        """Run what fits, and return all outcomes, those of earlier visits included."""
        self.folder.mkdir(parents=True, exist_ok=True)
        outcomes = self.outcomes()
        ends = self.clock() + self.seconds
        while (stage := next_stage(self.stages, outcomes, ends - self.clock())) is not None:
            print(f"\n== {stage.name}: {stage.question}", flush=True)
            before = outcomes.get(stage.name)
            limit_s = min(ends - self.clock(), TIMES_MAX * stage.seconds)
            found = self.execute(stage, limit_s)
            tries = 1 if before is None else before.tries + 1
            outcomes[stage.name] = msgspec.structs.replace(found, tries=tries)
            self._write(outcomes)
        print(self.summary(outcomes), flush=True)
        return outcomes

    def outcomes(self) -> dict[str, StageOutcome]:
        """Return what came of the stages so far."""
        try:
            written = (self.folder / OUTCOMES).read_bytes()
        except FileNotFoundError:
            return {}
        return msgspec.json.decode(written, type=dict[str, StageOutcome])

    def summary(self, outcomes: dict[str, StageOutcome]) -> str:
        """Return a line for each stage."""
        lines = [""]
        for stage in self.stages:
            found = outcomes.get(stage.name)
            if found is None or found.end == NOTHING:
                word, seconds = "pending", ""
            else:
                word, seconds = "failed" if found.code else "done", f"{found.seconds:.0f} s"
            lines.append(f"{stage.name:12} {word:8} {seconds:>6}  {stage.question}")
        return "\n".join(lines)

    def _write(self, outcomes: dict[str, StageOutcome]) -> None:
        """Write all outcomes whole or not at all."""
        written = self.folder / f"{OUTCOMES}.new"
        written.write_bytes(msgspec.json.format(msgspec.json.encode(outcomes)))
        written.replace(self.folder / OUTCOMES)


def executor(folder: Path, smoke: bool, clock: Callable[[], float] = monotonic) -> Execute:
    """Return what runs stages as processes; their output and figures lie in the folder."""

    def execute(stage: VisitStage, limit_s: float) -> StageOutcome:
        command = stage.smoke if smoke else stage.command
        begun, log = clock(), folder / f"{stage.name}.log"
        if not command:
            print("needs a GPU: pending")
            return StageOutcome(0, 0.0, 1, NOTHING)
        figures = folder / f"{stage.name}.json"
        given = ("--output", str(figures)) if command[0] == "benchmarks.gpu" else ()
        with log.open("w") as file:
            try:
                code = subprocess.run(
                    [sys.executable, "-m", *command, *given],
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    timeout=limit_s,
                    check=False,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                ).returncode
            except subprocess.TimeoutExpired:
                code = ENDED
        printed = log.read_text(errors="replace")
        print(printed[-END_CHARACTERS:], flush=True)
        return StageOutcome(code, clock() - begun, 1, printed[-END_CHARACTERS:])

    return execute
