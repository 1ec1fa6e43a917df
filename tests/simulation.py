"""The whole engine on virtual time: one seed gives one schedule of clients and faults."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Generic, TypeVar

import anyio
import msgspec
import trio.testing

from actors.device import DeviceLostError
from actors.engine import Engine, Parts, running
from actors.errors import OverloadedError
from actors.messages import Delta, Ended, Failed, Options, Speculation
from actors.restarts import RestartLimit
from speculative.beams import BeamRules, best_offers
from speculative.planner import Limits
from speculative.proposer import Proposer
from speculative.rounds import NO_DRAFT, Draft, Proposal, Round, Verdict
from speculative.sampling import Sampling
from tests.toy import (
    STOP,
    VOCAB,
    ToyTarget,
    ToyText,
    log_law,
    next_token,
    plain_beams,
    plain_text,
)

W = TypeVar("W")
R = TypeVar("R")

CONTEXT = 64
METHODS = ("ngram", "suffix", "store", "recycle")


@dataclass
class SlowDevice(Generic[W, R]):
    """Runs work after a random virtual delay, one piece at a time; may be lost now and then."""

    rng: random.Random
    step: Callable[[W], R]
    lost: float = 0.0
    """The chance that a step kills the device."""
    losses: list[float] = field(default_factory=list[float])
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def run(self, work: W) -> R:
        async with self.lock:
            await anyio.sleep(self.rng.uniform(0.001, 0.02))
            if self.rng.random() < self.lost:
                self.losses.append(anyio.current_time())
                raise DeviceLostError("simulated")
            return self.step(work)

    async def revive(self) -> None:
        await anyio.sleep(self.rng.uniform(0.0, 0.1))


@dataclass
class SlowWorker:
    """Runs work after a random virtual delay."""

    rng: random.Random

    async def run(self, work: Callable[[], R]) -> R:
        await anyio.sleep(self.rng.uniform(0.0, 0.01))
        return work()


@dataclass
class Guesser:
    """A draft model that knows the toy and errs at random: trees, chains, nonsense, nothing."""

    rng: random.Random
    contexts: dict[int, tuple[list[int], int, Sampling]] = field(default_factory=dict)

    def propose(self, round_: Round) -> tuple[Draft, ...]:
        drafts: list[Draft] = []
        for row in round_.rows:
            if row.branch is not None and row.branch.origin in self.contexts:
                context, prompt_count, sampling = self.contexts[row.branch.origin]
                self.contexts[row.sequence_id] = (list(context), prompt_count, sampling)
        for row in round_.rows:
            if row.opening is not None:
                opening = row.opening
                self.contexts[row.sequence_id] = (
                    list(opening.tokens),
                    opening.prompt_count,
                    opening.sampling,
                )
            if row.sequence_id not in self.contexts:  # it came while this model was away
                drafts.append(NO_DRAFT)
                continue
            self.contexts[row.sequence_id][0].extend(row.news)
            room = row.draft_max if row.samples else 0
            grow = self._tree if row.branch is None else self._bush
            drafts.append(grow(row.sequence_id, room))
        return tuple(drafts)

    def _bush(self, sequence_id: int, room: int) -> Draft:
        """Draft for beams: the likeliest paths, but for errors."""
        context, prompt_count, sampling = self.contexts[sequence_id]
        tokens: list[int] = []
        parents: list[int] = []
        open_ends: list[tuple[float, int, int]] = []
        path = context
        score = 0.0
        for node in range(-1, self.rng.randint(0, room) - 1):
            law = log_law(path, prompt_count, sampling)
            for token, logprob in best_offers(law, 4):
                if self.rng.random() < 0.9:
                    heappush(open_ends, (score - logprob, node, token))
            if not open_ends:
                break
            score, parent, token = heappop(open_ends)
            parents.append(parent)
            tokens.append(token)
            path = [token]
            while parent >= 0:
                path.insert(0, tokens[parent])
                parent = parents[parent]
            path = [*context, *path]
        return Draft(tuple(tokens), tuple(parents), ("draft",) * len(tokens))

    def _tree(self, sequence_id: int, room: int) -> Draft:
        context, prompt_count, sampling = self.contexts[sequence_id]
        tokens: list[int] = []
        parents: list[int] = []
        paths = [context]
        for _ in range(self.rng.randint(0, room)):
            parent = self.rng.choice([-1, len(tokens) - 1, self.rng.randint(-1, len(tokens) - 1)])
            path = paths[parent + 1]
            token = next_token(path, prompt_count, sampling)
            if self.rng.random() < 0.3:
                token = self.rng.randrange(VOCAB)
            if (parent, token) not in zip(parents, tokens, strict=True):
                tokens.append(token)
                parents.append(parent)
                paths.append([*path, token])
        return Draft(tuple(tokens), tuple(parents), ("draft",) * len(tokens))


class Reckless(Proposer):
    """Verifies every guess of the draft model, whatever it costs: trees come often."""

    def wants_model(self, round_: Round) -> tuple[int, ...]:
        return tuple(row.draft_max for row in round_.rows)

    def propose(
        self, round_: Round, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
    ) -> tuple[Draft, ...]:
        own = super().propose(round_, model_drafts, model_ms)
        return tuple(
            theirs if theirs.tokens else ours
            for ours, theirs in zip(own, model_drafts, strict=True)
        )


@dataclass
class Outcome:
    """What one client saw."""

    ending: str = ""
    texts: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    searches: bool = False
    """Whether it asked for a beam search."""


@dataclass
class Report:
    """What a simulation did, for the tests to assert that it was worth doing."""

    outcomes: list[Outcome] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)


@dataclass
class Setting:
    """One simulated server."""

    seed: int
    requests: int = 12
    block_count: int = 28
    lanes: int = 1
    lost: float = 0.0
    draft_lost: float = 0.0
    guesser: bool = True
    reckless: bool = True
    losses: list[float] = field(default_factory=list[float])
    """When the target was lost."""


def parts(setting: Setting, rng: random.Random) -> Parts:
    """Return a server over the toy: few blocks, few rows, small rounds."""
    size = 4

    def target() -> SlowDevice[Proposal, Verdict]:
        toy = ToyTarget(setting.block_count, size)
        return SlowDevice(rng, toy.step, setting.lost, setting.losses)

    def draft() -> SlowDevice[Round, tuple[Draft, ...]] | None:
        if not setting.guesser:
            return None
        return SlowDevice(rng, Guesser(rng).propose, setting.draft_lost)

    return Parts(
        text=ToyText(),
        target=target,
        draft=draft,
        block_count=setting.block_count,
        block_size=size,
        context_max=CONTEXT,
        stop_token_ids=(STOP,),
        limits=Limits(lanes=setting.lanes, rows_max=5, tokens_max=24, draft_max=6),
        requests_max=8,
        worker=SlowWorker(rng),
        proposer=partial(Reckless if setting.reckless else Proposer, METHODS),
        restarts=lambda: RestartLimit(failures_max=10**6),
    )


async def simulate(setting: Setting) -> Report:
    """Run clients against a server until all have left; checks every promise on the way."""
    rng = random.Random(setting.seed)
    report = Report()
    async with running(parts(setting, rng)) as engine:
        async with anyio.create_task_group() as clients:
            for number in range(setting.requests):
                outcome = Outcome()
                report.outcomes.append(outcome)
                clients.start_soon(client, engine, random.Random(rng.random()), number, outcome)
        with anyio.fail_after(60):
            await engine.drain()
            while engine.snapshot().running:  # noqa: ASYNC110 - idleness is not announced
                await anyio.sleep(0.01)
        snapshot = engine.snapshot()
        engine.check()
    assert snapshot.restarts == len(setting.losses), "only injected losses may restart anything"
    assert snapshot.blocks_used == 0, "every block came home"
    assert not any(snapshot.mailbox_depths.values()), snapshot.mailbox_depths
    report.counters.update(
        preemptions=snapshot.preemptions,
        accepted=snapshot.accepted_tokens,
        rejected=snapshot.draft_tokens - snapshot.accepted_tokens,
        prefix_hits=snapshot.prefix_hits,
        restarts=snapshot.restarts,
    )
    report.counters.update(outcome.ending for outcome in report.outcomes)
    report.counters.update(f"search {each.ending}" for each in report.outcomes if each.searches)
    return report


def random_options(rng: random.Random) -> Options:
    sampling = Sampling(
        temperature=rng.choice([0.0, 0.7, 1.0]),
        top_k=rng.choice([0, 0, 5]),
        top_p=rng.choice([1.0, 0.9]),
        repetition_penalty=rng.choice([1.0, 1.3]),
        frequency_penalty=rng.choice([0.0, 0.5]),
        logit_bias=rng.choice([(), ((3, 2.0), (STOP, 1.0))]),
        tokens_min=rng.choice([0, 4]),
        seed=rng.getrandbits(64),
        logprobs=rng.choice([-1, 0]),
    )
    options = Options(
        sampling=sampling,
        tokens_max=rng.choice([1, 5, 12, 20]),
        ignore_eos=rng.random() < 0.2,
        stop=rng.choice([(), (), ("w7 w", "5 ")]),
        choices=rng.choice([1, 1, 1, 3]),
        speculation=Speculation(enabled=rng.random() < 0.9),
        tenant=rng.choice(["", "a"]),
        priority=rng.choice([0, 0, -1]),
    )
    return in_beams(options, rng) if rng.random() < 0.2 else options


def in_beams(options: Options, rng: random.Random) -> Options:
    """Return a beam search with the same penalties, narrow and short enough for a small pool."""
    width, drawn = rng.choice([2, 3, 4]), rng.random() < 0.3
    temperature = 0.8 if drawn else 0.0
    return msgspec.structs.replace(
        options,
        sampling=msgspec.structs.replace(options.sampling, temperature=temperature, logprobs=-1),
        tokens_max=min(12, options.tokens_max or 12),
        choices=rng.choice([1, 1, width]),
        beam_width=width,
        length_penalty=1.0 if drawn else rng.choice([0.0, 1.0, 2.0]),
        early_stopping=not drawn and rng.random() < 0.5,
    )


async def client(engine: Engine, rng: random.Random, number: int, outcome: Outcome) -> None:
    """Be one client: come late, read slowly, leave early; every text must be the plain one."""
    await anyio.sleep(rng.uniform(0, 0.3))
    options = random_options(rng)
    shared = [1 + n % 5 for n in range(rng.choice([0, 9, 17]))]
    prompt = [*shared, *(rng.randrange(1, VOCAB) for _ in range(rng.randint(1, 9)))]
    patience = rng.choice([rng.uniform(0, 0.2), 1e6, 1e6])
    outcome.searches = options.beam_width > 1
    outcome.texts = [""] * options.choices
    outcome.reasons = [""] * options.choices
    try:
        with anyio.move_on_after(patience) as scope:
            await read(engine, prompt, options, str(number), rng.choice([0.0, 0.1]), outcome)
        if scope.cancelled_caught:
            assert patience < 1, "a patient client waited for nothing"
            outcome.ending = "left"
    except OverloadedError:
        outcome.ending = "refused"
    compare(prompt, options, outcome)


async def read(
    engine: Engine,
    prompt: list[int],
    options: Options,
    request_id: str,
    pace: float,
    outcome: Outcome,
) -> None:
    async with engine.generate(tuple(prompt), options, request_id=request_id) as events:
        async for event in events:
            assert not outcome.ending, "something came after the last word"
            await anyio.sleep(pace)
            match event:
                case Delta():
                    assert not outcome.reasons[event.choice], "text after its ending"
                    assert len(event.tokens) == len(event.origins)
                    outcome.texts[event.choice] += event.text
                case Ended():
                    outcome.texts[event.choice] += event.text
                    outcome.reasons[event.choice] = event.finish_reason
                    if all(outcome.reasons):
                        outcome.ending = "finished"
                case Failed():
                    outcome.ending = "failed"
    assert outcome.ending, "the stream ended without a last word"


def compare(prompt: list[int], options: Options, outcome: Outcome) -> None:
    """Assert that each choice's text is the plain model's, or the beginning of it."""
    for choice, (text, reason) in enumerate(zip(outcome.texts, outcome.reasons, strict=True)):
        want, want_reason = expected(prompt, options, choice)
        if reason:
            assert (text, reason) == (want, want_reason)
        else:
            assert want.startswith(text), (want, text)


def expected(prompt: list[int], options: Options, choice: int) -> tuple[str, str]:
    """Return the text and the finish reason that one choice must have."""
    sampling = Sampling(
        **{
            **{name: getattr(options.sampling, name) for name in Sampling.__struct_fields__},
            "branch": choice,
            "stop_token_ids": () if options.ignore_eos else (STOP,),
        }
    )
    assert options.tokens_max is not None
    if options.beam_width > 1:
        rules = BeamRules(
            width=options.beam_width,
            tokens_max=options.tokens_max,
            stop_token_ids=sampling.stop_token_ids,
            length_penalty=options.length_penalty,
            early_stopping=options.early_stopping,
            seed=sampling.seed if sampling.temperature > 0.0 else None,
            prompt_count=len(prompt),
        )
        found = plain_beams(prompt, sampling, rules)
        if choice >= len(found):  # the law has no more texts than that
            return "", "stop"
        tokens = found[choice][0]
    else:
        tokens = plain_text(prompt, sampling, options.tokens_max)
    text = ToyText().decode(tokens)
    cuts = [at for stop in options.stop if (at := text.find(stop)) >= 0]
    if cuts:
        return text[: min(cuts)], "stop"
    return text, "stop" if tokens[-1] in sampling.stop_token_ids else "length"


def run(setting: Setting) -> Report:
    """Run one simulation on trio's virtual clock: idle time costs nothing."""
    return anyio.run(
        simulate,
        setting,
        backend="trio",
        backend_options={"clock": trio.testing.MockClock(autojump_threshold=0)},
    )
