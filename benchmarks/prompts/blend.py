"""Retrieval prompts with their passages in another order: what reusing them gains and changes.

    python -m benchmarks.prompts.blend --questions SPEC_BENCH.jsonl

Prompts are the retrieval questions of Spec-Bench (category `rag`), each behind its own passages and
those of others until the prompt has `--length` tokens, in random order. For each, the exact model
answers greedily; then every rule and ratio is compared over that answer, its passages in the cache.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.support.bench import ResultTable, middle, parser, show
from draftwerk.assembly.blend_doctor import RetrievalLine, asked_settings, prompt_of
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.process.build import build
from draftwerk.model.step.blend.blend_quality import RetrievalPrompt, Sample, measure, summaries
from draftwerk.model.step.blend.blend_trial import BlendTrial
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.tokenizer import TextTokenizer

MADE_UP = tuple(
    RetrievalLine((f"The {name} is {colour}. " * 20,), f"What colour is the {name}?")
    for name, colour in (("river", "green"), ("bridge", "red"), ("boat", "white"), ("sky", "grey"))
)
"""Questions without a file."""


def lines_of(path: Path | None) -> list[RetrievalLine]:
    """Return each retrieval question with its own passages."""
    if path is None:
        return list(MADE_UP)
    found: list[RetrievalLine] = []
    for row in map(json.loads, path.read_text().splitlines()):
        if row["category"] == "rag":
            *passages, question = row["turns"][0].strip().splitlines()
            found.append(RetrievalLine(tuple(each for each in passages if each.strip()), question))
    return found


def shuffled(
    text: TextTokenizer, asked: list[RetrievalLine], number: int, length: int, rng: random.Random
) -> RetrievalPrompt:
    """Return a question behind its passages and enough of others, in random order."""
    line = asked[number % len(asked)]
    passages = list(line.documents)
    while True:
        rng.shuffle(passages)
        prompt = prompt_of(text, RetrievalLine(tuple(passages), line.question))
        if len(prompt.tokens) >= length:
            return prompt
        passages.append(rng.choice(rng.choice(asked).documents))


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for the exact prompts, and one for each rule and ratio."""
    options = parser(__doc__, questions=None, count=100, tokens=24, dtype="bf16", seed=1)
    options.add_argument("--length", type=int, default=1500, help="of a prompt, in tokens")
    options.add_argument("--ratios", type=float, nargs="+", default=[0.05, 0.15, 0.3])
    options.add_argument("--blocks", type=int, default=2048)
    given = options.parse_args(argv)
    text = TextTokenizer(locate(None)[1])
    made = ModelOptions(
        dtype=given.dtype, block_count=given.blocks, measures=False, draft_head="off"
    )
    trial = BlendTrial(TargetRunner(build(made).parts))
    settings = asked_settings(given.ratios)
    asked, rng, samples = lines_of(given.questions), random.Random(given.seed), list[Sample]()
    for number in range(given.count):
        prompt = shuffled(text, asked, number, given.length, rng)
        samples += measure(trial, prompt, settings, given.tokens)
    columns = ("rule", "ratio", "KL mean", "KL p99", "top-1", "diverges", "overlap")
    found = ResultTable([*columns, "first token, s"])
    found.add("exact prefill", "", "", "", "", "", "", middle(one.exact_s for one in samples))
    for each in summaries(samples):
        quality = (each.kl_mean, each.kl_p99, each.top1, each.first_divergence, each.overlap)
        found.add(each.rule, each.ratio, *quality, each.first_token_s)
    return found


if __name__ == "__main__":
    show(table)
