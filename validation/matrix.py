"""One seed, one text, as a matrix: every sampling parameter times every way of drafting.

`python -m validation.matrix --output FILE` runs it on the default model, about as many minutes as
there are distributions; `--samplings` runs a part of it. Each text is decoded alone
without drafts first; then all at once, with drafts, in a pool so small that some are preempted,
over a prefix that they share. Byte equality is asserted, and so is that drafts were accepted and
rejected, that sequences were preempted, and that prefixes were found.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import msgspec

from benchmarks.support.runners import build_runner
from benchmarks.support.thread_device import ThreadDevice
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.engine_parts import EngineParts
from draftwerk.actors.messages import Delta, Ended, Started
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.drafting.budget import choose_nodes
from draftwerk.speculative.drafting.drafted_rounds import DraftedRounds
from draftwerk.speculative.drafting.policy import Estimates, candidate_nodes
from draftwerk.speculative.drafting.prepared import Prepared
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.rounds import (
    NO_DRAFT,
    Draft,
    Proposal,
    Round,
    Row,
    Verdict,
    chain,
)
from draftwerk.speculative.requests.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler.scheduler import RoundLimits
from draftwerk.speculative.sources.registry import WITHOUT_MODEL
from tests.support.proposing import EveryRow, Reckless
from tests.support.toy import ToyText

BLOCK_SIZE = 8
PROMPTS = 8
SHARED = 20
TOKENS = 24

SAMPLINGS: dict[str, Sampling] = {
    "greedy": Sampling(temperature=0.0),
    "temperature": Sampling(temperature=1.0),
    "cool": Sampling(temperature=0.5),
    "top_k": Sampling(temperature=1.0, top_k=5),
    "top_p": Sampling(temperature=0.8, top_p=0.95),
    "min_p": Sampling(temperature=1.2, min_p=0.1),
    "repetition_penalty": Sampling(temperature=0.0, repetition_penalty=1.3),
    "presence_penalty": Sampling(temperature=0.7, presence_penalty=0.8),
    "frequency_penalty": Sampling(temperature=0.0, frequency_penalty=0.6),
    "logit_bias": Sampling(temperature=0.7, logit_bias=((5, 3.0), (11, -4.0))),
    "tokens_min": Sampling(temperature=1.0, tokens_min=10),
    "logprobs": Sampling(temperature=0.0, logprobs=3),
    "everything": Sampling(
        temperature=0.9,
        top_k=40,
        top_p=0.9,
        min_p=0.02,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.2,
        logit_bias=((7, 1.0),),
        tokens_min=5,
        logprobs=1,
    ),
}
PAIRWISE: dict[str, Sampling] = {
    "greedy": SAMPLINGS["greedy"],
    "greedy, penalised": Sampling(
        temperature=0.0, repetition_penalty=1.3, frequency_penalty=0.6, logprobs=3
    ),
    "first of rank": Sampling(temperature=1.0, top_k=5, tokens_min=10, presence_penalty=0.8),
    "cut by probability": Sampling(temperature=1.2, top_p=0.95, min_p=0.1),
    "cool, biased": Sampling(temperature=0.5, logit_bias=((5, 3.0), (11, -4.0))),
    "everything": SAMPLINGS["everything"],
}
"""Every parameter of `SAMPLINGS` in few distributions, so that each meets every way of drafting in
less time."""
SOURCES = tuple(name for name in WITHOUT_MODEL if name != "grammar")


@dataclass(slots=True)
class Oracle:
    """A draft model that is given the answers and drafts right, partly wrong or random tokens."""

    answers: dict[tuple[int, ...], list[int]]
    vocab_size: int
    how: str
    rng: random.Random = field(default_factory=lambda: random.Random(9))
    left: dict[int, tuple[tuple[int, ...], int]] = field(
        default_factory=dict[int, tuple[tuple[int, ...], int]]
    )
    """By sequence: its prompt, and how many tokens of the answer are known."""

    def propose(self, round_: Round) -> tuple[Draft, ...]:
        return tuple(self._draft(row) for row in round_.rows)

    def _draft(self, row: Row) -> Draft:
        if row.new_sequence is not None:
            count = row.new_sequence.prompt_count
            known = len(row.new_sequence.tokens) - count
            self.left[row.sequence_id] = (row.new_sequence.tokens[:count], known)
        prompt, known = self.left[row.sequence_id]
        known += len(row.new_token_ids)
        self.left[row.sequence_id] = (prompt, known)
        future = self.answers[prompt][known : known + row.draft_max] if row.samples else []
        match self.how:
            case "always right":
                return chain(tuple(future), "draft")
            case "always wrong":
                return chain(tuple((token + 1) % self.vocab_size for token in future), "draft")
            case _:
                return self._tree(future, row.draft_max) if future else NO_DRAFT

    def _tree(self, future: list[int], room: int) -> Draft:
        """Return a random tree in which the right path is to be found, node by node or not."""
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        while len(tokens) < room and self.rng.random() < 0.9:
            parent = self.rng.randint(-1, len(tokens) - 1)
            depth = depths[parent] + 1 if parent >= 0 else 0
            right = depth < len(future) and self.rng.random() < 0.7
            token = future[depth] if right else self.rng.randrange(self.vocab_size)
            if (parent, token) not in zip(parents, tokens, strict=True):
                tokens.append(token)
                parents.append(parent)
                depths.append(depth)
        return Draft(tuple(tokens), tuple(parents), ("draft",) * len(tokens))


class Everything(EveryRow):
    """Verifies as much as the row's capacity allows, whatever it costs."""

    def model_lengths(self, estimates: Estimates, prepared: Prepared) -> list[int]:
        """Ask for all that there is room for."""
        return [row.draft_max for row in prepared.round.rows]

    def select(
        self,
        estimates: Estimates,
        prepared: Prepared,
        model_drafts: tuple[Draft, ...],
        model_ms: float,
    ) -> list[Draft]:
        """Choose nodes as if they cost nothing."""
        drafts, load = [*prepared.blank], prepared.load
        candidates = candidate_nodes(prepared, model_drafts)
        chosen = choose_nodes(candidates, load.row_count, [1.0] * (1 + load.capacity))
        for row, nodes in zip(prepared.rows, chosen.nodes, strict=True):
            drafts[row.place] = row.row_tree.tree.draft(nodes, *row.choice)
        return drafts


@dataclass(slots=True)
class Matrix:
    """A model in memory, and the engines around it."""

    options: ModelOptions
    text: ToyText
    stop_token_ids: tuple[int, ...]
    runner: TargetRunner = field(init=False)

    def __post_init__(self) -> None:
        self.runner = build_runner(self.options)

    @asynccontextmanager
    async def engine(
        self,
        block_count: int,
        proposer: Callable[[], Proposer],
        draft: Callable[[], ThreadDevice[Round, tuple[Draft, ...]] | None] = lambda: None,
        *,
        run_ahead: bool = False,
    ) -> AsyncGenerator[Engine]:
        """Run an engine; with `run_ahead` its target drafts, and two rounds are under way."""

        def target() -> ThreadDevice[Proposal, Verdict]:
            step = TargetRunner(self.runner.parts, 8).step
            return ThreadDevice(DraftedRounds(proposer(), step).step if run_ahead else step)

        parts = EngineParts(
            text=self.text,
            target=target,
            draft=draft,
            block_count=block_count,
            block_size=BLOCK_SIZE,
            context_max=512,
            stop_token_ids=self.stop_token_ids,
            limits=RoundLimits(
                pipeline_depth=2 if run_ahead else 1,
                run_ahead=run_ahead,
                rows_max=PROMPTS,
                tokens_max=96,
                draft_max=7,
            ),
            expects_lengths=False,
            proposer=(lambda: None) if run_ahead else proposer,
        )
        async with running(parts) as one:
            yield one

    def prompts(self) -> list[tuple[int, ...]]:
        rng = random.Random(4)
        size = self.text.vocab_size
        shared = [rng.randrange(3, size) for _ in range(SHARED)]
        return [
            (*shared, *(rng.randrange(3, size) for _ in range(5 + n)), *shared[:6])
            for n in range(PROMPTS)
        ]


async def decode(
    engine: Engine,
    prompt: tuple[int, ...],
    sampling: Sampling,
    speculation: Speculation,
    name: str,
) -> list[int]:
    """Return one request's tokens."""
    options = Options(
        sampling=sampling,
        tokens_max=TOKENS,
        speculation=speculation,
    )
    tokens: list[int] = []
    async with engine.generate(prompt, options, request_id=name) as events:
        async for event in events:
            if isinstance(event, Started):
                continue
            assert isinstance(event, Delta | Ended), event
            if isinstance(event, Delta):
                tokens.extend(event.tokens)
    return tokens


def predicted(answer: list[int]) -> str:
    """Return an answer as a client might expect it: right but for a token here and there."""
    guess = [token if n % 7 else 3 for n, token in enumerate(answer)]
    return "".join(f"w{token} " for token in guess)


async def check_distribution(
    matrix: Matrix, sampling: Sampling, ways: list[str]
) -> dict[str, Counter[str]]:
    """Decode all prompts plainly, then in every way; returns what happened, by way."""
    prompts = matrix.prompts()
    samplings = [msgspec.structs.replace(sampling, seed=number) for number in range(PROMPTS)]
    answers: list[list[int]] = []
    async with matrix.engine(256, partial(Proposer, ())) as roomy:
        for number, prompt in enumerate(prompts):
            off = Speculation(enabled=False)
            answers.append(await decode(roomy, prompt, samplings[number], off, str(number)))
    found: dict[str, Counter[str]] = {}
    for way in ways:
        found[way] = await check_way(matrix, way, prompts, samplings, answers)
    return found


async def check_way(
    matrix: Matrix,
    way: str,
    prompts: list[tuple[int, ...]],
    samplings: list[Sampling],
    answers: list[list[int]],
) -> Counter[str]:
    """Decode all prompts at once in one way; every text must be the plain one."""
    known = dict(zip(prompts, answers, strict=True))
    proposer, draft = drafting(matrix, way, known)
    async with matrix.engine(16, proposer, draft, run_ahead=way == AHEAD) as tight:
        for turn in range(2):  # the second time the store and the prefix cache hold the answers
            texts: list[list[int]] = [[] for _ in prompts]

            async def ask(number: int, turn: int = turn, texts: list[list[int]] = texts) -> None:
                speculation = Speculation(
                    enabled=way != "off",
                    prediction=predicted(answers[number]) if way == "prediction" else "",
                )
                texts[number] = await decode(
                    tight, prompts[number], samplings[number], speculation, f"{turn}-{number}"
                )

            async with anyio.create_task_group() as tasks:
                for number in range(PROMPTS):
                    tasks.start_soon(ask, number)
            assert texts == answers, (way, samplings[0])
        tight.check()
        snapshot = tight.snapshot()
    return Counter(
        accepted=snapshot.counts.accepted_tokens,
        rejected=snapshot.counts.draft_tokens - snapshot.counts.accepted_tokens,
        preemptions=snapshot.counts.preemptions,
        prefix_hits=snapshot.counts.prefix_hits,
    )


def drafting(
    matrix: Matrix, way: str, known: dict[tuple[int, ...], list[int]]
) -> tuple[Callable[[], Proposer], Callable[[], ThreadDevice[Round, tuple[Draft, ...]] | None]]:
    """Return the proposer and the draft model of one way of drafting."""
    if way in ("off", "prediction"):
        return partial(Proposer, policy=Everything(), methods=()), lambda: None
    if way in SOURCES:
        return partial(Proposer, policy=Everything(), methods=(way,)), lambda: None
    if way in ("all", AHEAD):
        return partial(Proposer, policy=Everything(), methods=SOURCES), lambda: None
    if way == "draft model":
        # The target itself, with pages of its own.
        parts = build_runner(matrix.options).parts
        return partial(Proposer, policy=Everything(), methods=("draft",)), lambda: ThreadDevice(
            DraftRunner(parts).propose
        )
    oracle = Oracle(known, matrix.text.vocab_size, way)
    return partial(Reckless, ()), lambda: ThreadDevice(oracle.propose)


AHEAD = "all, run ahead"
WAYS = [
    "off",
    *SOURCES,
    "prediction",
    "all",
    AHEAD,
    "draft model",
    "always right",
    "always wrong",
    "random trees",
]


async def check(
    matrix: Matrix,
    samplings: Mapping[str, Sampling] = SAMPLINGS,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, Counter[str]]]:
    """Run the matrix for some distributions; returns counters by distribution and way."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for name, sampling in samplings.items():
        found[name] = await check_distribution(matrix, sampling, WAYS)
        progress(name)
    return found


def totals(found: dict[str, dict[str, Counter[str]]]) -> dict[str, Counter[str]]:
    """Return the counters by way, and assert that what was to be tested happened."""
    by_way = {
        way: sum((samplings[way] for samplings in found.values()), Counter[str]()) for way in WAYS
    }
    for way, counter in by_way.items():
        assert counter["preemptions"] > 0, (way, counter)
        assert counter["prefix_hits"] > 0, (way, counter)
    assert by_way["off"]["accepted"] + by_way["off"]["rejected"] == 0
    assert by_way["always right"]["accepted"] > 0
    assert by_way["always wrong"]["accepted"] == 0 < by_way["always wrong"]["rejected"]
    for way in WAYS:
        if way not in ("off", "always wrong"):
            assert by_way[way]["accepted"] > 0, (way, by_way[way])
        if way in (*SOURCES, "prediction", "all", "random trees"):
            assert by_way[way]["rejected"] > 0, (way, by_way[way])
    return by_way


class DefaultWords(ToyText):
    """The default model's vocabulary as words: ids in, ids out."""

    vocab_size = 49152


def report(
    arguments: argparse.Namespace, found: dict[str, dict[str, Counter[str]]]
) -> dict[str, object]:
    """Return what is kept of a run."""
    return {
        "model": read_info(locate(None)).name,
        "dtype": arguments.dtype,
        "samplings": {name: msgspec.to_builtins(SAMPLINGS[name]) for name in found},
        "ways": WAYS,
        "requests_at_once": PROMPTS,
        "texts_compared": len(found) * len(WAYS) * 2 * PROMPTS,
        "texts_that_differ": 0,  # the first would have ended the run
        "totals": totals(found),
        "by_law": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument(
        "--samplings", nargs="+", choices=SAMPLINGS, default=list(SAMPLINGS), metavar="SAMPLING"
    )
    parser.add_argument("--threads", type=int, default=0, help="0: one per core")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    options = ModelOptions(
        dtype=arguments.dtype,
        draft_head="auto",
        threads=arguments.threads,
        block_count=256,
        block_size=BLOCK_SIZE,
    )
    matrix = Matrix(options, DefaultWords(), (2,))
    progress = partial(print, flush=True)
    samplings = {name: SAMPLINGS[name] for name in arguments.samplings}
    found = anyio.run(check, matrix, samplings, progress)
    for way, counter in totals(found).items():
        print(f"{way:14s} " + "  ".join(f"{key} {value}" for key, value in counter.items()))
    kept = report(arguments, found)
    print(f"{kept['texts_compared']} texts, every one equal to its plain one")
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
