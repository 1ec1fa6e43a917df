"""A grammar is checked before a request is decoded under it."""

from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest

from draftwerk.actors.messages import Submit
from draftwerk.actors.texts.grammar_checks import GrammarChecks, UncheckedError
from draftwerk.speculative.load.size_limits import RefusedError
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Grammar, Sampling

PLAIN = Submit(request_id="r", prompt="a", options=Options(sampling=Sampling()))
GRAMMAR = Grammar("regex", "a+")
UNDER = msgspec.structs.replace(PLAIN, options=Options(sampling=Sampling(grammar=GRAMMAR)))


class Worker:
    async def run(self, work: Any) -> Any:
        return work()


def checked(submit: Submit, fault: Exception | None = None) -> tuple[Submit, list[Grammar]]:
    seen = list[Grammar]()

    def check_grammar(grammar: Grammar, written: tuple[int, ...]) -> None:
        seen.append(grammar)
        if fault is not None:
            raise fault

    text: Any = SimpleNamespace(check_grammar=check_grammar)
    worker: Any = Worker()
    return anyio.run(GrammarChecks(worker, text, 5.0).checked, submit), seen


def test_a_request_without_a_grammar_asks_for_nothing() -> None:
    assert checked(PLAIN) == (PLAIN, [])


def test_a_sound_grammar_is_kept() -> None:
    assert checked(UNDER) == (UNDER, [GRAMMAR])


def test_a_fault_is_the_requests_and_a_missing_process_the_servers() -> None:
    with pytest.raises(RefusedError, match="no text"):
        checked(UNDER, ValueError("no text"))
    with pytest.raises(UncheckedError):
        checked(UNDER, OSError("gone"))
