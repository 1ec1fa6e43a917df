"""Tools x speculation x load x crash: one seed, one reply, byte for byte, and valid arguments.

A tiny model over the default model's tokens, of which some serve as markers. Each request is
decoded alone without drafts first; then again in every way, and what is read must be equal.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import msgspec
import pytest

from draftwerk.actors.engine import Engine, running
from draftwerk.actors.events.client_events import Delta, Ended, Started
from draftwerk.actors.pipeline import EngineParts
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.replies.argument_schemas import ToolFunction, parameters_of
from draftwerk.speculative.replies.formats import CallFormat, ReasoningFormat, ReplyFormat
from draftwerk.speculative.replies.grammar import CallMode, ReplyRules, reply_grammar
from draftwerk.speculative.replies.parser import ReplyParser, ReplyPart, joined_parts
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from tests.support.pairwise import pairwise
from tests.support.proposing import Reckless
from tests.support.runners import build_runner
from tests.support.thread_device import ThreadDevice
from tests.support.tiny_models import save_tiny_with_text
from validation.forced_drafts import Everything, Oracle

BLOCK_SIZE = 8
REQUESTS = 5
TOKENS = 90
SOURCES = ("ngram", "suffix", "store", "recycle", "grammar")
CALLED = "<jupyter_code>"
THINKS, SPEAKS = "<issue_start>", "<issue_closed>"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "maxLength": 6},
        "unit": {"enum": ["celsius", "fahrenheit", "kelvin"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["place", "unit"],
    "additionalProperties": False,
}
STRICT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "stops": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"at": {"enum": ["a", "ab", "abc"]}, "open": {"type": "boolean"}},
                "required": ["at", "open"],
                "additionalProperties": False,
            },
            "minItems": 1,
            "maxItems": 3,
        }
    },
    "required": ["stops"],
    "additionalProperties": False,
}
SCHEMAS = {"weather": SCHEMA, "weather_at": SCHEMA, "route": STRICT}


@dataclass(frozen=True)
class Mode:
    """What a client asks of tools."""

    mode: CallMode
    names: tuple[str, ...] = tuple(SCHEMAS)
    parallel: bool = False
    budget: int | None = None


MODES = {
    "auto": Mode("auto", parallel=True),
    "required": Mode("required"),
    "named": Mode("required", ("weather_at",)),
    "parallel": Mode("required", ("weather", "weather_at"), parallel=True),
    "strict": Mode("required", ("route",)),
    "reasoning": Mode("auto", budget=7),
}
DRAFTING = ("off", "sources", "prediction", "trees", "wrong")
LOADS = ("alone", "crowd", "preempted", "crash")


@dataclass(frozen=True)
class Reply:
    """What a client reads."""

    tokens: tuple[int, ...]
    text: str
    parts: tuple[ReplyPart, ...]
    reason: str
    reasoning_count: int


@dataclass
class Agents:
    """A model in memory, and what its replies are made of."""

    directory: Path
    answers: dict[str, list[Reply]] = field(default_factory=dict[str, list[Reply]])
    """Decoded plainly, by mode."""

    def __post_init__(self) -> None:
        self.text = TextTokenizer(self.directory)
        options = ModelOptions(
            source=str(self.directory),
            dtype="fp32",
            block_count=256,
            block_size=BLOCK_SIZE,
            threads=1,
        )
        self.runner = build_runner(options)
        self.ids = {
            token.content: id
            for id, token in self.text.tokenizer.get_added_tokens_decoder().items()
        }

    def form(self) -> ReplyFormat:
        calls = CallFormat(
            "json",
            CALLED,
            CALLED + '{"name": "',
            '", "arguments": ',
            "}",
            again=CALLED + '{"name": "',
            end="<jupyter_output>",
            specials=tuple((each, self.ids[each]) for each in (CALLED, "<jupyter_output>")),
        )
        marks = tuple((each, self.ids[each]) for each in (THINKS, SPEAKS))
        return ReplyFormat(calls, ReasoningFormat(THINKS, SPEAKS, marks))

    def options(self, mode: Mode, number: int) -> Options:
        functions = tuple(ToolFunction(each, parameters_of(SCHEMAS[each])) for each in mode.names)
        form = self.form()
        if mode.budget is None:
            form = msgspec.structs.replace(form, reasoning=None)
        rules = ReplyRules(
            form,
            mode.mode,
            functions,
            mode.parallel,
            reasoning_max=mode.budget,
            reasoning_required=mode.budget is not None,
        )
        sampling = Sampling(
            temperature=0.0 if number == 0 else 0.8,
            top_p=0.95 if number % 2 else 1.0,
            frequency_penalty=0.4 if number == 3 else 0.0,
            # The model has no idea of tools: without this it would call none where it may.
            logit_bias=((self.ids[CALLED], 7.0), (self.ids["<|im_end|>"], 5.0)),
            grammar=reply_grammar(rules),
            seed=100 + number,
        )
        return Options(sampling=sampling, tokens_max=TOKENS, reply=form)

    def prompts(self) -> list[tuple[int, ...]]:
        rng = random.Random(6)
        shared = [rng.randrange(100, 20_000) for _ in range(20)]
        return [
            (*shared, *(rng.randrange(100, 20_000) for _ in range(4 + number)))
            for number in range(REQUESTS)
        ]

    def parts(
        self,
        proposer: Callable[[], Proposer],
        block_count: int = 256,
        target: Callable[[], ThreadDevice[Proposal, Verdict]] | None = None,
    ) -> EngineParts:
        return EngineParts(
            text=self.text,
            target=target or (lambda: ThreadDevice(target_runner(self.runner.parts, 8).step)),
            block_count=block_count,
            block_size=BLOCK_SIZE,
            context_max=512,
            stop_token_ids=(self.ids["<|im_end|>"],),
            limits=RoundLimits(rows_max=REQUESTS, tokens_max=96, draft_max=7),
            options=all_options(expects_lengths=False),
            proposer=proposer,
        )

    async def plainly(self, name: str) -> list[Reply]:
        """Return each request's reply, alone and without drafts."""
        if name not in self.answers:
            async with running(self.parts(partial(Proposer, ()))) as engine:
                self.answers[name] = [
                    await read(engine, prompt, self.options(MODES[name], number), str(number))
                    for number, prompt in enumerate(self.prompts())
                ]
        return self.answers[name]


async def read(engine: Engine, prompt: tuple[int, ...], options: Options, name: str) -> Reply:
    """Be a client, and check what it can check."""
    tokens: list[int] = []
    parts: list[ReplyPart] = []
    text, reason, reasoning = "", "", 0
    async with engine.generate(prompt, options, request_id=name) as events:
        async for event in events:
            if isinstance(event, Started):
                continue
            assert isinstance(event, Delta | Ended), event
            text += event.text
            parts += event.parts
            if isinstance(event, Delta):
                tokens.extend(event.tokens)
            else:
                reason, reasoning = event.finish_reason, event.reasoning_count
    assert options.reply is not None
    parser = ReplyParser(options.reply)
    whole = joined_parts([*parser.push(text), *parser.flush()])
    assert joined_parts(parts) == whole, "a stream is its whole, in pieces"
    return Reply(tuple(tokens), text, tuple(whole), reason, reasoning)


@dataclass
class Crashing:
    """A target whose step breaks a few times, in the middle of whatever it does."""

    agents: Agents
    at: tuple[int, ...]
    steps: int = 0
    happened: int = 0

    def device(self) -> ThreadDevice[Proposal, Verdict]:
        runner = target_runner(self.agents.runner.parts, 8)

        def step(proposal: Proposal) -> Verdict:
            self.steps += 1
            if self.steps in self.at:
                self.happened += 1
                raise RuntimeError("a planted fault of the model")
            return runner.step(proposal)

        return ThreadDevice(step)


def drafting(
    agents: Agents, way: str, known: dict[tuple[int, ...], list[int]]
) -> Callable[[], Proposer]:
    """Return the proposer of a way of drafting."""
    if way in ("off", "prediction"):
        return partial(Proposer, policy=Everything, methods=())
    if way == "sources":
        return partial(Proposer, policy=Everything, methods=SOURCES)
    how = {"trees": "trees", "wrong": "always wrong"}[way]
    oracle = Oracle(known, agents.text.vocab_size, how)
    return partial(Reckless, oracle.propose)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Agents:
    path = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(path, seed=5)
    return Agents(path)


def check_reply(mode: Mode, reply: Reply) -> int:
    """Assert that a reply is what was asked for; return how many calls are whole."""
    names = [part.text for part in reply.parts if part.kind == "call"]
    arguments = [part.text for part in reply.parts if part.kind == "arguments"]
    whole = [part.kind for part in reply.parts].count("end")
    assert set(names) <= set(mode.names)
    assert whole <= (16 if mode.parallel else 1)
    for name, text in zip(names[:whole], arguments, strict=False):
        jsonschema.validate(json.loads(text), SCHEMAS[name])
    if mode.mode == "required":
        assert not any(part.kind == "text" for part in reply.parts)
        assert whole >= 1 or reply.reason == "length"
    if mode.budget is not None:
        assert reply.parts[0].kind == "reasoning"
        assert 0 < reply.reasoning_count <= mode.budget + 2, "and both markers"
    return whole


@pairwise(
    mode={each: each for each in MODES},
    way={each: each for each in DRAFTING},
    load={each: each for each in LOADS},
)
async def test_a_reply_is_the_same_in_every_way(
    agents: Agents, mode: str, way: str, load: str
) -> None:
    wanted = await agents.plainly(mode)
    prompts = agents.prompts()
    known = {prompt: list(each.tokens) for prompt, each in zip(prompts, wanted, strict=True)}
    proposer = drafting(agents, way, known)
    crashing = Crashing(agents, (4, 9, 13) if load == "crash" else ())
    parts = agents.parts(proposer, 16 if load == "preempted" else 256, crashing.device)
    found: list[Reply | None] = [None] * REQUESTS

    async def ask(engine: Engine, number: int) -> None:
        options = agents.options(MODES[mode], number)
        speculation = Speculation(
            enabled=way != "off",
            prediction=wanted[number].text if way == "prediction" else "",
        )
        options = msgspec.structs.replace(options, speculation=speculation)
        found[number] = await read(engine, prompts[number], options, f"{load} {number}")

    async with running(parts) as engine:
        if load == "alone":
            for number in range(REQUESTS):
                await ask(engine, number)
        else:
            async with anyio.create_task_group() as tasks:
                for number in range(REQUESTS):
                    tasks.start_soon(ask, engine, number)
        snapshot = engine.snapshot()
        engine.check()
    assert found == wanted
    assert crashing.happened == len(crashing.at) == snapshot.actors.restarts
    if load == "preempted" and mode == "parallel":  # one call may end before it comes to that
        assert snapshot.counts.preemptions
    assert way in ("off", "wrong") or snapshot.counts.accepted_tokens
    assert way != "wrong" or snapshot.counts.draft_tokens > snapshot.counts.accepted_tokens


async def test_the_replies_are_calls_with_valid_arguments(agents: Agents) -> None:
    counts = Counter[str]()
    for name, mode in MODES.items():
        for reply in await agents.plainly(name):
            counts[name] += check_reply(mode, reply)
            counts["said"] += any(part.kind == "text" for part in reply.parts)
    assert all(counts[name] >= 2 for name in MODES), counts
    assert counts["parallel"] > REQUESTS and counts["said"], counts
