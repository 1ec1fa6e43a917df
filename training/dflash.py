"""Train a DFlash drafter for a model, on texts that the model generated.

    python -m training.talk http://127.0.0.1:8000 texts.jsonl
    python -m training.dflash texts.jsonl DIRECTORY
    draftwerk serve --draft-head DIRECTORY

In each step some blocks begin at random places of some texts, and each mask learns the model's own
distribution of its token: the loss is the cross-entropy in nats, and a mask counts by
exp(-its distance / (block / 2)) (arXiv 2602.06036). `accepted` is the mean number of guesses that
are right up to the first wrong one, each the likeliest, in texts that are never learnt from.

With `--seconds` the course stops in time; the same command goes on with it.
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from draftwerk.model.checkpoint.hub import locate
from training.bf16_copy import bf16_copy
from training.block_student import BlockStudent
from training.courses import course_parser, go_on, optimised
from training.head import HELD_OUT, read
from training.states import Estimate

LAYERS_READ = 5
"""Of the target's layers, at equal distances, but its last: at most."""
HELD_OUT_MAX = 64
"""TokenLists."""
TokenLists = Sequence[Sequence[int]]


class BlockMarks(NamedTuple):
    """How good guesses are."""

    loss: Tensor
    accepted: Tensor

    def __str__(self) -> str:
        return f"loss {self.loss.item():.3f}  accepted {self.accepted.item():.2f}"


class ReadModel(NamedTuple):
    """The model that a drafter is for."""

    model: Any
    target_layers: tuple[int, ...]

    @torch.no_grad()
    def read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return a text's outputs of the target layers [L, layers * H], and its logits [L, V]."""
        found = self.model(tokens[None], output_hidden_states=True)
        states = [found.hidden_states[layer + 1][0] for layer in self.target_layers]
        return torch.cat(states, -1).float(), found.logits[0].float()


def described(
    config: Any, texts: TokenLists, layers: int, block: int, inner: int
) -> dict[str, Any]:
    """Return a drafter's config.json, for a target's in Transformers' words."""
    config = config.get_text_config()
    count, heads = config.num_hidden_layers, config.num_attention_heads
    last = max(0, count - 2)
    target_layers = sorted(
        {round(place * last / (LAYERS_READ - 1)) for place in range(LAYERS_READ)}
    )
    used = {token for text in texts for token in text}
    rope = getattr(config, "rope_parameters", None) or {}
    return {
        **{"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_act": "silu"},
        **{"vocab_size": config.vocab_size, "hidden_size": config.hidden_size},
        **{"num_hidden_layers": layers, "num_target_layers": count, "block_size": block},
        **{"num_attention_heads": heads, "num_key_value_heads": config.num_key_value_heads},
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "intermediate_size": inner or config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        **{"rms_norm_eps": config.rms_norm_eps, "rope_theta": rope.get("rope_theta", 10_000.0)},
        "dflash_config": {
            "target_layer_ids": target_layers,
            "mask_token_id": next(
                each for each in reversed(range(config.vocab_size)) if each not in used
            ),
        },
    }


@dataclass(slots=True)
class CourseSize:
    """The size and the number of a course's steps."""

    steps: int
    rate: float
    texts: int
    """Read in a step."""
    anchors: int
    """Blocks of each."""


class BlockCourse:
    """A drafter, what it learns from, and how far it has come."""

    def __init__(
        self, student: BlockStudent, target: ReadModel, texts: TokenLists, size: CourseSize
    ) -> None:
        self.student, self.target, self.size = student, target, size
        count = min(HELD_OUT_MAX, max(1, int(HELD_OUT * len(texts))))
        self.held_out, self.texts = texts[:count], texts[count:]
        self.done = 0
        self.device = student.fc.weight.device
        said = student.said
        self.block, self.mask = said["block_size"], said["dflash_config"]["mask_token_id"]
        self.optimiser, self.schedule = optimised(student.parameters(), size.rate, size.steps)

    def guesses(self, states: Tensor, tokens: Tensor, anchors: Tensor) -> Tensor:
        """Return the logits of the masks of blocks [n, block - 1, V] of a text [L]."""
        blocks = torch.full((len(anchors), self.block), self.mask, device=self.device)
        blocks[:, 0] = tokens[anchors]
        with torch.no_grad():
            embedded = self.target.model.get_input_embeddings()(blocks).float()
        found = self.student(states, anchors, embedded)[:, 1:]
        head = self.target.model.get_output_embeddings()
        return head(found.to(head.weight.dtype)).float()

    def marks(self, text: Sequence[int], dice: random.Random) -> BlockMarks:
        """Guess blocks of a text."""
        tokens = torch.tensor(text, device=self.device)
        places = range(1, len(text) - 1)
        chosen = dice.sample(places, min(self.size.anchors, len(places)))
        anchors = torch.tensor(chosen, device=self.device)
        states, wanted = self.target.read(tokens)
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.guesses(states, tokens, anchors)
        distance = torch.arange(self.block - 1, device=self.device)
        before = anchors[:, None] + distance
        real = before < len(text) - 1
        before = before.clamp(max=len(text) - 2)
        weights = torch.exp(-2.0 * distance / self.block) * real
        losses = cross_entropy(
            logits.flatten(0, 1), wanted[before].softmax(-1).flatten(0, 1), reduction="none"
        )
        right = (logits.argmax(-1) == tokens[before + 1]) & real
        return BlockMarks(
            (losses.view_as(weights) * weights).sum() / weights.sum(),
            right.int().cumprod(-1).sum(-1).float().mean(),
        )

    def learn(self, seconds: float, rest: Callable[[], None]) -> None:
        """Go on with the course, to its end or for about so many seconds; `rest` now and then."""
        begun, estimate = perf_counter(), Estimate(self.done, self.size.steps)
        while self.done < self.size.steps and perf_counter() - begun < seconds:
            dice = random.Random(self.done)
            chosen = dice.sample(self.texts, min(self.size.texts, len(self.texts)))
            found = list[BlockMarks]()
            self.optimiser.zero_grad()
            for text in chosen:
                marks = self.marks(text, dice)
                (marks.loss / len(chosen)).backward()
                found.append(BlockMarks(marks.loss.detach(), marks.accepted))
            nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
            self.optimiser.step()
            self.schedule.step()
            self.done += 1
            if self.done % 20 == 0:
                print(f"{estimate.line(self.done)}: {_mean(found)}", flush=True)
            if self.done % 200 == 0:
                rest()

    @torch.no_grad()
    def evaluate(self) -> BlockMarks:
        """Return the marks of texts that were held out, at places that are always the same."""
        return _mean([self.marks(text, random.Random(0)) for text in self.held_out])

    def save(self, path: Path) -> None:
        """Write down how far the course has come."""
        parts = {name: getattr(self, name).state_dict() for name in PARTS}
        torch.save({"done": self.done, "said": self.student.said, **parts}, path)

    def resume(self, path: Path) -> None:
        """Go on where a course stopped. Raises ValueError if it was one of another drafter."""
        found = torch.load(path, map_location=self.device)
        if found["said"] != self.student.said:
            raise ValueError(f"{path} is of a drafter of another shape")
        if found["schedule"]["total_steps"] != self.size.steps + 1:
            raise ValueError(
                f"{path} is of a course of {found['schedule']['total_steps'] - 1} steps"
            )
        self.done = found["done"]
        for name in PARTS:
            getattr(self, name).load_state_dict(found[name])


PARTS = ("student", "optimiser", "schedule")


def _mean(marks: Sequence[BlockMarks]) -> BlockMarks:
    return BlockMarks(*(torch.stack(column).mean() for column in zip(*marks, strict=True)))


def train(arguments: argparse.Namespace) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        bf16_copy(locate(arguments.model)), dtype=torch.bfloat16
    ).to(arguments.device)
    model.requires_grad_(False)
    texts = [text for text in read(arguments.texts, arguments.tokens) if len(text) > 2]
    if len(texts) < 2:
        sys.exit(f"training.dflash: {arguments.texts} holds {len(texts)} texts, and two are needed")
    said = described(model.config, texts, arguments.layers, arguments.block, arguments.inner)
    torch.manual_seed(1)
    student = BlockStudent(said).to(arguments.device)
    size = CourseSize(arguments.steps, arguments.rate, arguments.batch, arguments.anchors)
    target_layers = tuple(said["dflash_config"]["target_layer_ids"])
    course = BlockCourse(student, ReadModel(model, target_layers), texts, size)
    kept_course = go_on(course, arguments.directory, "training.dflash")

    def rest() -> None:
        print(f"held out: {course.evaluate()}", flush=True)
        course.save(kept_course)
        student.write(arguments.directory)

    course.learn(arguments.seconds, rest)
    rest()
    print(f"{course.done} of {size.steps} steps")


def main() -> None:
    parser = course_parser(__doc__, layers=3, batch=4, of_batch="texts in a step", steps=2000)
    parser.add_argument("--block", type=int, default=8, help="tokens, the anchor among them")
    parser.add_argument("--inner", type=int, default=0, help="width of MLPs; the model's if 0")
    parser.add_argument("--anchors", type=int, default=32, help="blocks of each text")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
