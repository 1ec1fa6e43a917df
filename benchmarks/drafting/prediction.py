"""What a client's `prediction` gains where a file is rewritten.

    python -m benchmarks.drafting.prediction

The model writes some files. Then each is asked for again with a prediction: the file as it might
have been before a small edit, one that renames a word, inserts a line and drops another. So the
answer is a rewrite of the predicted file, however well the model follows instructions. Decoding
with the prediction and with speculation off take turns; the texts must be equal.
"""

import argparse
import json
import random
import re
from collections import Counter
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path
from statistics import median
from time import perf_counter

import anyio

from benchmarks.support.engine import chat, engine
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Ended, Failed
from draftwerk.api.core.config import Settings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling

FILES = (
    "Write a Python class for a bank account with deposit, withdraw and transfer.",
    "Write an HTML page with a table of five planets and their distances.",
    "Write a Python module with functions for the area of a circle, a square and a triangle.",
    "Write a letter to a landlord about a broken heater, in five short paragraphs.",
    "Write a shell script that backs up a folder, with comments on every step.",
    "Write a recipe for pancakes with a list of ingredients and numbered steps.",
)
WORD = re.compile(r"\b[A-Za-z_]{4,}\b")


@dataclass(slots=True)
class DecodedPair:
    """One decoding, from its first token to its last."""

    seconds: float = 0.0
    text: str = ""
    tokens: int = 0
    steps: int = 0


@dataclass(slots=True, frozen=True)
class Task:
    """One file's medians."""

    prompt: str
    tokens: int
    predicted_share: float
    """Of the text's characters, those that stand in the prediction in the same order."""
    plain_tok_s: float
    predicted_tok_s: float
    tokens_per_step: float
    speed_up: float


async def decode(
    running: Engine, prompt: str, tokens_max: int, speculation: Speculation
) -> DecodedPair:
    """Write a file as a tenant of its own, so that nothing is known of it."""
    found, begun = DecodedPair(), 0.0
    name = f"{perf_counter()}"
    options = Options(
        sampling=Sampling(temperature=0.0),
        tokens_max=tokens_max,
        speculation=speculation,
        tenant=name,
    )
    async with running.generate(chat(prompt), options, request_id=name) as events:
        async for event in events:
            match event:
                case Delta():
                    begun = begun or perf_counter()
                    found.text += event.text
                    found.tokens += len(event.tokens)
                case Ended():
                    found.text += event.text
                    found.steps = event.stats.step_count
                case Failed():
                    raise RuntimeError(event.reason)
    found.seconds = perf_counter() - begun
    return found


def before(text: str, rng: random.Random) -> str:
    """Return the file before a small edit."""
    words = Counter(WORD.findall(text)).most_common(5)
    if words:
        old = rng.choice(words)[0]
        text = re.sub(rf"\b{old}\b", f"{old[:3]}_item", text)
    lines = text.split("\n")
    if len(lines) > 3:
        del lines[rng.randrange(1, len(lines))]
        lines.insert(rng.randrange(1, len(lines)), "This line goes away.")
    return "\n".join(lines)


async def measure(running: Engine, prompt: str, arguments: argparse.Namespace) -> Task:
    """Decode one file with its prediction and without, in turn."""
    off = Speculation(enabled=False)
    first = await decode(running, prompt, arguments.tokens, off)
    prediction = before(first.text, random.Random(prompt))
    plain: list[float] = []
    predicted: list[float] = []
    steps = 0
    for _ in range(arguments.repeats):
        one = await decode(running, prompt, arguments.tokens, off)
        two = await decode(running, prompt, arguments.tokens, Speculation(prediction=prediction))
        assert one.text == two.text == first.text, prompt
        plain.append(one.seconds)
        predicted.append(two.seconds)
        steps = two.steps
    matches = SequenceMatcher(None, prediction, first.text, autojunk=False).get_matching_blocks()
    return Task(
        prompt,
        first.tokens,
        round(sum(match.size for match in matches) / max(1, len(first.text)), 3),
        round(first.tokens / median(plain), 1),
        round(first.tokens / median(predicted), 1),
        round(first.tokens / steps, 2),
        round(median(plain) / median(predicted), 2),
    )


async def main(arguments: argparse.Namespace) -> None:
    tasks: list[Task] = []
    settings = Settings(dtype=arguments.dtype, speculate=arguments.speculate)
    async with engine(settings) as running:
        await decode(running, "Hello.", 16, Speculation())
        for prompt in FILES[: arguments.files]:
            tasks.append(await measure(running, prompt, arguments))
            print(tasks[-1], flush=True)
    overall = median(task.speed_up for task in tasks)
    print(f"median speed-up over speculation off: {overall:.2f}")
    if arguments.output:
        kept = {
            "dtype": arguments.dtype,
            "median_speed_up": overall,
            "tasks": [asdict(task) for task in tasks],
        }
        arguments.output.write_text(json.dumps(kept, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--speculate", default="auto")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--files", type=int, default=len(FILES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parse(), backend_options={"use_uvloop": True})
