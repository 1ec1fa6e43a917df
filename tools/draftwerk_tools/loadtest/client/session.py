"""One session: its turns one after the other, each with the answers so far."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from draftwerk_tools.loadtest.client.clock import Clock
from draftwerk_tools.loadtest.client.exchange import Exchange, Failure
from draftwerk_tools.loadtest.client.http.body import BodyMaker, MessageList
from draftwerk_tools.loadtest.client.http.transport import Transport
from draftwerk_tools.loadtest.client.pace import sleep_until, think_time
from draftwerk_tools.loadtest.client.rowmaker import Attempt, HungUp, row_of
from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.schedule.plan import Planned


@dataclass(slots=True)
class Asker:
    """Runs sessions and hands their rows on; `note` is called as requests start and end."""

    options: LoadTestOptions
    bodies: BodyMaker
    transport: Transport
    clock: Clock
    keep: Callable[[RequestRow], None]
    note: Callable[[int], None]

    async def run(self, planned: Planned, due_s: float) -> None:
        """Send every turn; a turn that fails ends the conversation."""
        conversation: MessageList = []
        for turn, question in enumerate(planned.prompt.turns):
            conversation.append({"role": "user", "content": question})
            attempt = await self._ask(planned, turn, due_s, conversation)
            self.keep(row_of(attempt, self.options))
            if attempt.failure is not None:
                return
            conversation.append({"role": "assistant", "content": attempt.exchange.text})
            if turn + 1 < len(planned.prompt.turns):
                pause_s = think_time(self.options.think_s, self.options.seed, planned.index, turn)
                due_s = self.clock() + pause_s
                await sleep_until(due_s, self.clock)

    async def _ask(
        self, planned: Planned, turn: int, due_s: float, conversation: MessageList
    ) -> Attempt:
        options = self.options
        exchange = Exchange(options.endpoint, whole=options.transport == "json")
        body = self.bodies.body(planned.prompt, conversation)
        began_s = self.clock()
        self.note(1)
        failure = await self._send(body, exchange, planned.cancel_after_s)
        self.note(-1)
        ended_s = exchange.ended_s if failure is None else None
        return Attempt(
            planned=planned,
            turn=turn,
            scheduled_s=due_s,
            sent_s=began_s if exchange.sent_s is None else exchange.sent_s,
            ended_s=self.clock() if ended_s is None else ended_s,
            exchange=exchange,
            failure=failure,
        )

    async def _send(
        self, body: bytes, exchange: Exchange, cancel_after_s: float | None
    ) -> Failure | HungUp | None:
        hangs_up = cancel_after_s is not None and cancel_after_s < self.options.timeout_s
        try:
            async with asyncio.timeout(cancel_after_s if hangs_up else self.options.timeout_s):
                await self.transport.send(body, exchange)
        except Failure as failure:
            return failure
        except TimeoutError:
            return (
                HungUp()
                if hangs_up
                else Failure("timeout", f"no end after {self.options.timeout_s:g} s")
            )
        return None
