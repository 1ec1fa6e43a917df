"""What a shared system prompt saves: `python -m benchmarks.prompts.prefix`.

Two questions after one long system prompt; the second finds the prompt's blocks in the cache.
"""

import argparse
from statistics import median
from time import perf_counter

import anyio

from benchmarks.support.engine import engine
from draftwerk.actors.client_prompts import Chat, ChatMessage
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Ended, SequenceStats
from draftwerk.api.core.config import Settings
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling.params import Sampling

RULE = "Rule {}: answer item {} briefly, and only if it was asked for. "


async def first_token_ms(
    running: Engine, system: str, question: str, tenant: str
) -> tuple[float, int, int]:
    """Return the time to the first token, and the prompt's tokens, all and cached."""
    chat = Chat((ChatMessage("system", system), ChatMessage("user", question)))
    options = Options(sampling=Sampling(temperature=0.0), tokens_max=4, tenant=tenant)
    begun, first, stats = perf_counter(), 0.0, SequenceStats()
    async with running.generate(chat, options, request_id=f"{tenant} {question}") as events:
        async for event in events:
            if isinstance(event, Delta) and not first:
                first = perf_counter()
            if isinstance(event, Ended):
                stats = event.stats
    return 1e3 * (first - begun), stats.prompt_count, stats.cached_count


async def main(arguments: argparse.Namespace) -> None:
    system = "".join(RULE.format(n, n) for n in range(arguments.rules))
    ratios: list[float] = []
    async with engine(Settings(dtype=arguments.dtype)) as running:
        await first_token_ms(running, "Be brief.", "Hello?", "warm-up")
        print("first token ms: cold, then cached (prompt tokens, of which cached)")
        for n in range(arguments.repeats):
            cold = await first_token_ms(running, system, "What is a river?", str(n))
            warm = await first_token_ms(running, system, "Where is the moon?", str(n))
            ratios.append(warm[0] / cold[0])
            print(f"{cold[0]:8.1f} {warm[0]:8.1f}   ({warm[1]}, {warm[2]})")
    print(f"the second question's first token comes in {median(ratios):.2f} of the first's time")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--rules", type=int, default=29, help="30 tokens each, about")
    parser.add_argument("--repeats", type=int, default=5)
    anyio.run(main, parser.parse_args(), backend_options={"use_uvloop": True})
