"""The audit decodes finished requests again, and counts texts that depend on the engine."""

import random

import msgspec

from draftwerk.actors.devices.device import ThreadWorker
from draftwerk.actors.engine import running
from draftwerk.actors.events.client_events import Delta
from draftwerk.actors.requests.audit import Audit, kind
from draftwerk.speculative.request import Options
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.sampling import Sampling
from tests.actors import loops
from tests.support.simulation import Fates, Setting, parts
from tests.support.thread_device import ThreadDevice
from tests.support.toy import ToyTarget
from tests.support.waiting import until


async def generate(engine, number: int) -> None:
    options = Options(sampling=Sampling(temperature=1.0, seed=number), tokens_max=10)
    async with engine.generate((1, 2, 3), options, request_id=str(number)) as events:
        async for event in events:
            assert not isinstance(event, Delta) or event.tokens


async def audited(target) -> dict[str, int]:
    rng = random.Random(1)
    setting = Setting(1)
    with_audit = parts(setting, Fates.of(setting, rng), rng)
    object.__setattr__(with_audit, "worker", ThreadWorker())
    object.__setattr__(with_audit, "audit", Audit(1.0, rng))
    object.__setattr__(with_audit, "target", target)
    async with running(with_audit) as engine:
        for number in range(6):
            await generate(engine, number)
        await until(lambda: sum(engine.snapshot().audits.values()) >= 6, loops.DEADLINE_S)
        return engine.snapshot().audits


async def test_equal_texts_are_counted_as_equal() -> None:
    toy = ToyTarget(28, 4)
    found = await audited(lambda: ThreadDevice(toy.step))
    assert found == {"equal": 6}


async def test_a_target_that_errs_behind_drafts_is_found_out() -> None:
    toy = ToyTarget(28, 4)

    def erring(proposal: Proposal) -> Verdict:
        verdict = toy.step(proposal)
        decisions = [
            msgspec.structs.replace(d, tokens=(*d.tokens[:-1], 1 + d.tokens[-1] % 20))
            if draft.tokens
            else d
            for d, draft in zip(verdict.decisions, proposal.drafts, strict=True)
        ]
        return msgspec.structs.replace(verdict, decisions=tuple(decisions))

    found = await audited(lambda: ThreadDevice(erring))
    assert found.get("equal", 0) < 6
    assert found.get("token", 0) + found.get("length", 0) > 0


def test_texts_differ_by_token_or_by_length() -> None:
    assert kind([[1, 2]], [[1, 2]]) == "equal"
    assert kind([[1, 2]], [[1, 3]]) == "token"
    assert kind([[1, 2]], [[1]]) == "length"
