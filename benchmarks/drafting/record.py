"""Texts of the default model, recorded for replay.

    python -m benchmarks.drafting.record prompts.jsonl FILE [--head FILE|auto|off]

What `python -m benchmarks.drafting.sources FILE` reads: one JSON object a line with the prompt, the
seeded output, the target's top-k and its draft head's tree at each position.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.support.prompts import by_category
from benchmarks.support.runners import build_runner
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.process.build import ModelOptions
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.protocol.rounds import (
    LOSS_NATS,
    NO_DRAFT,
    HeadNode,
    NewSequence,
    Proposal,
    Round,
    Row,
)
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.sources.recycle import RANKS

BLOCK_SIZE = 16
BLOCKS_EACH = 128
AT_ONCE = 8
CHUNK_MAX = 256
STOP = (2,)


class Live:
    """One text while it is written, in blocks of its own."""

    def __init__(
        self, index: int, category: str, prompt: Sequence[int], sampling: Sampling
    ) -> None:
        self.index, self.category, self.sampling = index, category, sampling
        self.tokens, self.prompt_count = list(prompt), len(prompt)
        self.computed = 0
        self.new_token_ids: tuple[int, ...] = ()
        self.topk: list[tuple[int, list[int], list[int]]] = []
        self.head_tree: list[tuple[HeadNode, ...]] = []

    def row(self) -> Row:
        """Return what is to be computed next."""
        stop = min(len(self.tokens), self.computed + CHUNK_MAX)
        first = 1 + self.index * BLOCKS_EACH
        new_sequence = None
        if not self.computed:
            new_sequence = NewSequence(tuple(self.tokens), self.prompt_count, self.sampling)
        blocks = tuple(range(first, first + BLOCKS_EACH))
        row = Row(
            sequence_id=self.index,
            start=self.computed,
            stop=stop,
            samples=stop == len(self.tokens),
            draft_max=0,
            blocks=blocks,
            new_token_ids=self.new_token_ids,
            new_sequence=new_sequence,
        )
        self.computed, self.new_token_ids = stop, ()
        return row

    def record(self) -> str:
        """Return its line."""
        return msgspec.json.encode(
            {
                "category": self.category,
                "prompt": self.tokens[: self.prompt_count],
                "output": self.tokens[self.prompt_count :],
                "topk": self.topk,
                "head_tree": self.head_tree,
                "temperature": self.sampling.temperature,
                "seed": self.sampling.seed,
            }
        ).decode()


def write(runner: TargetRunner, lives: list[Live], count: int) -> None:
    """Write texts of up to `count` tokens, all at once."""
    writing, number = list(lives), 0
    closed: tuple[int, ...] = ()
    while writing:
        number += 1
        round_ = Round(
            round_id=number,
            pipeline_slot=0,
            rows=tuple(live.row() for live in writing),
            finished_ids=closed,
        )
        verdict = runner.step(Proposal(round_, (NO_DRAFT,) * len(writing)))
        for live, decision in zip(writing, verdict.decisions, strict=True):
            assert not decision.error, decision.error
            if decision.tokens:
                live.tokens.extend(decision.tokens)
                live.new_token_ids = decision.tokens
                live.head_tree.append(decision.feedback.head_tree)
                best = decision.logprobs[0].top
                live.topk.append(
                    (
                        live.tokens[-2],
                        [token for token, _ in best],
                        [round(-chance / LOSS_NATS) for _, chance in best],
                    )
                )
        ended = [
            live
            for live in writing
            if len(live.tokens) - live.prompt_count == count or live.tokens[-1] in STOP
        ]
        closed = tuple(live.index for live in ended)
        writing = [live for live in writing if live not in ended]
    runner.cached_sequences.close(closed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=8, help="prompts per category")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--head", default="auto", help="a draft head's file, auto or off")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    arguments = parser.parse_args()
    runner = build_runner(
        ModelOptions(
            dtype=arguments.dtype,
            draft_head=arguments.head,
            block_count=1 + AT_ONCE * BLOCKS_EACH,
            block_size=BLOCK_SIZE,
            threads=arguments.threads,
        )
    )
    text = TextTokenizer(locate(None).directory)
    sampling = Sampling(temperature=arguments.temperature, logprobs=RANKS, stop_token_ids=STOP)
    found: list[tuple[str, list[int]]] = []
    for category, prompts in by_category(arguments.prompts, arguments.count).items():
        for prompt in prompts:
            tokens = text.encode_continuation(
                text.render_chat([{"role": "user", "content": prompt}])
            )
            if len(tokens) + arguments.tokens < BLOCKS_EACH * BLOCK_SIZE:
                found.append((category, tokens))
    with arguments.output.open("w") as file:
        for first in range(0, len(found), AT_ONCE):
            lives = [
                Live(index, category, tokens, msgspec.structs.replace(sampling, seed=first + index))
                for index, (category, tokens) in enumerate(found[first : first + AT_ONCE])
            ]
            write(runner, lives, arguments.tokens)
            file.writelines(live.record() + "\n" for live in lives)
            print(f"{first + len(lives)} of {len(found)}", flush=True)


if __name__ == "__main__":
    main()
