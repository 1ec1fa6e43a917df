"""State that all endpoints share: a model's engine, its live generations and their accounting."""

import asyncio
import dataclasses
import logging
import secrets
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import msgspec

from draftwerk.actors.devices.device import ThreadWorker, Worker
from draftwerk.actors.requests.checked_options import OptionsError
from draftwerk.actors.requests.errors import DrainingError, OverloadedError
from draftwerk.actors.texts.half_turns import HalfTurnError, gone_on
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.api.shared.admission import Admission
from draftwerk.api.shared.calls import Call, EventObserver, SessionNotes, checked, printable, signed
from draftwerk.api.shared.config import Settings
from draftwerk.api.shared.errors import ApiError, draining, overloaded, refused, slo_unmet
from draftwerk.api.shared.generation import Generation, opened
from draftwerk.api.shared.kept_streams import KeptStreams
from draftwerk.api.shared.memory import MemoryGuard
from draftwerk.api.shared.ports import BodyReader, EngineClient, ReceiptSigner, ServedModel
from draftwerk.api.shared.request_timer import Clock, Histograms, RequestTimer
from draftwerk.api.shared.response_store import ResponseStore
from draftwerk.settings.approximations import of_request
from draftwerk.settings.setting_fields import bytes_of
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.slo import NO_SLO, Slo, read_slo

TEXTS_AT_ONCE = 4
"""Texts of a model that the API has encoded at once, beside those of its engine."""
SEED_BITS = 53
"""Bits of the seeds that the server chooses: as many as a JSON number keeps in every language."""


CLIENTS_NAMES = {"choices": "n", "tokens_max": "max_tokens", "sampling.tokens_min": "min_tokens"}
"""Requests' names for fields of Options that have other names."""
TURNED_AWAY = {"slo_unmet": "refused", "deadline_exceeded": "expired"}
"""Counters of promises, by how requests ended that were not served."""

log = logging.getLogger("draftwerk")


class RequestRecorder(Protocol):
    """Makes records of requests."""

    def recording(self, state: "ServerState", call: Call) -> EventObserver | None:
        """Return what takes in a request's events; None for one that is not recorded."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class ServerState:
    """Plain state of the server with one model; `beside` has those of its other models."""

    engine: EngineClient
    text_tools: TextTools
    model: ServedModel
    settings: Settings
    clock: Clock = time.monotonic
    now: Callable[[], float] = time.time
    new_seed: Callable[[], int] = lambda: secrets.randbits(SEED_BITS)
    bodies: BodyReader | None = None
    signer: ReceiptSigner | None = None
    """The signer of receipts, if they are to be."""
    recorder: RequestRecorder | None = None
    """The recorder that keeps receipts and writes the log, if that is wanted."""
    histograms: Histograms = field(default_factory=Histograms)
    outcomes: Counter[str] = field(default_factory=Counter[str])
    """Requests by how they ended: stop, length, refused, failed, cancelled, overloaded…"""
    slo: Slo = field(init=False)
    slo_outcomes: Counter[str] = field(default_factory=Counter[str])
    """Requests by what became of their SLO: kept, broken, refused, expired."""
    live: set[Generation] = field(default_factory=set[Generation])
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a generation or a reader has gone; read it through `wait_idle`."""
    admission: Admission = field(init=False)
    sockets: Counter[str] = field(default_factory=Counter[str])
    """Open WebSockets by tenant."""
    memory: MemoryGuard = field(init=False)
    responses: ResponseStore = field(init=False)
    streams: defaultdict[str, KeptStreams] = field(
        default_factory=lambda: defaultdict[str, KeptStreams](KeptStreams)
    )
    """Resumable streams by tenant."""
    notes: SessionNotes = field(default_factory=SessionNotes)
    modules: defaultdict[str, OrderedDict[str, str]] = field(
        default_factory=lambda: defaultdict[str, OrderedDict[str, str]](OrderedDict[str, str])
    )
    """Named texts of prompts by tenant, the latest last."""
    readers: int = 0
    """Connections that read them."""
    text_worker: Worker = field(default_factory=lambda: ThreadWorker(TEXTS_AT_ONCE))
    """Where the API itself has texts of the model encoded, and tokens decoded."""
    loop_lag_s: float = 0.0
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the server takes no more requests."""
    serials: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        limits = self.settings
        self.slo = read_slo(limits.slo)
        self.admission = Admission(
            limits.requests_max, limits.queue_max, limits.queue_wait_s, self.clock
        )
        self.memory = MemoryGuard(bytes_of(limits.memory_max))
        self.responses = ResponseStore(limits.responses_max)

    def beside(
        self, engine: EngineClient, text_tools: TextTools, model: ServedModel
    ) -> "ServerState":
        """Return the state of another model of this server: what is the server's own is shared."""
        other = dataclasses.replace(
            self,
            engine=engine,
            text_tools=text_tools,
            model=model,
            histograms=Histograms(),
            outcomes=Counter[str](),
            slo_outcomes=Counter[str](),
            live=set[Generation](),
            idle=asyncio.Event(),
            text_worker=ThreadWorker(TEXTS_AT_ONCE),
        )
        other.memory, other.responses = self.memory, self.responses
        return other

    @property
    def needed(self) -> int:
        """How many requests its engine has, or will have once there is a place."""
        return max(len(self.live), self.admission.places_used) + self.admission.waiting

    @property
    def draining(self) -> bool:
        """Whether the server takes no more requests."""
        return self.leaving.is_set()

    @asynccontextmanager
    async def generation(self, call: Call) -> AsyncGenerator[Generation, None]:
        """Run a call in the engine for as long as the block lasts, and account for its end.

        Raises ApiError if the engine takes no request now.
        """
        options = call.options
        timer = self._timer(options)
        outcome = "cancelled"
        # A client may repeat a request id; the engine must not see it twice.
        engine_id = f"{call.request_id}.{next(self.serials)}"
        try:
            call = checked(call, self.model)
            if self.draining:
                raise DrainingError
            if self.memory.full:
                raise OverloadedError(self.admission.retry_after_ms())
            options = self._with_slo(call)
            recording = None if self.recorder is None else self.recorder.recording(self, call)
            observers = call.observers if recording is None else (*call.observers, recording)
            async with self.admission.turn(
                options.tenant, len(call.prompts), options.priority, options.deadline_s or None
            ) as ticket:
                timer.admit()
                options = await self._gone_on(call, options, engine_id)
                options = options.waited(self.clock() - timer.arrived)
                async with opened(
                    self.engine, call.prompts, options, engine_id, timer, observers
                ) as generation:
                    self.live.add(generation)
                    try:
                        yield generation
                    finally:
                        self._gone(generation)
                        outcome = generation.outcome
                        ticket.cost = max(timer.cost(), ticket.charged if not timer.ends else 0)
        except ApiError as error:
            outcome = error.code if outcome == "cancelled" and error.code else outcome
            raise
        except OptionsError as error:
            outcome = "refused"
            name = CLIENTS_NAMES.get(error.field, error.field.removeprefix("sampling."))
            field = call.names.get(name, name)
            raise refused(f"`{field}`: {error.reason}.", field, "invalid") from None
        except OverloadedError as error:
            outcome = "overloaded"
            raise overloaded(error.retry_after_ms) from None
        except DrainingError:
            outcome = "draining"
            raise draining() from None
        finally:
            self._account(call, timer, outcome)

    async def _gone_on(self, call: Call, options: Options, engine_id: str) -> Options:
        """Return the options with the tokens of a half-written answer, if the call has one."""
        if call.half is None:
            return options
        try:
            tools, (prompt,) = self.text_tools, call.prompts
            return await gone_on(self.engine, tools, prompt, call.half, options, engine_id)
        except HalfTurnError as error:
            raise refused(f"{error}.", call.names.get("messages", "messages"), "invalid") from None

    def _timer(self, options: Options) -> RequestTimer:
        """Return the clock and the counters of a request that has arrived."""
        return RequestTimer(
            self.clock,
            self.histograms,
            options.choices,
            signed(options.sampling.seed),
            count_images=None if self.bodies is None else self.bodies.count,
            predicted=bool(options.speculation.prediction),
            reasons=options.reply is not None and options.reply.reasoning is not None,
            blends=options.blend is not None,
            approximations=(*self.model.approximations, *of_request(options.blend)),
        )

    def _with_slo(self, call: Call) -> Options:
        """Return the options with the whole SLO; refuses what the queue would break.

        No request of several prompts is refused for one of them while another is answered.
        """
        slo = (call.options.slo or NO_SLO).over(self.slo)
        if not slo:
            return call.options
        late_s = self.admission.expected_wait_s() - slo.ttft
        if len(call.prompts) > 1:
            slo = Slo(tpot=slo.tpot)
        elif slo.ttft and late_s > 0.0 and self.settings.slo_policy == "refuse":
            raise slo_unmet(round(1000 * late_s))
        return msgspec.structs.replace(call.options, slo=slo)

    async def wait_idle(self) -> None:
        """Return when every client has been sent its last event."""
        while self.live or self.readers:
            self.idle.clear()
            await self.idle.wait()

    def _gone(self, generation: Generation) -> None:
        self.live.discard(generation)
        self.idle.set()

    @contextmanager
    def reading(self) -> Generator[None, None, None]:
        """Count a reader of a kept stream for as long as the block lasts."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1
            self.idle.set()

    def abort_all(self) -> None:
        """End every live generation with an error, because the server is ending."""
        for generation in list(self.live):
            generation.abort("The server is shutting down.", "draining")

    def account_refusal(self, request_id: str, tenant: str, what: str, error: ApiError) -> None:
        """Count a request that never reached the engine, and write its one line in the log."""
        self.outcomes[error.outcome] += 1
        log.info(
            "id=%s tenant=%s %s %s status=%d param=%s",
            request_id,
            tenant or "-",
            printable(what),
            error.outcome,
            error.status,
            printable(error.param or "-"),
        )

    def _account(self, call: Call, timer: RequestTimer, outcome: str) -> None:
        """Count the request and write its one line in the log."""
        self.outcomes[outcome] += 1
        if outcome in ("stop", "length"):
            timer.finish()
        self._count_promise(call.options, timer, outcome)
        usage, times = timer.usage(), timer.metrics()
        speculation = times.speculative_decoding
        log.info(
            "id=%s tenant=%s %s %s prompt=%d tokens=%d queue_ms=%s ttft_ms=%s itl_ms=%s tok_s=%s "
            "accepted=%s",
            call.request_id,
            call.options.tenant or "-",
            call.kind,
            outcome,
            usage.prompt_tokens,
            timer.token_count,
            times.queue_time_ms,
            times.time_to_first_token_ms,
            times.mean_itl_ms,
            times.tokens_per_second,
            f"{speculation.mean_acceptance_length:.2f}" if speculation else "-",
        )
        if self.settings.log_prompts:
            log.info("id=%s prompts=%r", call.request_id, call.prompts)

    def _count_promise(self, options: Options, timer: RequestTimer, outcome: str) -> None:
        """Count what became of a request's SLO; one that its client left is no case."""
        slo = (options.slo or NO_SLO).over(self.slo)
        ttft_s = timer.first_token_s()
        if outcome in TURNED_AWAY:
            self.slo_outcomes[TURNED_AWAY[outcome]] += 1
        elif slo and ttft_s is not None and outcome in ("stop", "length"):
            kept = slo.is_kept(ttft_s, timer.mean_between_s())
            self.slo_outcomes["kept" if kept else "broken"] += 1
