"""Retrieval prompts with their passages in another order: what reusing them gains and changes.

    python -m benchmarks.prompts.blend SPEC_BENCH.jsonl [--prompts 100] [--tokens 1500]
        [--answer 24]

Prompts are the retrieval questions of Spec-Bench (category `rag`), each behind its own passages and
those of others until the prompt has `--tokens`, in random order. For each, the exact model answers
greedily; then every rule and ratio is compared over that answer, its
passages in the cache. `random` repairs as many tokens as HKVD, chosen by chance. The prefix cache's
first token is that of the exact prompt where a prompt of the same passages in another order was
read before. `--decay N` asks N novel questions over 50 passages instead, and prints how many
segment tokens were found, by quarter, and the blocks in use. Each prompt is added to `--keep` as it
is measured, so a run may go on from another with `--skip`; the tables are of all that is there.
"""

import argparse
import json
import random
from pathlib import Path
from statistics import median

import msgspec

from draftwerk.assembly.blend_doctor import RetrievalLine, asked_settings, prompt_of, table
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.process.build import ModelOptions, build
from draftwerk.model.step.blend.blend_quality import RetrievalPrompt, Sample, measure, summaries
from draftwerk.model.step.blend.blend_trial import BlendTrial
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.blend import blending
from draftwerk.speculative.blend.rules import Blend, RuleName, choose_positions


def questions_of(path: Path) -> list[RetrievalLine]:
    """Return each retrieval question with its own passages."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found: list[RetrievalLine] = []
    for row in rows:
        if row["category"] == "rag":
            *passages, question = row["turns"][0].strip().splitlines()
            found.append(RetrievalLine(tuple(each for each in passages if each.strip()), question))
    return found


def shuffled(
    text: TextTokenizer, asked: list[RetrievalLine], number: int, tokens: int, rng: random.Random
) -> RetrievalPrompt:
    """Return a question behind its passages and enough of others, in random order."""
    line = asked[number % len(asked)]
    passages = list(line.documents)
    while True:
        rng.shuffle(passages)
        prompt = prompt_of(text, RetrievalLine(tuple(passages), line.question))
        if len(prompt.tokens) >= tokens:
            return prompt
        passages.append(rng.choice(rng.choice(asked).documents))


def by_chance(
    blend: Blend, parts: list[blending.CanonicalPart], deviations: object = ()
) -> frozenset[int]:
    """Return as many places as HKVD repairs, chosen by chance."""
    found = choose_positions(blend, parts, deviations)  # type: ignore[arg-type]
    if blend.rule != "hkvd" or not 0 < blend.ratio < 1:
        return found
    places = [place for part in parts for place in range(part.start, part.stop)]
    return frozenset(random.Random(len(places)).sample(places, len(found)))


class MeasuredPrompt(msgspec.Struct, frozen=True):
    """One prompt."""

    samples: list[Sample]
    by_chance: list[Sample]
    prefix_s: float
    """The exact first token, where its passages were read in another order before."""


def measured_by_chance(
    trial: BlendTrial,
    prompt: RetrievalPrompt,
    settings: list[tuple[RuleName, float]],
    answer: int,
) -> list[Sample]:
    """Measure with the choice left to chance."""
    blending.choose_positions = by_chance  # type: ignore[assignment]
    try:
        return measure(trial, prompt, settings, answer)
    finally:
        blending.choose_positions = choose_positions


def prefix_cache_s(trial: BlendTrial, prompt: RetrievalPrompt, rng: random.Random) -> float:
    """Return the exact first token of a prompt whose passages were read in another order."""
    trial.forget()
    spans = list(prompt.spans)
    rng.shuffle(spans)
    head = list(prompt.tokens[: prompt.spans[0][0]])
    other = head + [t for start, stop in spans for t in prompt.tokens[start:stop]]
    trial.close(trial.read(other).sequence)
    read = trial.read(prompt.tokens)
    trial.close(read.sequence)
    return read.first_token_s


def decay(
    trial: BlendTrial, text: TextTokenizer, asked: list[RetrievalLine], count: int, tokens: int
) -> None:
    """Print how reuse goes over novel questions on 50 passages."""
    rng = random.Random(0)
    passages = [each for line in asked for each in line.documents][:50]
    shares: list[float] = []
    times: list[float] = []
    for number in range(count):
        chosen: list[str] = []
        prompt = RetrievalPrompt((), ())
        while len(prompt.tokens) < tokens:
            chosen.append(rng.choice([each for each in passages if each not in chosen]))
            question = f"{asked[number % len(asked)].question} ({number})"
            prompt = prompt_of(text, RetrievalLine(tuple(chosen), question))
        read = trial.read(prompt.tokens, Blend(prompt.spans, "hkvd", 0.15))
        blend = read.sequence.blending
        assert blend is not None
        shares.append(blend.found / sum(part.length for part in blend.parts))
        times.append(read.first_token_s)
        trial.close(read.sequence)
        trial.scheduler.check()
    pool, quarter = trial.scheduler.pool, max(1, count // 4)
    for first in range(0, count, quarter):
        part = slice(first, first + quarter)
        mean = sum(shares[part]) / len(shares[part])
        print(
            f"queries {first + 1:3d}..: found {mean:.3f}, first token {median(times[part]):.3f} s"
        )
    print(f"blocks cached {pool.cached} of {pool.capacity}, used {pool.used}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--answer", type=int, default=24)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--ratios", default="0.05,0.15,0.3,1")
    parser.add_argument("--rules", default="none,modules,head,hkvd")
    parser.add_argument("--skip", type=int, default=0, help="prompts measured before")
    parser.add_argument("--keep", type=Path, default=Path("results/blend.jsonl"))
    parser.add_argument("--decay", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=2048)
    arguments = parser.parse_args()
    text = TextTokenizer(locate(None)[1])
    options = ModelOptions(
        dtype=arguments.dtype, block_count=arguments.blocks, measures=False, draft_head="off"
    )
    trial = BlendTrial(TargetRunner(build(options).parts))
    asked, rng = questions_of(arguments.file), random.Random(1)
    if arguments.decay:
        return decay(trial, text, asked, arguments.decay, arguments.tokens)
    prompts = [
        shuffled(text, asked, number, arguments.tokens, rng) for number in range(arguments.prompts)
    ]
    counts = sorted(len(prompt.tokens) for prompt in prompts)
    print(f"{len(prompts)} prompts, {counts[0]} to {counts[-1]} tokens, {arguments.dtype}")
    ratios = [float(each) for each in arguments.ratios.split(",")]
    settings = [each for each in asked_settings(ratios) if each[0] in arguments.rules.split(",")]
    chance = [each for each in settings if each[0] == "hkvd" and 0 < each[1] < 1]
    arguments.keep.parent.mkdir(parents=True, exist_ok=True)
    for prompt in prompts[arguments.skip :]:
        line = MeasuredPrompt(
            measure(trial, prompt, settings, arguments.answer),
            measured_by_chance(trial, prompt, chance, arguments.answer),
            prefix_cache_s(trial, prompt, rng),
        )
        with arguments.keep.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
    report(arguments.keep)


def report(path: Path) -> None:
    """Print what was measured, of all prompts in the file."""
    lines = [
        msgspec.json.decode(line, type=MeasuredPrompt) for line in path.read_bytes().splitlines()
    ]
    print(f"{len(lines)} prompts")
    print(table([*summaries(sample for line in lines for sample in line.samples)]))
    print("by chance instead of HKVD:")
    print(table([*summaries(sample for line in lines for sample in line.by_chance)]))
    print(f"prefix cache, other order read before: {median(each.prefix_s for each in lines):.3f} s")


if __name__ == "__main__":
    main()
