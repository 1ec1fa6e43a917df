"""The default model against `transformers.generate`, token for token: run by hand.

    python -m validation.transformers_oracle PROMPTS.jsonl [--prompts 20] [--tokens 128]

Each line of the file has `turns`, the first of which is asked. Greedy, fp32, with speculation off,
with n-gram drafts, with random trees, and with a draft model (the same weights in bf16).
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import torch

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.rounds import NO_DRAFT, Draft, chain
from draftwerk.speculative.sampling import Sampling
from tests.support.model_driver import Driver, Live, random_tree
from tests.support.runners import build_draft_runner, build_runner
from training.bf16_copy import bf16_copy

BLOCKS = 2048


def main() -> None:
    """Compare, print a line per mode, and exit with 1 on any difference."""
    arguments = _arguments()
    text = TextTokenizer(locate(None).directory)
    prompts = prompts_of(arguments.path, arguments.prompts, text)
    begun = perf_counter()
    truths = transformers_greedy(prompts, arguments.tokens)
    print(f"transformers.generate   {perf_counter() - begun:6.1f} s", flush=True)
    options = ModelOptions(dtype="fp32", attention=arguments.attention, block_count=BLOCKS)
    runner = build_runner(options)
    wrong = 0
    for name, settings in _modes(options, runner, truths).items():
        begun = perf_counter()
        driver = run(runner, prompts, arguments.tokens, **settings)
        accepted, drafted = count(driver)
        wrong += (differing := compare(driver, truths))
        print(
            f"{name:20} {differing} of {len(truths)} differ, {driver.rounds} rounds, "
            f"{accepted} of {drafted} drafted tokens accepted, {perf_counter() - begun:.1f} s",
            flush=True,
        )
    raise SystemExit(1 if wrong else 0)


def prompts_of(path: Path, count: int, text: TextTokenizer) -> list[list[int]]:
    """Return the first turns of a file as the model reads them."""
    turns = [json.loads(line)["turns"][0] for line in path.open()]
    chats = [[{"role": "user", "content": turn}] for turn in turns[:count]]
    return [text.encode_continuation(text.render_chat(chat)) for chat in chats]


def transformers_greedy(prompts: list[list[int]], count: int) -> list[list[int]]:
    """Return the output of `generate`, from the same rounded weights in float32."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(bf16_copy(locate(None)), dtype=torch.float32)
    return [
        model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=count)[0][
            len(prompt) :
        ].tolist()
        for prompt in prompts
    ]


def run(
    runner: TargetRunner,
    prompts: list[list[int]],
    count: int,
    guess: Callable[[Live, int], Draft] = lambda live, room: NO_DRAFT,
    drafter: DraftRunner | None = None,
) -> Driver:
    """Generate for all prompts at once."""
    driver = Driver(runner, Random(1), guess, drafter, chunk_max=64)
    distribution = Sampling(temperature=0.0, stop_token_ids=(2,))
    for index, prompt in enumerate(prompts):
        driver.add(index, prompt, distribution, count)
    driver.run()
    runner.cached_sequences.close(range(len(prompts)))
    return driver


def ngram(live: Live, room: int) -> Draft:
    """Draft what followed the latest earlier occurrence of the last two tokens."""
    tokens = live.tokens
    for position in range(len(tokens) - 3, -1, -1):
        if tokens[position : position + 2] == tokens[-2:]:
            return chain(tuple(tokens[position + 2 : position + 2 + room]), "ngram")
    return NO_DRAFT


def compare(driver: Driver, truths: list[list[int]]) -> int:
    """Return how many texts differ, and print where."""
    differing = 0
    for index, (live, truth) in enumerate(zip(driver.all, truths, strict=True)):
        if live.output != truth:
            differing += 1
            pairs = zip(live.output, truth, strict=False)
            position = next((n for n, (ours, theirs) in enumerate(pairs) if ours != theirs), -1)
            print(f"  prompt {index} differs at token {position}")
    return differing


def count(driver: Driver) -> tuple[int, int]:
    """Return how many drafted tokens were accepted, of how many."""
    accepted = sum(len(decision.path) for live in driver.all for decision in live.decisions)
    return accepted, driver.drafted


def _modes(
    options: ModelOptions, runner: TargetRunner, truths: list[list[int]]
) -> dict[str, dict[str, Any]]:
    rng, vocab = Random(2), runner.vocab_size
    smaller = ModelOptions(dtype="bf16", attention=options.attention, block_count=BLOCKS)

    def tree(live: Live, room: int) -> Draft:
        return random_tree(rng, truths[live.sequence_id][len(live.output) :], vocab, room)

    return {
        "no speculation": {},
        "n-grams": {"guess": ngram},
        "random trees": {"guess": tree},
        "draft model": {"drafter": build_draft_runner(smaller)},
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--attention", default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    main()
