"""Courses of training: their optimiser, how they are gone on with, and their command line."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

COURSE = "course.pt"
"""The file that says how far a course has come, beside what it makes."""


class Resumable(Protocol):
    """A course that was stopped may be gone on with."""

    def resume(self, path: Path) -> None:
        """Go on where a course stopped. Raises ValueError if it was another one."""
        ...


def optimised(
    parameters: Iterable[nn.Parameter], rate: float, steps: int
) -> tuple[AdamW, OneCycleLR]:
    """Return an optimiser, and the rates of its steps, which rise and fall once."""
    optimiser = AdamW(parameters, lr=rate, betas=(0.9, 0.98))
    schedule = OneCycleLR(
        optimiser, rate, total_steps=steps + 1, pct_start=0.05, cycle_momentum=False
    )
    return optimiser, schedule


def go_on(course: Resumable, directory: Path, program: str) -> Path:
    """Go on with the course of a folder, if it has one; returns the file of it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / COURSE
    if path.exists():
        try:
            course.resume(path)
        except ValueError as error:
            sys.exit(f"{program}: {error}")
    return path


def course_parser(doc: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with the common options of courses; `defaults` are of layers, batch, steps
    and what a batch is of."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--layers", type=int, default=defaults["layers"])
    parser.add_argument("--tokens", type=int, default=10**9, help="of the texts at most")
    parser.add_argument("--batch", type=int, default=defaults["batch"], help=defaults["of_batch"])
    parser.add_argument("--steps", type=int, default=defaults["steps"])
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--seconds", type=float, default=1e9, help="after which to stop for now")
    return parser
