"""How well and how fast the draft head guesses.

    python -m benchmarks.drafting.draft_head spec_bench.jsonl

The target decodes some prompts of each category greedily, a token a step. After every step the head
drafts, as it would for a request, and is timed, with its matrices as cold as in service. Its
first choice at each depth, given the tokens between, is then compared with the text. Noise is drawn
at every position as well: how often the head's best guess, with its probabilities sharpened or not,
is the target's token at that temperature.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.support.prompts import by_category
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.draft_head.head import HeadStep
from draftwerk.model.draft_head.tree import LEVELS, LOOKED, Start, TreeHead
from draftwerk.model.process.build import ModelOptions, build
from draftwerk.model.step.backend import BoundHead, LoadedModel
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.protocol.rounds import NO_DRAFT
from draftwerk.speculative.sources.sequence_noise import GREEDY

SHARPNESSES = (1.0, 1.25, 1.5, 2.0, 3.0)
TEMPERATURES = (0.7, 1.0)


class DecodedText(NamedTuple):
    """A text, and what the target's head read before each of its tokens but the first."""

    tokens: list[int]
    states: Tensor
    logits: Tensor
    """Of each of its tokens."""
    step_ms: list[float]
    head_ms: list[float]


def decode(
    parts: LoadedModel, head: BoundHead[TreeHead], prompt: Sequence[int], count: int
) -> DecodedText:
    """Generate `count` tokens, and run the head after each."""
    size, known = parts.pages.block_size, list(prompt)
    blocks = tuple(range(-(-(len(prompt) + count) // size)))
    tokens, states, said = list[int](), list[Tensor](), list[Tensor]()
    steps, head_tree = list[float](), list[float]()
    start = 0
    for _ in range(count):
        builder = BatchBuilder(size)
        builder.add(known[start:], start, blocks[: -(-len(known) // size)], NO_DRAFT, True)
        begun = perf_counter()
        logits = parts.run(builder)
        steps.append(1e3 * (perf_counter() - begun))
        start, token = len(known), int(logits[0].argmax())
        state = head.states[0]
        begun = perf_counter()
        head.step.grow([Start(state, token, start + 1, GREEDY)])
        head_tree.append(1e3 * (perf_counter() - begun))
        known.append(token)
        tokens.append(token)
        states.append(state)
        said.append(logits[0].clone())
    return DecodedText(tokens, torch.stack(states), torch.stack(said), steps[1:], head_tree)


def right(step: HeadStep, decoded: DecodedText) -> list[tuple[int, int]]:
    """Return by depth how often the head's first choice is the target's token, of how many."""
    states, found = decoded.states, list[tuple[int, int]]()
    for depth in range(1, LEVELS + 1):
        between = decoded.tokens[depth - 1 : -1]
        states, tokens, _ = step(states[: len(between)].contiguous(), between, 1)
        hits = sum(
            best[0] == said for best, said in zip(tokens, decoded.tokens[depth:], strict=True)
        )
        found.append((hits, len(between)))
    return found


def drawn(
    step: HeadStep, decoded: DecodedText, temperature: float, dice: torch.Generator
) -> list[float]:
    """Return by sharpness the share of places where the head's best guess is what is drawn."""
    between = decoded.tokens[:-1]
    logits = decoded.logits[1:] / temperature
    noise = -torch.empty_like(logits).exponential_(generator=dice).log()
    wanted = (logits + noise).argmax(-1)
    _, tokens, logprobs = step(decoded.states[:-1].contiguous(), between, LOOKED)
    candidates = torch.tensor(tokens)
    scores = torch.tensor(logprobs) / temperature
    lifts = noise.gather(1, candidates)
    found = [(sharpness * scores + lifts).argmax(-1, keepdim=True) for sharpness in SHARPNESSES]
    return [float((candidates.gather(1, best)[:, 0] == wanted).float().mean()) for best in found]


def run(arguments: argparse.Namespace) -> None:
    options = ModelOptions(source=arguments.model, dtype=arguments.dtype, draft_head=arguments.head)
    parts = build(options, print).parts
    head = parts.draft_head
    if head is None:
        raise SystemExit("there is no draft head for this model")
    text = TextTokenizer(locate(arguments.model).directory)
    steps, head_tree = list[float](), list[float]()
    totals = [(0, 0)] * LEVELS
    dice = torch.Generator().manual_seed(1)
    draws: dict[float, list[list[float]]] = {temperature: [] for temperature in TEMPERATURES}
    prompt_max = parts.pages.block_size * parts.pages.keys.shape[1] - arguments.tokens
    print("first choices right, by depth")
    for category, questions in by_category(arguments.path, arguments.count).items():
        sums = [(0, 0)] * LEVELS
        for question in questions:
            prompt = text.encode_continuation(
                text.render_chat([{"role": "user", "content": question}])
            )
            decoded = decode(parts, head, prompt[-prompt_max:], arguments.tokens)
            steps += decoded.step_ms
            head_tree += decoded.head_ms
            sums = _added(sums, right(head.step, decoded))
            for temperature, found in draws.items():
                found.append(drawn(head.step, decoded, temperature, dice))
        totals = _added(totals, sums)
        print(f"{category:24s}", *_shares(sums), flush=True)
    print(f"{'all':24s}", *_shares(totals))
    print("best guess drawn, by sharpness", *SHARPNESSES)
    for temperature, found in draws.items():
        means = [fmean(column) for column in zip(*found, strict=True)]
        print(f"{f'temperature {temperature:g}':24s}", *(f"{mean:.3f}" for mean in means))
    print(f"a step {median(steps):.2f} ms, thinking {median(head_tree):.3f} ms")


def _added(some: list[tuple[int, int]], more: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(a + c, b + d) for (a, b), (c, d) in zip(some, more, strict=True)]


def _shares(sums: list[tuple[int, int]]) -> list[str]:
    return [f"{hits / max(1, count):.3f}" for hits, count in sums]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--head", default="auto")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--count", type=int, default=8, help="prompts of each category")
    parser.add_argument("--tokens", type=int, default=96)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
