"""The whole engine on virtual time: one seed gives one schedule of clients and faults."""

import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

import anyio
import msgspec
import trio.testing
from trio._core import _run as scheduler

from draftwerk.actors.devices.process import LOADING_SILENCE_S, STEP_S, ProcessDevice
from draftwerk.actors.devices.recovering_target import RecoveringTarget, RecoveryStats
from draftwerk.actors.devices.restarts import RestartLimit
from draftwerk.actors.devices.rounds_in_flight import RoundsInFlight
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.events.client_events import Delta, Ended, Failed
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.pipeline import EngineParts
from draftwerk.actors.requests.errors import OverloadedError
from draftwerk.actors.tier_two.tier_two_actors import TierTwoStores
from draftwerk.assembly.recoveries import Recoveries
from draftwerk.cache.kinds.recurrent_states import StateSlots
from draftwerk.cache.kinds.window_table import NO_WINDOW_BLOCKS, WindowBlocks
from draftwerk.cache.pages.page_layout import JOURNAL_BYTES
from draftwerk.speculative.drafting.drafted_rounds import DraftingStep
from draftwerk.speculative.drafting.policy import DraftPolicy
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.options.beams.decisions import BeamRules
from draftwerk.speculative.options.beams.search_drafts import SearchDrafts
from draftwerk.speculative.protocol.journal import MoveJournal
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.declared_segments import Blend, RuleName
from draftwerk.speculative.requests.pooling import PoolingOutput, PoolingParams
from draftwerk.speculative.requests.slo import NO_SLO, Slo, SloPolicy
from draftwerk.speculative.rounds import NO_DRAFT, Draft, Proposal, Round, Verdict
from draftwerk.speculative.sampling import Grammar, Sampling
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk.speculative.sources.registry import WITHOUT_MODEL
from tests.support.beams.naive_beams import best_candidates
from tests.support.proposing import EveryRow, Reckless
from tests.support.simulated_child import Fate, SimulatedChild
from tests.support.simulated_peers import ToyPeers
from tests.support.toy import (
    POISON,
    STOP,
    VOCAB,
    Cell,
    ToyTarget,
    ToyText,
    log_distribution,
    next_token,
    plain_beams,
    plain_reading,
    plain_text,
)

R = TypeVar("R")

Spawn = Callable[[], Awaitable[SimulatedChild]]

CONTEXT = 64
ODD_ENDINGS = ("odd", "expired", "unmet")
IDLE_S = 3 * (STEP_S + LOADING_SILENCE_S)
"""Virtual seconds after the last client within which the engine is idle and its target is up: a
process that beats and answers nothing is given up late, and may hang again while it loads."""


@dataclass(slots=True)
class FaultyTrace(Trace):
    """Ends an actor with a bug, before or after any piece of work that it does."""

    fate: Fate = field(kw_only=True)

    @contextmanager
    def span(self, actor: str, what: str) -> Generator[None]:
        self._stumble(f"a bug before work of {actor}")
        with Trace.span(self, actor, what):
            yield
        self._stumble(f"a bug after work of {actor}")

    def _stumble(self, where: str) -> None:
        if bug := self.fate.draws((where,), self.fate.chance):
            raise RuntimeError(bug)


@dataclass
class SlowWorker:
    """Runs work after a random virtual delay, at times a long one."""

    rng: random.Random

    async def run(self, work: Callable[[], R]) -> R:
        await anyio.sleep(self.rng.choice([0.0, 0.001, 0.01, 0.3]))
        return work()


@dataclass
class ToyStore(Generic[R]):
    """Tier two over pages of anything; blocks get lost in it, and at times it keeps none."""

    pages: list[R]
    block_size: int
    rng: random.Random
    lossy: float = 0.1
    kept: dict[bytes, list[R]] = field(default_factory=dict[bytes, list[R]])
    hits: int = 0
    keeps: bool = True

    @property
    def size(self) -> int:
        return self.block_size

    def __contains__(self, name: bytes) -> bool:
        return name in self.kept

    def load(self, names: Sequence[bytes]) -> list[list[R] | None]:
        for name in names:
            if self.rng.random() < self.lossy:
                self.kept.pop(name, None)
        self.hits += sum(name in self.kept for name in names)
        return [self.kept.get(name) for name in names]

    def keep(self, name: bytes, content: list[R]) -> bool:
        if self.rng.random() < self.lossy:
            return False
        self.kept[name] = content
        return True

    def remove(self, name: bytes) -> None:
        del self.kept[name]

    def copy(self, block: int) -> list[R]:
        return self.pages[block * self.block_size : (block + 1) * self.block_size]

    def put(self, block: int, content: list[R]) -> None:
        self.pages[block * self.block_size : (block + 1) * self.block_size] = content

    def newest(self, count: int) -> list[bytes]:
        return list(self.kept)[::-1][:count]

    def counters(self) -> dict[str, float]:
        return {"hits": self.hits, "blocks": len(self.kept)}


@dataclass
class Guesser:
    """A draft model that computes the toy and errs at random: trees, chains, nonsense, nothing."""

    rng: random.Random
    contexts: dict[int, tuple[list[int], int, Sampling]] = field(default_factory=dict)

    def propose(self, round_: Round) -> tuple[Draft, ...]:
        drafts: list[Draft] = []
        for row in round_.rows:
            if row.options.branch is not None and row.options.branch.origin in self.contexts:
                context, prompt_count, sampling = self.contexts[row.options.branch.origin]
                self.contexts[row.sequence_id] = (list(context), prompt_count, sampling)
        for row in round_.rows:
            if row.new_sequence is not None:
                new_sequence = row.new_sequence
                self.contexts[row.sequence_id] = (
                    list(new_sequence.tokens),
                    new_sequence.prompt_count,
                    new_sequence.sampling,
                )
            if row.sequence_id not in self.contexts:  # it came while this model was away
                drafts.append(NO_DRAFT)
                continue
            self.contexts[row.sequence_id][0].extend(row.new_token_ids)
            room = row.draft_max if row.samples else 0
            grow = self._tree if row.options.branch is None else self._bush
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
            distribution = log_distribution(path, prompt_count, sampling)
            for token, logprob in best_candidates(distribution, 4):
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


@dataclass
class Outcome:
    """What one client saw."""

    ending: str = ""
    texts: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    odd: bool = False
    """Whether it sends what no device can compute."""
    kinds: list[str] = field(default_factory=list[str])
    """What is special about its request."""
    token_count: int = 0
    pooling_output: PoolingOutput | None = None


@dataclass
class Report:
    """What a simulation did, for the tests to assert that it covered something."""

    outcomes: list[Outcome] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)


@dataclass
class Setting:
    """One simulated server."""

    seed: int
    requests: int = 12
    block_count: int = 28
    pipeline_depth: int = 1
    run_ahead: bool = False
    """Whether two rounds are under way, and drafts made beside the target."""
    lost: float = 0.0
    """The chance that a step of the target meets a fault."""
    late: float = 0.0
    """The chance that a step takes seconds."""
    bugs: float = 0.0
    """The chance that an actor fails before or after a piece of work."""
    reckless: bool = True
    """Whether all guesses are verified; else a draft model makes them beside the target."""
    recovers: bool = True
    """Whether the target's pages outlive its process."""
    spare: bool = False
    """Whether another process stands ready."""
    store: bool = False
    """Whether blocks are kept in a second tier."""
    peer_faults: float = 0.0
    """The chance that a block of a peer's meets a fault; with it, peers are the second tier."""
    kept: dict[bytes, list[Cell]] = field(default_factory=dict[bytes, list[Cell]])
    """What it holds: more than one server may have it in turn."""
    kept_states: dict[bytes, list[Cell]] = field(default_factory=dict[bytes, list[Cell]])
    """The same of snapshots of recurrent states."""
    snapshots: ToyStore[Cell] | None = None
    """That store, once the server is made."""
    blends: dict[int, Blend] = field(default_factory=dict[int, Blend])
    """What clients have declared of their prompts, by their seeds."""
    blended: float = 0.0
    """The share of clients whose prompts have segments."""
    adapters: dict[int, str] = field(default_factory=dict[int, str])
    """What clients have asked for, by their seeds."""
    adapted: float = 0.0
    """The share of clients whose texts are computed with one of two adapters."""
    odd: float = 0.0
    """The share of clients that send what no device can compute."""
    state_slots: int = 0
    """Of a model with recurrent layers."""
    windows: WindowBlocks = NO_WINDOW_BLOCKS
    """Of a model whose layers with windows have blocks of their own."""
    reading: float = 0.0
    """The share of clients whose prompts are only to be read."""
    slo: Slo = NO_SLO
    policy: SloPolicy = "serve"
    promised: float = 0.0
    """The share of clients with a promise or a deadline of their own."""


@dataclass
class Fates:
    """What may go wrong in one simulated server."""

    target: Fate
    actors: Fate

    @classmethod
    def of(cls, setting: Setting, rng: random.Random) -> "Fates":
        return cls(
            # So few that no request can be taken for their cause: see `Ledger.resubmit`.
            Fate(rng, setting.lost, losses_max=5, late=setting.late),
            Fate(rng, setting.bugs, losses_max=3),
        )


def few_windows(seed: int) -> WindowBlocks:
    """Return windows of a few tokens, which have hardly the blocks that one text needs, or more."""
    window, row_max = 1 + seed % 11, 24
    return WindowBlocks(-(-(window + row_max) // 4) + 1 + seed % 16, window, row_max)


def child_of(
    fate: Fate,
    make: Callable[[], Callable[[Any], object]],
    work: type,
) -> Spawn:
    """Return what starts simulated processes of one model."""

    async def spawn() -> SimulatedChild:
        return SimulatedChild(fate, make, work)

    return spawn


def parts(setting: Setting, fates: Fates, rng: random.Random) -> EngineParts:
    """Return a server over the toy: few blocks, few rows, small rounds."""
    size = 4
    recoveries = RecoveryStats()
    pages: list[Cell] = [(-1, 0)] * ((setting.block_count + setting.windows.count) * size)
    states: list[Cell] = [(-1, 0)] * setting.state_slots
    target = target_device(setting, fates, size, recoveries, pages, rng, states)
    return EngineParts(
        text=ToyText(),
        target=target.fresh,
        block_count=setting.block_count,
        block_size=size,
        kinds=(setting.windows.kind, StateSlots(setting.state_slots, 2 * size).kind),
        context_max=CONTEXT,
        stop_token_ids=(STOP,),
        limits=RoundLimits(
            pipeline_depth=2 if setting.run_ahead else setting.pipeline_depth,
            run_ahead=setting.run_ahead,
            rows_max=5,
            tokens_max=24,
            draft_max=6,
            slo=setting.slo,
            slo_policy=setting.policy,
        ),
        options=all_options(expects_lengths=setting.seed % 2 == 0),
        requests_max=8,
        worker=SlowWorker(rng),
        proposer=partial(proposer, setting, rng),
        restarts=lambda: RestartLimit(failures_max=10**6, fruitless_max=10**6, rng=rng),
        trace=FaultyTrace(fate=fates.actors),
        attachments=(Recoveries(recoveries), *tier_two(setting, pages, size, states, rng)),
    )


def tier_two(
    setting: Setting, pages: list[Cell], size: int, states: list[Cell], rng: random.Random
) -> list[TierTwoStores]:
    """Return the second tier, if there is one."""
    blocks = block_store(setting, pages, size, rng)
    snapshots = state_store(setting, states, rng)
    return [] if blocks is None else [TierTwoStores(blocks, snapshots)]


def block_store(
    setting: Setting, pages: list[Cell], size: int, rng: random.Random
) -> ToyStore[Cell] | ToyPeers | None:
    """Return the second tier of blocks."""
    if setting.peer_faults:
        return ToyPeers(pages, size, rng, setting.kept, setting.peer_faults)
    return ToyStore(pages, size, rng, kept=setting.kept) if setting.store else None


def state_store(setting: Setting, states: list[Cell], rng: random.Random) -> ToyStore[Cell] | None:
    """Return where snapshots of recurrent states are kept."""
    if not (setting.store and states):
        return None
    setting.snapshots = ToyStore(states, 1, rng, kept=setting.kept_states)
    return setting.snapshots


def proposer(setting: Setting, rng: random.Random) -> Proposer | None:
    """Return what drafts in the engine."""
    if setting.run_ahead or not setting.reckless:
        return None
    return Reckless(Guesser(rng).propose, policy(setting))


def policy(setting: Setting) -> type[DraftPolicy]:
    """Return how rows are chosen: by what pays, or all of them."""
    return EveryRow if setting.seed // 8 % 4 else DraftPolicy


def drafted(setting: Setting, target: ToyTarget, rng: random.Random) -> Callable[[Any], Verdict]:
    """Return what a target's process does with a round."""
    guess = Guesser(rng).propose
    if not setting.reckless:
        proposing = Proposer(WITHOUT_MODEL, policy=policy(setting), groups=SearchDrafts)
        return DraftingStep(proposing, target.step, guess).step
    if not setting.run_ahead:
        return target.step
    return DraftingStep(Reckless(guess, policy(setting)), target.step).step


def target_device(
    setting: Setting,
    fates: Fates,
    size: int,
    stats: RecoveryStats,
    pages: list[Cell],
    rng: random.Random,
    states: list[Cell],
) -> RecoveringTarget | ProcessDevice[Proposal, Verdict]:
    """Return the target, over pages that outlive its process or over pages that end with it."""
    make = partial(
        ToyTarget,
        setting.block_count,
        size,
        blends=setting.blends,
        asked=setting.adapters,
        window=setting.windows.window,
        window_count=setting.windows.count,
    )
    if not setting.recovers:
        begin = lambda: drafted(setting, make(states=[*states]), rng)  # noqa: E731
        return ProcessDevice(child_of(fates.target, begin, Proposal), Verdict)
    journal = MoveJournal(memoryview(bytearray(JOURNAL_BYTES)))
    make = partial(make, pages=pages, journal=journal, states=states)
    spawn = child_of(fates.target, lambda: drafted(setting, make(), rng), Proposal)
    return RecoveringTarget(
        ProcessDevice(spawn, Verdict),
        RoundsInFlight(journal),
        spare=ProcessDevice(spawn, Verdict) if setting.spare else None,
        stats=stats,
        limit=RestartLimit(failures_max=10**6, fruitless_max=10**6),
    )


async def simulate(setting: Setting) -> Report:
    """Run clients against a server until all have left; checks every invariant on the way."""
    rng = random.Random(setting.seed)
    report = Report()
    fates = Fates.of(setting, rng)
    async with running(parts(setting, fates, rng)) as engine:
        # Watchers never idle, so a client that waits for ever would be waited for in real time too.
        with anyio.fail_after(3600):
            async with anyio.create_task_group() as clients:
                for number in range(setting.requests):
                    mind = random.Random(rng.random())
                    outcome = Outcome(odd=mind.random() < setting.odd)
                    report.outcomes.append(outcome)
                    clients.start_soon(client, engine, mind, number, outcome, setting)
            with anyio.fail_after(IDLE_S):
                await engine.drain()
                while engine.snapshot().load.running or not engine.snapshot().models.target_up:  # noqa: ASYNC110
                    await anyio.sleep(0.1)  # idleness is not announced
        snapshot = engine.snapshot()
        engine.check()
    counted = [sum(seconds.counts) for seconds in snapshot.request_stages.values()]
    assert len(set(counted)) == 1, "a choice that ended has all of its stages"
    faults = fates.target.happened + fates.actors.happened
    mended = snapshot.actors.restarts + snapshot.models.recoveries
    assert mended <= faults.total(), "only faults may restart anything"
    assert snapshot.load.blocks_used == 0, "every block came home"
    assert not any(snapshot.actors.mailbox_depths.values()), snapshot.actors.mailbox_depths
    report.counters.update(
        preemptions=snapshot.counts.preemptions,
        accepted=snapshot.counts.accepted_tokens,
        rejected=snapshot.counts.draft_tokens - snapshot.counts.accepted_tokens,
        prefix_hits=snapshot.counts.prefix_hits,
        recomputed=snapshot.counts.recomputed_tokens,
        restarts=snapshot.actors.restarts,
        overrun=snapshot.counts.overrun_tokens,
        recoveries=snapshot.models.recoveries,
        returned=snapshot.counts.blocks_returned,
        store_hits=int(snapshot.store.get("hits", 0)),
        store_blocks=int(snapshot.store.get("blocks", 0)),
        peers_killed=int(snapshot.store.get("killed", 0)),
        peers_altered=int(snapshot.store.get("altered", 0)),
        state_hits=setting.snapshots.hits if setting.snapshots else 0,
    )
    report.counters.update({f"target {name}": n for name, n in fates.target.happened.items()})
    report.counters.update(fates.actors.happened)
    report.counters.update(outcome.ending for outcome in report.outcomes)
    report.counters.update(
        f"{kind} {each.ending}" for each in report.outcomes for kind in each.kinds
    )
    return report


def random_options(rng: random.Random, *, searches: bool = True) -> Options:
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
        grammar=Grammar("regex", "the toy's") if rng.random() < 0.15 else None,
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
        stop_token_ids=() if sampling.grammar else stop_tokens(sampling.seed),
    )
    return in_beams(options, rng) if rng.random() < 0.2 and searches else options


def stop_tokens(seed: int) -> tuple[int, ...]:
    """Return tokens that end a text besides the model's own; mostly none."""
    rng = random.Random(seed)
    return tuple(rng.sample(range(STOP + 1, VOCAB), 2)) if rng.random() < 0.2 else ()


def in_beams(options: Options, rng: random.Random) -> Options:
    """Return a beam search with the same penalties, narrow and short enough for a small pool."""
    width, drawn = rng.choice([2, 3, 4]), rng.random() < 0.3
    temperature = 0.8 if drawn else 0.0
    return msgspec.structs.replace(
        options,
        sampling=msgspec.structs.replace(
            options.sampling, temperature=temperature, logprobs=-1, grammar=None
        ),
        tokens_max=min(12, options.tokens_max or 12),
        choices=rng.choice([1, 1, width]),
        beam_width=width,
        length_penalty=1.0 if drawn else rng.choice([0.0, 1.0, 2.0]),
        early_stopping=not drawn and rng.random() < 0.5,
    )


async def client(
    engine: Engine, rng: random.Random, number: int, outcome: Outcome, setting: Setting
) -> None:
    """Be one client: come late, read slowly, leave early; every text must be the plain one."""
    await anyio.sleep(rng.uniform(0, 0.3))
    options = random_options(rng, searches=setting.state_slots not in range(1, 9))
    shared = [1 + n % 5 for n in range(rng.choice([0, 9, 17]))]
    prompt = [*shared, *(rng.randrange(1, POISON[0]) for _ in range(rng.randint(1, 9)))]
    if setting.blended and not outcome.odd and rng.random() < setting.blended:
        prompt, options = with_segments(rng, options)
        assert options.blend is not None
        setting.blends[options.sampling.seed] = options.blend
    elif setting.adapted and rng.random() < setting.adapted:
        options = msgspec.structs.replace(options, adapter=rng.choice(["one", "two"]))
        setting.adapters[options.sampling.seed] = options.adapter
    options = with_promise(as_reading(options, setting), setting)
    patience = rng.choice([rng.uniform(0, 0.2), rng.uniform(0, 20), 1e6, 1e6, 1e6])
    outcome.kinds = kinds(options)
    outcome.texts = [""] * options.choices
    outcome.reasons = [""] * options.choices
    try:
        with anyio.move_on_after(patience) as scope:
            sent = as_sent(prompt, outcome, rng)
            pace = rng.choice([0.0, 0.0, 0.1, 2.0])
            await read(engine, sent, options, str(number), pace, outcome)
        if scope.cancelled_caught:
            assert patience < 1e6, "a patient client waited for nothing"
            outcome.ending = "left"
    except OverloadedError:
        outcome.ending = "refused"
    if outcome.odd:
        assert outcome.ending in (*ODD_ENDINGS, "left", "refused") and not any(outcome.texts)
    else:
        compare(prompt, options, outcome)


def as_reading(options: Options, setting: Setting) -> Options:
    """Return the options of a client who wants a vector, or answers weighed, and no text."""
    rng = random.Random(-options.sampling.seed)  # its own, so that all else is as without
    if rng.random() >= setting.reading or options.blend is not None or options.adapter:
        return options
    readings = PoolingParams("mean"), PoolingParams("last"), PoolingParams(answers=(3, 5))
    return Options(
        sampling=Sampling(seed=options.sampling.seed),
        pooling=rng.choice(readings),
        tenant=options.tenant,
        priority=options.priority,
    )


def with_promise(options: Options, setting: Setting) -> Options:
    """Return the options of a client who is promised something, or cannot wait for long."""
    rng = random.Random(options.sampling.seed)  # its own, so that all else is as without
    if rng.random() >= setting.promised:
        return options
    own = Slo(ttft=rng.choice([0.0, 0.02, 0.3, 2.0]), tpot=rng.choice([0.0, 0.0005, 0.05]))
    return msgspec.structs.replace(
        options,
        slo=rng.choice([None, own, own]),
        deadline_s=rng.choice([0.0, 0.0, 0.05, 0.5, 5.0]),
        priority=rng.choice([-2, -1, 0, 0, 1, 3]),
        waited_s=rng.choice([0.0, 0.01, 0.2]),
    )


PASSAGES = [[1 + (7 * n + i) % 11 for i in range(5 + 3 * n)] for n in range(4)]
"""What prompts with segments are made of, in any order."""


def with_segments(rng: random.Random, options: Options) -> tuple[list[int], Options]:
    """Return a prompt of passages and text between them, and options that declare them."""
    prompt: list[int] = []
    spans: list[tuple[int, int]] = []
    for passage in rng.sample(PASSAGES, rng.randint(1, 3)):
        prompt += [rng.randrange(1, POISON[0]) for _ in range(rng.choice([0, 0, 1, 5]))]
        spans.append((len(prompt), len(prompt) + len(passage)))
        prompt += passage
    prompt += [rng.randrange(1, POISON[0]) for _ in range(rng.choice([0, 1, 4]))]
    rules: list[RuleName] = ["hkvd", "hkvd", "head", "none"]
    rule = rng.choice(rules)
    blend = Blend(tuple(spans), rule, rng.choice([0.0, 0.15, 0.5, 1.0]))
    tokens_max = min(options.tokens_max or 12, CONTEXT - len(prompt))
    return prompt, msgspec.structs.replace(options, blend=blend, tokens_max=tokens_max)


def kinds(options: Options) -> list[str]:
    """Name what is special about a request."""
    found = {"search": options.beam_width > 1, "grammar": options.sampling.grammar is not None}
    found["blend"] = options.blend is not None
    found["blend search"] = found["blend"] and found["search"]
    found["promise"] = options.slo is not None
    found["adapter"] = bool(options.adapter)
    found["adapter search"] = found["adapter"] and found["search"]
    found["reading"] = options.pooling is not None
    return [name for name, is_so in found.items() if is_so]


def as_sent(prompt: list[int], outcome: Outcome, rng: random.Random) -> Prompt:
    """Return the prompt as tokens or as text; an odd client's is like no other."""
    if "blend" in outcome.kinds:
        return tuple(prompt)
    if outcome.odd:
        return rng.choice([(*POISON, *prompt), "no word of the toy's"])
    return rng.choice([tuple(prompt), " ".join(f"w{token}" for token in prompt)])


async def read(
    engine: Engine,
    prompt: Prompt,
    options: Options,
    request_id: str,
    pace: float,
    outcome: Outcome,
) -> None:
    begun_s = anyio.current_time()
    async with engine.generate(prompt, options, request_id=request_id) as events:
        async for event in events:
            assert not outcome.ending, "something came after the last word"
            await anyio.sleep(pace)
            match event:
                case Delta():
                    outcome.token_count += len(event.tokens)
                    assert not outcome.reasons[event.choice], "text after its ending"
                    assert len(event.tokens) == len(event.origins)
                    outcome.texts[event.choice] += event.text
                case Ended():
                    outcome.texts[event.choice] += event.text
                    outcome.reasons[event.choice] = event.finish_reason
                    outcome.pooling_output = event.further.pooling_output
                    if all(outcome.reasons):
                        outcome.ending = "finished"
                case Failed(kind="refused"):
                    outcome.ending = "refused"  # a search that the pool cannot hold
                case Failed(kind="deadline_exceeded"):
                    waited_s = anyio.current_time() - begun_s + options.waited_s
                    assert 0.0 < options.deadline_s <= waited_s + 1e-6, "it ended too soon"
                    assert not outcome.token_count, "a text broke off"
                    outcome.ending = "expired"
                case Failed(kind="slo_unmet"):
                    assert event.retry_after_ms > 0 and not outcome.token_count
                    outcome.ending = "unmet"
                case Failed():
                    assert outcome.odd, f"{request_id} failed: {event.reason}"
                    outcome.ending = "odd"
    assert outcome.ending, "the stream ended without a last word"


def compare(prompt: list[int], options: Options, outcome: Outcome) -> None:
    """Assert that each choice's text is the plain model's, or the beginning of it."""
    if options.pooling is not None:
        assert not any(outcome.texts), "text of a prompt that is only read"
        wanted = plain_reading(prompt, options.pooling)
        assert outcome.ending != "finished" or outcome.pooling_output == wanted
        return
    for choice, (text, reason) in enumerate(zip(outcome.texts, outcome.reasons, strict=True)):
        want, want_reason = expected(prompt, options, choice)
        if reason:
            assert (text, reason) == (want, want_reason)
        else:
            assert want.startswith(text), (want, text)


def expected(prompt: list[int], options: Options, choice: int) -> tuple[str, str]:
    """Return the text and the finish reason that one choice must have."""
    sampling = msgspec.structs.replace(
        options.sampling,
        branch=choice,
        stop_token_ids=(*(() if options.ignore_eos else (STOP,)), *options.stop_token_ids),
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
        if choice >= len(found):  # the distribution has no more texts than that
            return "", "stop"
        tokens = found[choice][0]
    else:
        tokens = plain_text(prompt, sampling, options.tokens_max)
    text = ToyText().decode([each for each in tokens if each not in options.stop_token_ids])
    cuts = [at for stop in options.stop if (at := text.find(stop)) >= 0]
    if cuts:
        return text[: min(cuts)], "stop"
    return text, "stop" if tokens[-1] in sampling.stop_token_ids else "length"


def run(setting: Setting) -> Report:
    """Run one simulation on trio's virtual clock: idle time costs nothing.

    The seed also decides the order of tasks that could run in any. Faults are planned here, and
    their tracebacks, which take a fifth of the time to word, tell nothing.
    """
    logged = logging.root.manager.disable
    logging.disable(logging.ERROR)
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # without it, by their addresses
    scheduler._r.seed(setting.seed)
    try:
        return anyio.run(
            simulate,
            setting,
            backend="trio",
            backend_options={"clock": trio.testing.MockClock(autojump_threshold=0)},
        )
    finally:
        logging.disable(logged)


def run_with_peers(seed: int) -> Counter[str]:
    """Run two servers that fetch blocks of one before them, from peers that are killed and lie."""
    kept: dict[bytes, list[Cell]] = {}
    run(Setting(3 * seed, store=True, kept=kept, block_count=60))
    blended = 0.4 * (seed % 2)
    return sum(
        (
            run(
                Setting(
                    3 * seed + server,
                    kept=kept,
                    peer_faults=0.4,
                    lost=0.02,
                    bugs=0.003,
                    blended=blended,
                    run_ahead=server == 2,
                )
            ).counters
            for server in (1, 2)
        ),
        Counter[str](),
    )
