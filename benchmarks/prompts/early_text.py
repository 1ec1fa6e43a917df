"""Early texts against exact ones: how soon the first guess is shown, and what the whole costs.

    python -m benchmarks.prompts.early_text SPEC_BENCH.jsonl [--prompts 8] [--tokens 2000]
        [--answer 96] [--rule none --ratio 0.05] [--sampled]

A server of its own, over a WebSocket. Prompts are retrieval questions behind their passages and
those of others. For each the passages are read once, in one order; when the server has nothing to
do any more, the question is asked exactly over a second order and with `blend.lossless` over a
third, in turns. Neither finds a prefix of its prompt. At last the third order is asked exactly: its
text must be the lossless one's, byte by byte.
"""

import argparse
import asyncio
import random
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import aiohttp

from benchmarks.prompts.blend import questions_of
from benchmarks.support.quiet import quiet
from benchmarks.support.server import draftwerk
from draftwerk.assembly.blend_doctor import RetrievalLine, prompt_of
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.text.tokenizer import TextTokenizer

IDLE_S = 3.0
"""Without a round for so long, all passages have been read."""


class Timed(NamedTuple):
    """One response; seconds since it was asked for."""

    first_guess_s: float
    """Infinite without a guess."""
    first_s: float
    whole_s: float
    guess: str
    """The last one."""
    text: str
    prompt_count: int


class Compared(NamedTuple):
    """One question, exactly and with an early text."""

    exact: Timed
    early: Timed
    is_equal: bool


def gathered(
    text: TextTokenizer, asked: list[RetrievalLine], number: int, tokens: int, rng: random.Random
) -> RetrievalLine:
    """Return a question behind its passages and enough of others."""
    line = asked[number % len(asked)]
    passages = list(line.documents)
    while len(prompt_of(text, RetrievalLine(tuple(passages), line.question)).tokens) < tokens:
        other = rng.choice(rng.choice(asked).documents)
        passages += [] if other in passages else [other]
    rng.shuffle(passages)
    return RetrievalLine(tuple(passages), line.question)


def turned(line: RetrievalLine, count: int) -> RetrievalLine:
    """Return the passages in another order that begins with another one."""
    passages = line.documents
    return RetrievalLine((*passages[count:], *passages[:count]), line.question)


async def ask(http: aiohttp.ClientSession, url: str, line: RetrievalLine, **more: Any) -> Timed:
    """Ask over a WebSocket, and time what comes."""
    body = {
        "type": "response.create",
        "input": line.question,
        "documents": list(line.documents),
        "ignore_eos": True,
        "store": False,
        **more,
    }
    async with http.ws_connect(url.replace("http", "ws", 1) + "/v1/responses") as socket:
        begun = perf_counter()
        await socket.send_json(body)
        guessed_s = first_s = float("inf")
        guess = ""
        while True:
            event = await socket.receive_json()
            now = perf_counter() - begun
            match event["type"]:
                case "response.output_text.hypothesis":
                    guessed_s, guess = min(guessed_s, now), event["text"]
                case "response.output_text.delta":
                    first_s = min(first_s, now)
                case "response.completed" | "response.incomplete":
                    response = event["response"]
                    said = response["output"][0]["content"][0]["text"]
                    count = response["usage"]["input_tokens"]
                    return Timed(guessed_s, first_s, now, guess, said, count)
                case "response.failed" | "error":
                    raise SystemExit(str(event))
                case _:
                    pass


async def compared(
    http: aiohttp.ClientSession,
    url: str,
    line: RetrievalLine,
    number: int,
    args: argparse.Namespace,
) -> Compared:
    """Measure one question both ways."""
    blend: dict[str, Any] = {"lossless": True}
    if args.rule:
        blend |= {"rule": args.rule, "ratio": args.ratio}
    sampling = {"temperature": 1.0, "seed": number} if args.sampled else {"temperature": 0}
    limits = {"max_output_tokens": args.answer, **sampling}
    await ask(http, url, line, blend=blend, max_output_tokens=1, temperature=0)
    await quiet(http, url, IDLE_S)
    exact, early = turned(line, 1), turned(line, 2)
    found: dict[bool, Timed] = {}
    for is_early in (number % 2 == 0, number % 2 == 1):
        more = {"blend": blend} if is_early else {}
        found[is_early] = await ask(http, url, early if is_early else exact, **limits, **more)
        await quiet(http, url, IDLE_S)
    again = await ask(http, url, early, **limits)
    return Compared(found[False], found[True], again.text == found[True].text)


async def measure(args: argparse.Namespace) -> list[Compared]:
    """Measure every question, and print each."""
    text, asked = TextTokenizer(locate(None)[1]), questions_of(args.file)
    rng = random.Random(args.seed)
    results: list[Compared] = []
    async with (
        draftwerk("--dtype", args.dtype, "--spare", "off") as server,
        aiohttp.ClientSession() as http,
    ):
        for number in range(args.prompts):
            line = gathered(text, asked, number, args.tokens, rng)
            one = await compared(http, server.url, line, number, args)
            results.append(one)
            exact, early = one.exact, one.early
            print(
                f"{exact.prompt_count} tokens: exact {exact.first_s:.2f}, {exact.whole_s:.2f} s; "
                f"early {early.first_guess_s:.2f}, {early.first_s:.2f}, {early.whole_s:.2f} s; "
                f"right {agreement(early):.2f} of {len(early.guess)} characters; "
                f"{'equal' if one.is_equal else 'DIFFERENT'}",
                flush=True,
            )
    return results


def agreement(early: Timed) -> float:
    """Return the share of the last guess that the text begins with."""
    same = next(
        (n for n, (a, b) in enumerate(zip(early.guess, early.text, strict=False)) if a != b),
        min(len(early.guess), len(early.text)),
    )
    return same / len(early.guess) if early.guess else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--answer", type=int, default=96)
    parser.add_argument("--rule", default="")
    parser.add_argument("--ratio", type=float, default=0.05)
    parser.add_argument("--sampled", action="store_true")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--seed", type=int, default=1)
    found = asyncio.run(measure(parser.parse_args()))
    guessed = median(each.early.first_guess_s / each.exact.first_s for each in found)
    first = median(each.early.first_s / each.exact.first_s for each in found)
    whole = median(each.early.whole_s / each.exact.whole_s for each in found)
    print(f"{len(found)} prompts, medians of early over exact:")
    print(f"first guess {guessed:.3f}, first token {first:.3f}, whole text {whole:.3f} times")
    print(f"right {median(agreement(each.early) for each in found):.2f} of the last guess")
    print(f"texts equal: {sum(each.is_equal for each in found)} of {len(found)}")


if __name__ == "__main__":
    main()
