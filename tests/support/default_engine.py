"""An engine over the default model in this process, drafts forced, and what it answers."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from draftwerk.actors.engine import Engine, running
from draftwerk.actors.events.client_events import Delta, Ended, Started
from draftwerk.actors.pipeline import EngineParts
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.options.beams.search_drafts import SearchDrafts
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage
from draftwerk.speculative.scheduler import RoundLimits
from tests.support.thread_device import ThreadDevice
from validation.forced_drafts import Everything

RULES = "You are a careful assistant who answers in short sentences and repeats the question first."
BLOCK_SIZE = 16
SOURCES = ("ngram", "suffix", "recycle", "head")
SUCCESSORS = 16


@asynccontextmanager
async def engine(runner: TargetRunner, card: ModelInfo, block_count: int) -> AsyncGenerator[Engine]:
    """Run an engine over weights that are read once, without any sequence of another's."""
    async with running(
        EngineParts(
            text=TextTokenizer(Path(card.directory)),
            target=lambda: ThreadDevice(target_runner(runner.parts, SUCCESSORS).step),
            block_count=block_count,
            block_size=BLOCK_SIZE,
            context_max=card.context_max,
            stop_token_ids=card.eos_token_ids,
            limits=RoundLimits(rows_max=8, tokens_max=96),
            options=all_options(expects_lengths=False),  # preemptions are wanted
            # Whether drafts are worth their cost depends on the machine, so none is asked.
            proposer=lambda: Proposer(SOURCES, policy=Everything, groups=SearchDrafts),
        )
    ) as one:
        yield one


async def answers(
    running_engine: Engine, questions: Sequence[str], options: Options, *, at_once: bool
) -> list[list[str]]:
    """Return the choices of every question, asked at once or in turn."""
    found = [[""] * options.choices for _ in questions]

    async def ask(number: int) -> None:
        prompt = Chat((ChatMessage("system", RULES), ChatMessage("user", questions[number])))
        async with running_engine.generate(prompt, options, request_id=str(number)) as events:
            async for event in events:
                if isinstance(event, Started):
                    continue
                assert isinstance(event, Delta | Ended)
                found[number][event.choice] += event.text

    if not at_once:
        for number in range(len(questions)):
            await ask(number)
        return found
    async with anyio.create_task_group() as tasks:
        for number in range(len(questions)):
            tasks.start_soon(ask, number)
    return found
