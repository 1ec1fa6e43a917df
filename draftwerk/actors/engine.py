"""The engine: takes requests, hands back streams, and keeps a pipeline of actors running.

If an actor dies, or a device that it cannot replace, all actors are built anew and each live
request is submitted again with the tokens that its client already has, as after a preemption.
"""

from collections.abc import AsyncGenerator, KeysView
from contextlib import asynccontextmanager, suppress

import anyio

from draftwerk.actors.devices.restarts import report, without_bugs
from draftwerk.actors.events.client_events import Event
from draftwerk.actors.mailbox import Inbox, mailbox
from draftwerk.actors.messages import Submit, TokenizerMessage
from draftwerk.actors.monitoring.drain_rate import DrainRate
from draftwerk.actors.monitoring.figures import Figures
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.actors.pipeline import EngineParts, Pipeline
from draftwerk.actors.requests.admitting import check_request, events_max
from draftwerk.actors.requests.ledger import Ledger
from draftwerk.actors.requests.suspects import computed_counts
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt

FLUSH_S = 10.0
"""For what attachments have not kept yet when the server ends."""
LONG_LIFE_S = 30.0
"""A restart after this long counts as a success, even if no round was committed."""


class Engine:
    def __init__(self, parts: EngineParts) -> None:
        self.parts = parts
        # They outlive every pipeline, as the ledger does, from which the next one is filled.
        self._figures, self._policy = Figures(parts.trace), parts.options.policy()
        self._pipeline = Pipeline(parts, self._figures, self._policy)
        self._ledger = Ledger(send=self._send, on_closed=self._on_closed)
        self._drain_rate = DrainRate()
        self._restarts = 0
        self._running = False
        """Not between two pipelines."""
        self._closed_to = ""
        """Why no more requests are taken; empty while they are."""
        self._empty = anyio.Event()

    @asynccontextmanager
    async def generate(
        self,
        prompt: Prompt,
        options: Options,
        *,
        request_id: str,
        committed: tuple[tuple[int, ...], ...] = (),
        ended: tuple[int, ...] = (),
    ) -> AsyncGenerator[Inbox[Event]]:
        """Submit a request and stream its events; leaving the block cancels whatever is left.

        A request that another engine began goes on behind the tokens `committed` of each choice;
        the choices in `ended` are over. The stream yields Started, then Deltas, and an Ended for
        each choice; or, at any place, a last Failed. Raises what `check_request` does.
        """
        live = self._ledger.entries
        check_request(
            options,
            request_id,
            live=live,
            has_place=len(live) < self.parts.requests_max,
            closed_to=self._closed_to,
            drain_rate=self._drain_rate,
        )
        submit = Submit(
            request_id=request_id,
            prompt=prompt,
            options=options,
            arrived_s=anyio.current_time(),
            committed=committed,
            ended=ended,
        )
        # A place for every event that the request can have: a slow client cannot block the
        # pipeline.
        events, stream = mailbox[Event](events_max(options, self.parts.tokens_max))
        entry = self._ledger.open(submit, events)
        try:
            with stream:
                yield stream
        finally:
            # Every way out comes here: the last event, an error, and a client that goes at any
            # await.
            self._ledger.leave(entry)
            self.parts.audit.offer(entry)

    def snapshot(self) -> Snapshot:
        """Return the state and the counters of this moment."""
        pipeline, figures = self._pipeline, self._figures
        depths = {name: inbox.depth for name, (_, inbox) in pipeline.mailboxes.items()}
        target_up = self._running and pipeline.verifier.is_ready
        snapshot = Snapshot(
            load=pipeline.cache.scheduler.load,
            counts=figures.counts.copy(),
            actors=figures.of_actors(self._restarts, depths, pipeline.cache.progress_age_s()),
            models=figures.of_models(target_up, self.parts.processes()),
            request_stages=figures.stages.copy(),
            audits=dict(self.parts.audit.counts),
            draining=bool(self._closed_to),
        )
        for attachment in self.parts.attachments:
            snapshot = attachment.report(snapshot)
        return snapshot

    def trace(self) -> list[dict[str, object]]:
        """Return what the actors did lately, in Chrome's trace format."""
        return self.parts.trace.chrome()

    async def drain(self) -> None:
        """Refuse new requests and return when the last live one has ended."""
        self._closed_to = "the server is shutting down"
        await self.idle()

    async def idle(self) -> None:
        """Return once no request is live."""
        while self._ledger.entries:
            await self._empty.wait()

    async def supervise(self) -> None:
        """Keep a pipeline running; raises its failure once there have been too many."""
        limit = self.parts.restarts()
        while True:
            begun = anyio.current_time()
            try:
                self._running = True
                await self._pipeline.run(self._ledger)
            # Not BaseException: what is cancelled ends, and is not started again.
            except Exception as error:
                self._running = False
                report(error)
                now = anyio.current_time()
                cache = self._pipeline.cache
                had_model = self._pipeline.verifier.up
                running = cache.scheduler.running_set.running.values()
                # Failures between which something was done may come now and then; those that come
                # one right after another must end.
                fruitful = cache.committed > 0 or now - begun > LONG_LIFE_S
                pause_s = limit.pause(now, fruitful=fruitful)
                if pause_s is None:
                    self.stop("the engine failed too often")
                    raise
                await anyio.sleep(pause_s)
                self._restarts += 1
                self._pipeline = Pipeline(self.parts, self._figures, self._policy)
                # A model that did not even come up was not failed by any request.
                self._ledger.resubmit(computed_counts(running) if had_model else {})
            except BaseExceptionGroup as group:
                raise without_bugs(group) from None

    def cached_names(self) -> KeysView[bytes]:
        """Return the names of the blocks in the prefix cache, as a live view."""
        return self._pipeline.cache.scheduler.pool.names

    def stop(self, reason: str) -> None:
        """Take no more requests, and end each one that still waits with its last event."""
        self._closed_to = reason
        self._ledger.fail(reason)

    def check(self) -> None:
        """Assert that blocks and tables agree, and that every draft source is sound."""
        self._pipeline.check()

    def _send(self, message: TokenizerMessage) -> None:
        # Closed between two pipelines: then the ledger sends it to the next one.
        with suppress(anyio.ClosedResourceError):
            self._pipeline.requests.send_nowait(message)

    def _on_closed(self) -> None:
        self._drain_rate.record(anyio.current_time())
        if not self._ledger.entries:
            self._empty.set()
            self._empty = anyio.Event()


@asynccontextmanager
async def running(parts: EngineParts) -> AsyncGenerator[Engine]:
    """Run an engine for the length of the block; requests that wait at its end get a last event."""
    engine = Engine(parts)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.supervise)
            tasks.start_soon(parts.audit.run, engine)
            yield engine
            # Before the actors are cancelled: what they write to the store is not cut off.
            with anyio.move_on_after(FLUSH_S):
                for attachment in parts.attachments:
                    await attachment.flush()
            tasks.cancel_scope.cancel()
    finally:
        engine.stop("the server has stopped")
