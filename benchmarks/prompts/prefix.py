"""What a shared system prompt saves: `python -m benchmarks.prompts.prefix`.

Two questions after one long system prompt; the second finds the prompt's blocks in the cache.
"""

import argparse
from collections.abc import Sequence

from benchmarks.support.bench import ResultTable, middle, parser, run, show
from benchmarks.support.engine import engine, generate
from draftwerk.actors.engine import Engine
from draftwerk.api.shared.config import Settings
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage
from draftwerk.speculative.sampling import Sampling

RULE = "Rule {}: answer item {} briefly, and only if it was asked for. "


async def first_token_ms(
    running: Engine, system: str, question: str, tenant: str
) -> tuple[float, int, int]:
    """Return the time to the first token, and the prompt's tokens, all and cached."""
    chat = Chat((ChatMessage("system", system), ChatMessage("user", question)))
    options = Options(sampling=Sampling(temperature=0.0), tokens_max=4, tenant=tenant)
    found = await generate(running, chat, options, f"{tenant} {question}")
    return 1e3 * found.first_s, found.stats.prompt_count, found.stats.cached_count


async def measure(given: argparse.Namespace) -> list[tuple[float, int, int]]:
    """Return the first and the second question's figures, in turn."""
    system = "".join(RULE.format(n, n) for n in range(given.rules))
    found: list[tuple[float, int, int]] = []
    async with engine(Settings(dtype=given.dtype)) as running:
        await first_token_ms(running, "Be brief.", "Hello?", "warm-up")
        for n in range(given.repeats):
            for question in ("What is a river?", "Where is the moon?"):
                found.append(await first_token_ms(running, system, question, str(n)))
    return found


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for the first question and one for the second."""
    options = parser(__doc__, dtype="bf16", repeats=5)
    options.add_argument("--rules", type=int, default=29, help="30 tokens each, about")
    runs = run(measure, options.parse_args(argv))
    found = ResultTable(["question", "prompt tokens", "cached", "first token p50, ms"])
    for name, mine in (("first", runs[::2]), ("second", runs[1::2])):
        found.add(name, *mine[0][1:], middle(ms for ms, _, _ in mine))
    return found


if __name__ == "__main__":
    show(table)
