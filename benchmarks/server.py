"""The server without its door: an engine over a model process."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from actors.engine import Engine, Parts, running
from actors.messages import Chat, ChatMessage, Delta, Ended, Failed, Options, Prompt
from actors.process import ProcessDevice
from api.config import Settings
from api.plan import plan
from model.card import read_card
from model.hub import locate
from model.text import Text
from speculative.proposer import Proposer
from speculative.rounds import Proposal, Verdict


@asynccontextmanager
async def engine(settings: Settings) -> AsyncGenerator[Engine]:
    """Run an engine as `draftwerk serve` would with these settings."""
    card = read_card(locate(settings.model or None))
    planned = plan(settings, card, None)
    options = msgspec.json.encode(planned.target_options).decode()
    target = ProcessDevice[Proposal, Verdict](
        [sys.executable, "-m", "model.worker", "target", options], Verdict
    )
    try:
        ready = await target.start(print)
        parts = Parts(
            text=Text(Path(card.directory)),
            target=target.fresh,
            block_count=planned.block_count,
            block_size=planned.block_size,
            context_max=card.context_max,
            stop_token_ids=card.eos_token_ids,
            limits=planned.limits,
            proposer=lambda: Proposer(planned.methods, ready.step_costs),
        )
        async with running(parts) as running_engine:
            yield running_engine
    finally:
        await target.close()


def chat(text: str) -> Chat:
    """Return a conversation of one question."""
    return Chat((ChatMessage("user", text),))


async def generate(
    running_engine: Engine, prompt: Prompt, options: Options, request_id: str
) -> tuple[str, int]:
    """Return a request's first choice: its text and its count of tokens."""
    text, count = "", 0
    async with running_engine.generate(prompt, options, request_id=request_id) as events:
        async for event in events:
            match event:
                case Delta():
                    text += event.text
                    count += len(event.tokens)
                case Ended():
                    text += event.text
                case Failed():
                    raise RuntimeError(event.reason)
    return text, count
