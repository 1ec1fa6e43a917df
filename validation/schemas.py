"""Random JSON schemas: every text that is finished belongs to its schema, drafted or not.

    python -m validation.schemas [--count 500] [--seed 0] [--model DIRECTORY] [--tokens 400]

Each schema is generated under twice, without speculation and with every draft source, a part of
the plain answer, altered, being the client's prediction; the two must be the same text. Schemas
bound what they describe, so that most texts finish; one cut short only has to be the same.
"""

import argparse
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import anyio
from jsonschema import Draft202012Validator, FormatChecker

from draftwerk.actors.engine import Engine, running
from draftwerk.actors.events.client_events import Delta, Ended, Failed
from draftwerk.actors.pipeline import EngineParts
from draftwerk.assembly.plan import SUCCESSORS
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.replies.argument_schemas import BadSchema
from draftwerk.speculative.replies.parser import ReplyPart, joined_parts
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Grammar, Sampling
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk.speculative.sources.registry import WITHOUT_MODEL
from tests.support.runners import build_runner
from tests.support.thread_device import ThreadDevice
from validation.random_schemas import Schema, whole

AT_ONCE = 8
FLAT = ((1, 1000.0), (64, 1001.0))
"""Steps as they would be if drafts cost nothing, so that all are verified."""
BLOCK_SIZE = 16
CHECKER = FormatChecker(("date", "uuid", "ipv4"))
TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([zZ]|[+-]\d\d:\d\d)")


@CHECKER.checks("date", raises=ValueError)
def is_date(value: object) -> bool:
    """Take the year 0000 too, as RFC 3339 does and Python does not."""
    return not isinstance(value, str) or bool(date.fromisoformat(re.sub("^0000", "2000", value)))


@CHECKER.checks("time")
def is_time(value: object) -> bool:
    """Take leap seconds and either case, as RFC 3339 does."""
    return not isinstance(value, str) or TIME.fullmatch(value) is not None


@dataclass(frozen=True)
class DecodedText:
    """What a client reads, and why it ended."""

    text: str
    parts: tuple[ReplyPart, ...]
    finish_reason: str


@dataclass
class SchemaOutcome:
    """What came of all the schemas."""

    count: int = 0
    finished: int = 0
    refused: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0

    def check(self, refused_max: float = 0.0, finished_min: float = 0.8) -> None:
        """Assert that all is well, and that it means something; shares are of all schemas."""
        assert not self.invalid, self.invalid[0]
        assert not self.different, self.different[0]
        assert len(self.refused) <= refused_max * self.count, self.refused[0]
        assert self.finished > finished_min * self.count
        assert 0 < self.accepted < self.drafted


Compare = Callable[[Engine, SchemaOutcome, int, int, int], Awaitable[None]]
"""Decodes under the schema of a number and a seed, some tokens at most, and notes the outcome."""


def sampling_of(number: int, rng: Random, wanted: Schema) -> Sampling:
    """Return how schema `number` is sampled under."""
    samplings: tuple[dict[str, Any], ...]
    samplings = ({"temperature": 0.0}, {"temperature": 0.7, "top_p": 0.95}, {"top_k": 40}, {})
    found = rng.choice(samplings)
    if rng.random() < 0.25:
        found = found | {"presence_penalty": 0.6, "logit_bias": ((28, -4.0), (17, 2.0))}
    grammar = Grammar("json_schema", json.dumps(wanted, ensure_ascii=False))
    return Sampling(seed=number, grammar=grammar, **found)


@asynccontextmanager
async def engine(model: str | None, text: TextTokenizer | None = None) -> AsyncGenerator[Engine]:
    """Run a model with every draft source; its text tools, if not given, are its own."""
    card = read_info(locate(model))
    runner = build_runner(
        ModelOptions(source=model, dtype="fp32", block_count=1024, block_size=BLOCK_SIZE)
    )
    text = text or TextTokenizer(Path(card.directory))
    # On a slow machine the first check takes longer than a request waits for it.
    text.check_grammar(Grammar("regex", "x"))
    parts = EngineParts(
        options=all_options(),
        text=text,
        target=lambda: ThreadDevice(target_runner(runner.parts, SUCCESSORS).step),
        block_count=1024,
        block_size=BLOCK_SIZE,
        context_max=card.context_max,
        stop_token_ids=card.eos_token_ids,
        proposer=lambda: Proposer(WITHOUT_MODEL, FLAT),
        limits=RoundLimits(rows_max=AT_ONCE, tokens_max=256),
    )
    async with running(parts) as one:
        yield one


async def decoded(one: Engine, options: Options, prompt: str, request_id: str) -> DecodedText:
    """Decode one text. Raises BadSchema with the engine's reason, if it refuses."""
    text, parts = "", list[ReplyPart]()
    async with one.generate(prompt, options, request_id=request_id) as events:
        async for event in events:
            if isinstance(event, Failed):
                raise BadSchema(event.reason)
            if isinstance(event, Delta | Ended):
                text += event.text
                parts += event.parts
                if isinstance(event, Ended):
                    return DecodedText(text, tuple(joined_parts(parts)), event.finish_reason)
    raise AssertionError("no last word")


async def compare(one: Engine, outcome: SchemaOutcome, number: int, seed: int, tokens: int) -> None:
    """Generate under one schema, plainly and speculatively."""
    rng = Random(f"{seed} {number}")
    wanted = whole(rng)
    sampling = sampling_of(number, rng, wanted)
    prompt = f"Write JSON that satisfies this schema.\n{json.dumps(wanted)}\n"[:600]
    plainly = Options(sampling=sampling, tokens_max=tokens, speculation=Speculation(enabled=False))
    outcome.count += 1
    try:
        first = await decoded(one, plainly, prompt, f"{number} plain")
    except BadSchema as error:
        outcome.refused.append(f"{error}: {json.dumps(wanted)}")
        return
    guess = altered(rng, first.text) if rng.random() < 0.7 else ""
    drafted = Options(
        sampling=sampling, tokens_max=tokens, speculation=Speculation(prediction=guess)
    )
    second = await decoded(one, drafted, prompt, f"{number} drafted")
    if first != second:
        outcome.different.append(f"{first} is not {second}: {json.dumps(wanted)}")
    if first.finish_reason == "stop":
        outcome.finished += 1
        problem = fault(wanted, first.text)
        if problem:
            outcome.invalid.append(f"{problem}: {first.text}: {json.dumps(wanted)}")


def altered(rng: Random, text: str) -> str:
    """Return the text with a few characters changed."""
    letters = list(text)
    for _ in range(len(letters) // 12):
        letters[rng.randrange(len(letters))] = rng.choice('aZ0"}]')
    return "".join(letters)


def fault(wanted: Schema, text: str) -> str:
    """Return what is wrong with a text, "" if nothing."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return str(error)
    errors = Draft202012Validator(wanted, format_checker=CHECKER).iter_errors(value)
    return next((error.message for error in errors), "")


async def run(
    model: str | None,
    numbers: Sequence[int],
    seed: int,
    tokens: int,
    compare: Compare = compare,
) -> SchemaOutcome:
    """Take all the schemas, several at once."""
    outcome = SchemaOutcome()
    left = iter(numbers)

    async def take(one: Engine) -> None:
        for number in left:
            await compare(one, outcome, number, seed, tokens)

    async with engine(model) as one:
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(take, one)
        counts = one.snapshot().counts
        outcome.drafted, outcome.accepted = counts.draft_tokens, counts.accepted_tokens
        one.check()
    return outcome


def command(description: str | None, tokens: int) -> argparse.ArgumentParser:
    """Return a parser of how many schemas there are, and how long texts may be."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=tokens)
    return parser


def show(outcome: SchemaOutcome, begun: float) -> None:
    """Print what came of all the schemas."""
    reasons = sorted({each.split(": ")[0][:90] for each in outcome.refused})
    print(
        f"{outcome.count} schemas, {outcome.finished} texts finished; {len(outcome.invalid)} "
        f"invalid, {len(outcome.different)} differ, {len(outcome.refused)} refused {reasons}; "
        f"{outcome.accepted} of {outcome.drafted} drafted tokens accepted; "
        f"{perf_counter() - begun:.0f} s"
    )


def main() -> None:
    """Take as many schemas as asked, print what came of them, and fail if anything is wrong."""
    parser = command(__doc__, tokens=400)
    parser.add_argument("--model")
    given = parser.parse_args()
    begun = perf_counter()
    outcome = anyio.run(run, given.model, range(given.count), given.seed, given.tokens)
    show(outcome, begun)
    outcome.check()


if __name__ == "__main__":
    main()
