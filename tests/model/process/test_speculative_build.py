"""A target with its draft sources; one without a head drafts by the others."""

from types import SimpleNamespace
from typing import Any

from draftwerk.model.process.speculative_build import SpeculativeRunner, SpeculativeRunners


def runners(*sources: str) -> SpeculativeRunners:
    def runner() -> Any:
        return SimpleNamespace(
            parts=SimpleNamespace(draft_head=None),
            step=lambda proposal: proposal,
            check=lambda: None,
            known_counts=dict,
        )

    return SpeculativeRunners(runner, sources, (), None)


def test_each_target_is_new_and_what_was_learnt_of_outputs_stays() -> None:
    made = runners("ngram", "head", "store")
    first, second = made.make(), made.make()
    assert isinstance(first, SpeculativeRunner) and first.drafter is None
    assert first.runner is not second.runner and first.rounds is not second.rounds
    first.check()
