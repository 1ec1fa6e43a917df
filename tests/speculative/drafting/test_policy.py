"""Chains of a draft model, handed on whole: nothing may look at what was drawn."""

import random

from draftwerk.speculative.drafting.policy import REJECTION
from draftwerk.speculative.drafting.proposer import Proposer
from tests.speculative.drafting.replay import COSTS, Recording, Replay, cost

VOCAB = 50


def test_chains_are_handed_on_whole_and_learnt_from() -> None:
    rng = random.Random(3)
    recordings = [
        Recording(
            tuple(rng.choices(range(VOCAB), k=20)), tuple(rng.choices(range(9), k=80)), category="x"
        )
        for _ in range(6)
    ]
    asked: list[int] = []

    def model(recording: Recording, said: int, length: int) -> tuple[int, ...]:
        """Guess with three right of four."""
        asked.append(min(length, len(recording.output) - said - 1))
        future = recording.output[said : said + asked[-1]]
        return tuple(token if rng.random() < 0.75 else VOCAB for token in future)

    chains = Proposer(("draft",), COSTS, policy=REJECTION)
    report = Replay(chains, cost, 8, model, 1.0).run(recordings, 2)
    chains.check()
    assert report.drafted_by == {"draft": sum(asked)}
    assert max(asked) > 2
    assert report.accepted > report.tokens / 4
