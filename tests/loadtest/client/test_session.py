"""A session sends its turns one after another, each with the answers so far."""

import asyncio
from typing import Any

from draftwerk_tools.loadtest.client.exchange import Exchange, Failure
from draftwerk_tools.loadtest.client.session import Asker
from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.schedule.plan import Planned
from draftwerk_tools.loadtest.workloads.prompt import WorkloadPrompt

PLANNED = Planned(0, None, WorkloadPrompt(turns=("a", "b", "c")))


class Bodies:
    """Keeps the conversations that it is asked for."""

    def __init__(self) -> None:
        self.asked = list[list[str]]()

    def body(self, prompt: Any, conversation: Any) -> bytes:
        self.asked.append([turn["content"] for turn in conversation])
        return b"{}"


class Transport:
    def __init__(self, fails_at: int) -> None:
        self.sent, self.fails_at = 0, fails_at

    async def send(self, body: bytes, exchange: Exchange) -> None:
        self.sent += 1
        if self.sent == self.fails_at:
            raise Failure("status", status=500)
        exchange.pieces.append(f"answer {self.sent}")


def asked(fails_at: int = 0) -> tuple[list[list[str]], list[RequestRow], int]:
    bodies, rows, notes = Bodies(), list[RequestRow](), list[int]()
    options, maker, transport = LoadTestOptions(url="http://x"), bodies, Transport(fails_at)
    anything: Any = maker
    sender: Any = transport
    asker = Asker(options, anything, sender, lambda: 0.0, rows.append, notes.append)
    asyncio.run(asker.run(PLANNED, 0.0))
    return bodies.asked, rows, sum(notes)


def test_answers_are_part_of_the_next_question() -> None:
    conversations, rows, under_way = asked()
    assert conversations[2] == ["a", "answer 1", "b", "answer 2", "c"]
    assert [row.turn for row in rows] == [0, 1, 2] and under_way == 0


def test_a_turn_that_fails_ends_the_conversation() -> None:
    _, rows, under_way = asked(fails_at=2)
    assert [row.outcome for row in rows] == ["ok", "error"] and under_way == 0
