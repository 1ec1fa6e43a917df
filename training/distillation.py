"""Distil a small draft model from a model, on texts that the model generated.

`python -m training.distillation texts.jsonl DIRECTORY` keeps some of the model's layers with its
embedding, and trains the layers on the texts of `training.talk` until what the student's head reads
is what the model's reads: the loss is the divergence from the model's distribution over its
frequent tokens, and the distance of the two states, which holds all other tokens in their places.
DIRECTORY is then served with `draftwerk serve --draft DIRECTORY`.

What the model's head reads is kept beside the texts, for this model. With `--seconds` the course
stops in time; the same command goes on with it.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from draftwerk.model.checkpoint.hub import locate
from training.bf16_copy import bf16_copy
from training.courses import course_parser, go_on, optimised
from training.head import HELD_OUT, Distance, frequent, read
from training.states import Estimate, kept_path
from training.student_model import begin, write

STATE_WEIGHT = 1.0
"""Of the states' distance, relative to their size, beside the divergence in nats."""


class Lesson(NamedTuple):
    """Texts of like length, read at once."""

    number: int
    tokens: Tensor
    """[B, L] int64, filled up with zeros on the right, where nothing attends to them."""
    real: Tensor
    """[B, L]: which of them are tokens of the texts."""

    def on(self, device: torch.device) -> "Lesson":
        return Lesson(self.number, self.tokens.to(device), self.real.to(device))


class Marks(NamedTuple):
    """How far the student is from the model, as means over tokens."""

    divergence: Tensor
    """In nats, over the frequent tokens."""
    distance: Tensor
    """Of the states, squared, over the model's own square."""
    same: Tensor
    """Share of places with the model's first choice."""

    def __str__(self) -> str:
        names = zip(self._fields, self, strict=True)
        return "  ".join(f"{name} {value.item():.3f}" for name, value in names)


def lessons(texts: Sequence[Sequence[int]], size: int) -> list[Lesson]:
    """Return the texts in lessons of at most `size` tokens, or one text each."""
    found: list[Lesson] = []
    group: list[Sequence[int]] = []
    for text in [*sorted(texts, key=len), None]:
        if group and (text is None or len(text) * (len(group) + 1) > size):
            found.append(_lesson(len(found), group))
            group = []
        if text is not None:
            group.append(text)
    return found


def _lesson(number: int, texts: Sequence[Sequence[int]]) -> Lesson:
    tokens = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
    real = torch.zeros_like(tokens, dtype=torch.bool)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = torch.tensor(text)
        real[row, : len(text)] = True
    return Lesson(number, tokens, real)


@dataclass(slots=True)
class Teacher:
    """The model, and what its head read, in a folder."""

    model: Any
    folder: Path

    @torch.no_grad()
    def states(self, lesson: Lesson) -> Tensor:
        """Return what the head reads after each token of a lesson's texts, bf16 [N, H]."""
        path = self.folder / f"{lesson.number}.pt"
        if path.exists():
            return torch.load(path, map_location=lesson.tokens.device)
        found = self.model(lesson.tokens).last_hidden_state[lesson.real]
        torch.save(found, path)
        return found


class StudentCourse:
    """A student, what it learns from, and how far it has come."""

    def __init__(
        self,
        student: Any,
        teacher: Teacher,
        small: Tensor,
        taught: Sequence[Lesson],
        steps: int,
        rate: float,
    ) -> None:
        """`small` [V, H] are the lm_head's rows of frequent tokens."""
        self.student, self.teacher, self.small = student, teacher, small
        every = max(2, int(1 / HELD_OUT))
        self.held_out = taught[::every]
        """What is never learnt from: lessons of every length."""
        self.lessons = [lesson for lesson in taught if lesson.number % every]
        self.done, self.steps = 0, steps
        self.device = small.device
        learnt = [*student.layers.parameters(), *student.norm.parameters()]
        self.optimiser, self.schedule = optimised(learnt, rate, steps)

    def marks(self, lesson: Lesson) -> Marks:
        """Compare what both heads read after each token."""
        lesson = lesson.on(self.device)
        wanted = self.teacher.states(lesson)
        with torch.autocast(self.device.type, torch.bfloat16):
            found = self.student(lesson.tokens).last_hidden_state[lesson.real]
        # `Distance` compares each state with the place after its own.
        shifted = torch.cat([wanted[:1], wanted]).to(self.small.dtype)
        asked = torch.ones(len(shifted), dtype=torch.int64, device=self.device)
        losses, shares = Distance.apply(self.small, shifted, asked, found.float())
        theirs = wanted.float()
        distance = (found.float() - theirs).square().sum() / theirs.square().sum()
        return Marks(losses[0], distance, shares[0])

    def learn(self, seconds: float, rest: Callable[[], None]) -> None:
        """Go on with the course, to its end or for about so many seconds; `rest` now and then."""
        begun, estimate = perf_counter(), Estimate(self.done, self.steps)
        while self.done < self.steps and perf_counter() - begun < seconds:
            marks = self.marks(self._lesson(self.done))
            self.optimiser.zero_grad()
            (marks.divergence + STATE_WEIGHT * marks.distance).backward()
            nn.utils.clip_grad_norm_(self.optimiser.param_groups[0]["params"], 1.0)
            self.optimiser.step()
            self.schedule.step()
            self.done += 1
            if self.done % 20 == 0:
                print(f"{estimate.line(self.done)}: {marks}", flush=True)
                rest()

    def _lesson(self, step: int) -> Lesson:
        """Return the step's lesson: all of them come in every round, in an order of its own."""
        turn, place = divmod(step, len(self.lessons))
        order = list(range(len(self.lessons)))
        random.Random(turn).shuffle(order)
        return self.lessons[order[place]]

    @torch.no_grad()
    def evaluate(self) -> Marks:
        """Return the marks on what was held out."""
        found = [self.marks(lesson) for lesson in self.held_out]
        counts = torch.tensor([int(lesson.real.sum()) for lesson in self.held_out])
        columns = (torch.stack(column) for column in zip(*found, strict=True))
        return Marks(*((column.cpu() * counts).sum() / counts.sum() for column in columns))

    def save(self, path: Path) -> None:
        """Write down how far the course has come."""
        torch.save(
            {
                "done": self.done,
                "steps": self.steps,
                "student": self.student.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "schedule": self.schedule.state_dict(),
            },
            path,
        )

    def resume(self, path: Path) -> None:
        """Go on where a course stopped. Raises ValueError if it was one of other steps."""
        found = torch.load(path, map_location=self.device)
        if found.get("steps", self.steps) != self.steps:
            raise ValueError(f"{path} is of a course of {found['steps']} steps, not {self.steps}")
        self.done = found["done"]
        self.student.load_state_dict(found["student"])
        self.optimiser.load_state_dict(found["optimiser"])
        self.schedule.load_state_dict(found["schedule"])


def train(arguments: argparse.Namespace) -> None:
    from transformers import AutoModelForCausalLM

    source = bf16_copy(locate(arguments.model))
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    model = model.to(arguments.device)
    texts = read(arguments.texts, arguments.tokens)
    taught = lessons(texts, arguments.batch)
    vocabulary = frequent(texts, arguments.vocabulary, model.config.vocab_size)
    folder = kept_path(arguments.texts, texts, source, arguments.batch)
    folder.mkdir(exist_ok=True)
    course = StudentCourse(
        begin(model.model, arguments.layers),
        Teacher(model.model, folder),
        model.lm_head.weight.detach()[vocabulary.to(model.device)],
        taught,
        arguments.steps,
        arguments.rate,
    )
    kept_course = go_on(course, arguments.directory, "training.distillation")
    course.learn(arguments.seconds, lambda: course.save(kept_course))
    course.save(kept_course)
    head = None if model.config.tie_word_embeddings else model.lm_head.weight
    write(course.student, head, source, arguments.directory)
    print(f"{course.done} of {course.steps} steps; held out: {course.evaluate()}")


def main() -> None:
    parser = course_parser(__doc__, layers=4, batch=2048, of_batch="tokens in a step", steps=400)
    parser.add_argument("--vocabulary", type=int, default=8192)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
