"""Beam searches of the default model against `transformers.generate`: run by hand.

    python -m validation.beam_oracle PROMPTS.jsonl [--prompts 20] [--tokens 48] [--widths 2 4 8]

Each line of the file has `turns`, the first of which is asked. In fp32: the same texts, and scores
within 1e-4 of their size, since some are sums over all tokens. First one prompt after another, half
of them with draft trees; then with draft trees, all of them and ordinary requests at once, in a
pool so small that searches are preempted.
"""

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.options.beams.decisions import BeamRules
from draftwerk.speculative.sampling import Sampling
from tests.support.beams.beam_searching import Found, Server, found_by_transformers
from tests.support.runners import build_runner
from training.bf16_copy import bf16_copy
from validation.transformers_oracle import prompts_of

BLOCK_SIZE = 16
DRAFT_MAX = 16
ROUND_TOKENS = 1024
"""Room for the drafts of all searches at once."""
STOP = 2
TOLERANCE = 1e-4
PENALTIES = ((1.0, False), (0.0, True), (2.0, False), (-0.5, True))
"""Length penalty and early stopping, by turns."""


def main() -> None:
    """Compare, print a line per width, and exit with 1 on any difference."""
    from transformers import AutoModelForCausalLM

    arguments = _arguments()
    directory = bf16_copy(locate(None))
    prompts = prompts_of(arguments.path, arguments.prompts, TextTokenizer(directory))
    model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    options = ModelOptions(dtype="fp32", block_size=BLOCK_SIZE, block_count=4096)
    runner = build_runner(options)
    wrong = 0
    for width in arguments.widths:
        begun = perf_counter()
        cases = [
            (prompt, _rules(width, arguments.tokens, number))
            for number, prompt in enumerate(prompts)
        ]
        wanted = [found_by_transformers(model, tuple(prompt), rules) for prompt, rules in cases]
        alone, accepted = _alone(runner, cases)
        crowd = _crowd(runner, cases)
        stats = crowd.scheduler.stats
        pairs = zip(wanted, alone, _results(crowd, len(cases)), strict=True)
        differing = [not _same(one, truth) or not _same(two, truth) for truth, one, two in pairs]
        wrong += sum(differing)
        print(
            f"width {width}: {sum(differing)} of {len(cases)} differ; "
            f"alone {accepted} drafted tokens accepted; together {stats.rounds} rounds, "
            f"{stats.accepted_tokens} of {stats.draft_tokens} drafted tokens accepted, "
            f"{stats.preemptions} preemptions; {perf_counter() - begun:.0f} s",
            flush=True,
        )
        assert stats.preemptions > 0 < stats.accepted_tokens + accepted
    raise SystemExit(1 if wrong else 0)


def _rules(width: int, tokens: int, number: int) -> BeamRules:
    penalty, early = PENALTIES[number % len(PENALTIES)]
    return BeamRules(
        width=width,
        tokens_max=tokens,
        stop_token_ids=(STOP,),
        length_penalty=penalty,
        early_stopping=early,
    )


def _alone(
    runner: TargetRunner, cases: list[tuple[list[int], BeamRules]]
) -> tuple[list[Found], int]:
    """Run one search after another, every other group of four with drafts.

    Returns what was found, and how many drafted tokens were accepted.
    """
    found: list[Found] = []
    accepted = 0
    for number, (prompt, rules) in enumerate(cases):
        server = Server(runner, DRAFT_MAX * (number // len(PENALTIES) % 2))
        name = server.submit(prompt, rules, Sampling(temperature=0.0, stop_token_ids=(STOP,)))
        server.run()
        found.append(server.result(name))
        accepted += server.scheduler.stats.accepted_tokens
    return found, accepted


def _crowd(runner: TargetRunner, cases: list[tuple[list[int], BeamRules]]) -> Server:
    """Run all searches beside ordinary requests, in as many blocks as three of them need."""
    most = max(len(prompt) + rules.width * rules.tokens_max for prompt, rules in cases)
    blocks = 3 * -(-most // BLOCK_SIZE) + DRAFT_MAX
    server = Server(runner, DRAFT_MAX, blocks, ROUND_TOKENS)
    distribution = Sampling(temperature=0.0, stop_token_ids=(STOP,))
    for prompt, rules in cases:
        server.submit(prompt, rules, distribution)
    for number, (prompt, rules) in enumerate(cases[::4]):
        server.submit(prompt, None, Sampling(seed=number), rules.tokens_max)
    server.run()
    return server


def _results(server: Server, count: int) -> list[Found]:
    return [server.result(name) for name in list(server.found)[:count]]


def _same(found: Found, wanted: Found) -> bool:
    return [text for text, _ in found] == [text for text, _ in wanted] and all(
        abs(score - truth) <= TOLERANCE * max(1.0, abs(truth))
        for (_, score), (_, truth) in zip(found, wanted, strict=True)
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--widths", type=int, nargs="+", default=[2, 4, 8])
    return parser.parse_args()


if __name__ == "__main__":
    main()
