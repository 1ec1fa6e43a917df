"""The engine's interface: which requests are admitted, what is streamed, and that every stream
ends."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.actors.devices.restarts import RestartLimit
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed, Started
from draftwerk.actors.pipeline import EngineParts
from draftwerk.actors.requests.errors import DrainingError, OverloadedError
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.request import Options, Written
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk.speculative.sources.store import OutputStores
from tests.actors import loops
from tests.actors.loops import on_both_loops, settle
from tests.support.simulation import expected
from tests.support.thread_device import OneAtATime, ThreadDevice
from tests.support.toy import STOP, TalkativeTarget, ToyTarget, ToyText, plain_text

PROMPT = (1, 2, 3, 4, 5)
PLAIN = Options(sampling=Sampling(seed=3), tokens_max=6, ignore_eos=True)


@dataclass
class Bench:
    """Toy devices that a test can hold still and break."""

    open: anyio.Event | None = None
    """Steps wait for it, if there is one."""
    breaks_at: set[int] = field(default_factory=set)
    """Steps, counted over all devices, in which the device is lost."""
    patience: int = 0
    """Turns of the event loop that a lost device takes to be noticed."""
    steps: int = 0

    def target(self) -> "BenchDevice":
        return BenchDevice(self, ToyTarget(24, 4).step)

    def parts(self, **how: Any) -> EngineParts:
        return EngineParts(
            **{
                "text": ToyText(),
                "options": all_options(),
                "target": self.target,
                "block_count": 24,
                "block_size": 4,
                "context_max": 32,
                "stop_token_ids": (STOP,),
                "limits": RoundLimits(draft_max=3),
                "restarts": lambda: RestartLimit(failures_max=5, pause_s=0),
                **how,
            }
        )


@dataclass(eq=False)
class BenchDevice(OneAtATime[Proposal, Verdict]):
    bench: Bench
    step: Callable[[Proposal], Verdict]

    async def run(self, work: Proposal) -> Verdict:
        self.bench.steps += 1
        mine = self.bench.steps
        if mine in self.bench.breaks_at:
            for _ in range(self.bench.patience):
                await checkpoint()
            raise DeviceLostError("on purpose")
        if self.bench.open is not None:
            await self.bench.open.wait()
        await checkpoint()
        return self.step(work)


async def events(
    engine: Engine, options: Options = PLAIN, request_id: str = "r", prompt: Any = PROMPT
) -> list[Event]:
    async with engine.generate(prompt, options, request_id=request_id) as stream:
        return [event async for event in stream]


def text_of(found: list[Event], choice: int = 0) -> tuple[str, str]:
    """Return one choice's text and finish reason; checks that the ending is the last word."""
    mine = [event for event in found if isinstance(event, Delta | Ended) and event.choice == choice]
    end = mine[-1]
    assert isinstance(end, Ended)
    assert all(isinstance(event, Delta) for event in mine[:-1])
    tokens = [token for event in mine[:-1] for token in event.tokens]  # type: ignore[union-attr]
    assert end.token_count == len(tokens)
    return "".join(event.text for event in mine), end.finish_reason


def plain(options: Options, choice: int = 0, prompt: tuple[int, ...] = PROMPT) -> tuple[str, str]:
    return expected(list(prompt), options, choice)


@on_both_loops
async def test_a_given_text_is_verified_in_a_few_steps_and_changes_nothing() -> None:
    """A wrong token costs the steps behind it, and the text is the target's all the same."""
    bench = Bench()
    async with running(bench.parts(limits=RoundLimits(draft_max=3))) as engine:
        for first in (0, 2):
            sampling = Sampling(seed=5, presence_penalty=0.5)
            bare = Options(sampling=sampling, tokens_max=20, ignore_eos=True, first_choice=first)
            branch = msgspec.structs.replace(sampling, branch=first)
            wanted = plain_text(PROMPT, branch, 20)
            for wrong in (None, 0, 4, 17):
                text, before = [*wanted], bench.steps
                if wrong is not None:
                    text[wrong] = (text[wrong] + 1) % ToyText.vocab_size
                checked = msgspec.structs.replace(bare, forced_tokens=tuple(text))
                name = f"{first} {wrong}"
                assert tokens_of(await events(engine, checked, name)) == wanted
                if wrong is None:
                    assert bench.steps - before <= 6


@on_both_loops
async def test_a_half_written_text_goes_on_as_if_it_had_been_generated() -> None:
    """Its tokens count for penalties, the least length and the positions of the noise; not for the
    limit, nor for the client, who is sent none of them. Lost devices change nothing."""
    bench = Bench(breaks_at=set(range(20, 400, 7)))
    sampling = Sampling(seed=5, presence_penalty=0.9, tokens_min=4)
    whole = Options(sampling=sampling, tokens_max=12, choices=2)
    limit = RestartLimit(failures_max=10**6, fruitless_max=10**6, pause_s=0)
    async with running(bench.parts(restarts=lambda: limit)) as engine:
        found = await events(engine, whole, "whole")
        texts = [tokens_of(found, number) for number in range(2)]
        for choice, text in enumerate(texts):
            for cut in range(1, len(text)):
                written = Written(tuple(text[:cut]), ToyText().decode(text[:cut]))
                rest = msgspec.structs.replace(whole, tokens_max=12 - cut, written=written)
                mine = await events(engine, rest, f"{choice} {cut}")
                assert tokens_of(mine, choice) == text[cut:]
                assert text_of(mine, choice)[1] == text_of(found, choice)[1]
                (start,) = (each for each in mine if isinstance(each, Started))
                assert start.prompt == (*PROMPT, *text[:cut])
                ended = [each for each in mine if isinstance(each, Ended)]
                assert {each.stats.prompt_count for each in ended} == {len(PROMPT) + cut}
                read = msgspec.structs.replace(rest, tokens_max=0)
                assert tokens_of(await events(engine, read, f"{choice} {cut} read")) == []


def tokens_of(found: list[Event], choice: int | None = None) -> list[int]:
    mine = (event for event in found if isinstance(event, Delta))
    return [token for event in mine if choice in (None, event.choice) for token in event.tokens]


# --- in and out -----------------------------------------------------------------------------------


@on_both_loops
async def test_a_request_gets_its_text_and_leaves_nothing_behind() -> None:
    async with running(Bench().parts()) as engine:
        assert text_of(await events(engine)) == plain(PLAIN)
        await settle()
        snapshot = engine.snapshot()
        load = snapshot.load
        assert (load.blocks_used, load.running, load.waiting) == (0, 0, 0)
        assert snapshot.models.target_up
        assert snapshot.counts.generated_tokens == 6
        assert snapshot.actors.mailbox_waits.keys() == snapshot.actors.mailbox_depths.keys()
        assert all(sum(waits.counts) > 0 for waits in snapshot.actors.mailbox_waits.values())
        engine.check()


@on_both_loops
async def test_a_client_that_does_not_read_holds_no_block() -> None:
    async with (
        running(Bench().parts()) as engine,
        engine.generate(PROMPT, PLAIN, request_id="slow") as unread,
    ):
        for number in range(3):
            assert text_of(await events(engine, request_id=f"quick {number}")) == plain(PLAIN)
        await settle()
        assert engine.snapshot().load.blocks_used == 0
        assert text_of([event async for event in unread]) == plain(PLAIN)


@on_both_loops
async def test_a_request_that_cannot_fit_is_refused_through_its_stream() -> None:
    async with running(Bench().parts()) as engine:
        (refusal,) = await events(engine, prompt=(1,) * 40)
        assert isinstance(refusal, Failed)
        assert (refusal.kind, refusal.field) == ("refused", "prompt")


@on_both_loops
async def test_the_pool_bounds_the_context() -> None:
    parts = Bench().parts(block_count=2)
    assert parts.tokens_max == 8
    async with running(parts) as engine:
        (refusal,) = await events(engine)
        assert isinstance(refusal, Failed) and refusal.field == "max_tokens"


@on_both_loops
async def test_a_row_that_fails_fails_its_request_alone() -> None:
    class Unlucky(ToyTarget):
        def _decide(self, row: Any, draft: Any) -> Any:
            decision = super()._decide(row, draft)
            if self.histories[row.sequence_id][0] == 7:
                return type(decision)(error="not this one")
            return decision

    bench = Bench()
    parts = bench.parts(target=lambda: BenchDevice(bench, Unlucky(24, 4).step))
    async with running(parts) as engine, anyio.create_task_group() as clients:
        found: dict[str, list[Event]] = {}

        async def client(request_id: str, prompt: tuple[int, ...]) -> None:
            found[request_id] = await events(engine, request_id=request_id, prompt=prompt)

        clients.start_soon(client, "good", PROMPT)
        clients.start_soon(client, "bad", (7, 8))
    assert text_of(found["good"]) == plain(PLAIN)
    assert found["bad"] == [
        Started(request_id="bad", prompt=(7, 8)),
        Failed(request_id="bad", kind="failed", reason="not this one"),
    ]


# --- admission
# -------------------------------------------------------------------------------------


@on_both_loops
async def test_a_full_engine_refuses_at_once_and_takes_the_next_when_a_place_is_free() -> None:
    bench = Bench(open=anyio.Event())
    async with running(bench.parts(requests_max=1)) as engine:
        async with engine.generate(PROMPT, PLAIN, request_id="first") as stream:
            with pytest.raises(OverloadedError) as refusal:
                await events(engine, request_id="second")
            assert refusal.value.retry_after_ms > 0
            assert bench.open is not None
            bench.open.set()
            assert text_of([event async for event in stream]) == plain(PLAIN)
        assert text_of(await events(engine, request_id="second")) == plain(PLAIN)


@on_both_loops
async def test_an_id_in_use_is_refused_and_the_first_request_goes_on() -> None:
    async with (
        running(Bench().parts()) as engine,
        engine.generate(PROMPT, PLAIN, request_id="r") as stream,
    ):
        with pytest.raises(ValueError, match="in use"):
            await events(engine)
        assert text_of([event async for event in stream]) == plain(PLAIN)
        assert text_of(await events(engine)) == plain(PLAIN), "the id is free again"


@on_both_loops
async def test_a_draining_engine_finishes_what_it_has_and_takes_nothing_new() -> None:
    bench = Bench(open=anyio.Event())
    found: list[Event] = []
    drained = anyio.Event()
    async with running(bench.parts()) as engine, anyio.create_task_group() as tasks:

        async def client() -> None:
            found.extend(await events(engine))

        async def drain() -> None:
            await engine.drain()
            drained.set()

        tasks.start_soon(client)
        await settle()
        tasks.start_soon(drain)
        await settle()
        assert not drained.is_set()
        assert engine.snapshot().draining
        with pytest.raises(DrainingError):
            await events(engine, request_id="late")
        assert bench.open is not None
        bench.open.set()
        await drained.wait()
    assert text_of(found) == plain(PLAIN)


@on_both_loops
async def test_a_stopped_engine_gives_everyone_a_last_word() -> None:
    found: list[Event] = []

    async def client(engine: Engine) -> None:
        found.extend(await events(engine))

    parts = Bench(open=anyio.Event()).parts()
    async with anyio.create_task_group() as clients, running(parts) as engine:
        clients.start_soon(client, engine)
        await settle()
    last = [event for event in found if not isinstance(event, Started)]
    assert last == [Failed(request_id="r", kind="failed", reason="the server has stopped")]
    with pytest.raises(DrainingError):
        await events(engine)


# --- leaving early --------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [0, 1, 3])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_leaving_early_cancels_and_frees_everything(read: int, backend: str) -> None:
    async def main() -> None:
        bench = Bench()
        options = Options(sampling=Sampling(seed=1), tokens_max=25, choices=2, ignore_eos=True)
        async with running(bench.parts()) as engine:
            async with engine.generate(PROMPT, options, request_id="r") as stream:
                for _ in range(read):
                    await stream.receive()
            with anyio.fail_after(loops.DEADLINE_S):
                await engine.drain()
            await settle()
            assert engine.snapshot().load.blocks_used == 0
            assert engine.snapshot().load.running == 0
            steps = bench.steps
            await settle()
            assert bench.steps == steps, "nobody reads it, and it is still computed"
            assert bench.steps < 25
            engine.check()

    anyio.run(main, backend=backend)


@on_both_loops
async def test_a_client_that_is_cancelled_is_a_client_that_leaves() -> None:
    bench = Bench(open=anyio.Event())
    async with running(bench.parts()) as engine:
        async with anyio.create_task_group() as client:
            client.start_soon(events, engine)
            while not bench.steps:  # noqa: ASYNC110 (the bench has no event for us)
                await anyio.sleep(0.001)
            client.cancel_scope.cancel()
        await settle()
        assert not engine._ledger.entries
        load = engine.snapshot().load
        assert load.running == 1, "its row is in flight: a step is never abandoned"


# --- crashes --------------------------------------------------------------------------------------

ODD = Options(sampling=Sampling(seed=8), tokens_max=9, stop=("w7 ", "5 "))
EVEN = Options(sampling=Sampling(seed=9, logit_bias=((STOP, 2.0),)), tokens_max=7, choices=2)


async def compare_all(engine: Engine) -> None:
    """Serve requests of all kinds at once, and compare each text with the plain one."""

    async def client(number: int, options: Options) -> None:
        prompt = (1, 2, 3 + number)
        found = await events(engine, options, str(number), prompt)
        for choice in range(options.choices):
            assert text_of(found, choice) == plain(options, choice, prompt), (number, choice)

    async with anyio.create_task_group() as clients:
        for number, options in enumerate([PLAIN, ODD, EVEN, ODD, EVEN]):
            clients.start_soon(client, number, options)


@pytest.mark.parametrize("step", range(1, 8))
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_crash_at_any_moment_changes_no_text(step: int, backend: str) -> None:
    """The device is lost at once, or while the last round's text is still on its way."""

    async def main(patience: int) -> None:
        bench = Bench(breaks_at={step}, patience=patience)
        async with running(bench.parts()) as engine:
            with anyio.fail_after(loops.DEADLINE_S):
                await compare_all(engine)
            assert engine.snapshot().actors.restarts == (1 if bench.steps >= step else 0)

    for patience in range(10):
        anyio.run(main, patience, backend=backend)


@on_both_loops
async def test_a_request_that_comes_between_two_pipelines_is_served() -> None:
    bench = Bench(breaks_at={1})
    limit = RestartLimit(failures_max=5, pause_s=0.02)
    parts = bench.parts(restarts=lambda: limit)
    async with running(parts) as engine, anyio.create_task_group() as clients:
        clients.start_soon(events, engine)
        await settle()
        assert engine.snapshot().actors.restarts == 0
        found = await events(engine, request_id="between")
    assert text_of(found) == plain(PLAIN)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_after_too_many_crashes_everyone_has_a_last_word_and_the_engine_fails(backend: str) -> None:
    found: list[Event] = []

    async def main() -> None:
        bench = Bench(breaks_at=set(range(100)))
        async with running(bench.parts()) as engine:
            with anyio.CancelScope(shield=True):
                found.extend(await events(engine))
            await anyio.sleep(5)

    with pytest.raises(BaseExceptionGroup) as failure:
        anyio.run(main, backend=backend)
    assert failure.group_contains(DeviceLostError)
    assert found[-1] == Failed(request_id="r", kind="failed", reason="the engine failed too often")
    assert all(isinstance(event, Started) for event in found[:-1])


async def test_a_request_that_kills_every_device_fails_and_the_others_finish() -> None:
    """The device dies on a poisonous token; all others are served all the same."""
    poison = 13

    class Poisoned(ThreadDevice[Proposal, Verdict]):
        async def run(self, work: Proposal) -> Verdict:
            if any(
                row.new_sequence and poison in row.new_sequence.tokens for row in work.round.rows
            ):
                raise DeviceLostError("poisoned")
            return await super().run(work)

    server = EngineParts(
        options=all_options(),
        text=ToyText(),
        target=lambda: Poisoned(ToyTarget(24, 4).step),
        block_count=24,
        block_size=4,
        context_max=32,
        stop_token_ids=(STOP,),
        restarts=lambda: RestartLimit(pause_s=0.002),
    )
    endings: dict[str, Ended | Failed] = {}

    async def ask(engine: Engine, name: str, prompt: tuple[int, ...]) -> None:
        options = Options(sampling=Sampling(temperature=0.0), tokens_max=4, ignore_eos=True)
        async with engine.generate(prompt, options, request_id=name) as events:
            async for event in events:
                if isinstance(event, Ended | Failed):
                    endings[name] = event

    async with running(server) as engine:
        await ask(engine, "early", (1, 2))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, engine, "poisonous", (1, poison))
        await ask(engine, "late", (1, 2, 3))
    assert isinstance(endings["early"], Ended)
    assert isinstance(endings["poisonous"], Failed)
    assert isinstance(endings["late"], Ended)


# --- name spaces ----------------------------------------------------------------------------------

NAMES = st.sampled_from(["", "a", "b", "salt a", "tenant a"])


@given(names=st.tuples(NAMES, NAMES, NAMES, NAMES), source=st.sampled_from(["store", "recycle"]))
@settings(max_examples=60, deadline=None)
def test_the_store_is_shared_exactly_where_blocks_are(
    names: tuple[str, str, str, str], source: str
) -> None:
    keys, salts = names[::2], names[1::2]
    shared = salts[0] == salts[1] and (salts[0] != "" or keys[0] == keys[1])
    one, other = (
        Options(
            sampling=Sampling(temperature=0.0),
            tokens_max=12,
            ignore_eos=True,
            tenant=key,
            cache_salt=salt,
        )
        for key, salt in zip(keys, salts, strict=True)
    )

    async def both() -> list[Event]:
        bench, stores = Bench(), OutputStores()
        parts = bench.parts(
            target=lambda: BenchDevice(bench, TalkativeTarget(24, 4).step),
            proposer=lambda: Proposer((source,), stores=stores),
        )
        async with running(parts) as engine:
            await events(engine, one, "first")
            await settle()
            return await events(engine, other, "second")

    found = anyio.run(both)
    end = found[-1]
    assert isinstance(end, Ended) and end.stats is not None
    origins = {origin for event in found if isinstance(event, Delta) for origin in event.origins}
    assert text_of(found) == plain(other)
    assert (end.stats.cached_count > 0) == shared
    if source == "store":
        assert ("store" in origins) == shared
        assert (end.stats.draft_count > 0) == shared
    elif shared:
        assert "recycle" in origins
