"""The endpoints about the server itself: health, capabilities, tokens, metrics."""

import msgspec
from msgspec import UNSET, UnsetType
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.admin import model_list, tokens
from draftwerk.api.admin.capabilities import capabilities
from draftwerk.api.admin.metrics import registry
from draftwerk.api.admin.openapi import document
from draftwerk.api.anthropic import endpoints as anthropic
from draftwerk.api.ollama import endpoints as ollama
from draftwerk.api.openai import endpoints as openai
from draftwerk.api.openai import infill
from draftwerk.api.openai.batches import endpoints as batches
from draftwerk.api.openai.pooling import endpoints as pooling
from draftwerk.api.openai.receipts import endpoints as receipts
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.handling import Endpoint, json_reply, state_of
from draftwerk.api.shared.models import ModelStates, OneModel, models_of
from draftwerk.api.shared.state import ServerState

READY = "ready"
CLOSED = "It takes no new requests: it leaves, or computes other bits than most."


async def health(request: Request) -> Response:
    """`GET /health`: the event loop answers, no more."""
    return json_reply({"status": "ok"})


async def ready(request: Request) -> Response:
    """`GET /ready`: takes requests, and those it has make progress."""
    state, models = state_of(request), models_of(request.app)
    if isinstance(models, OneModel):
        return ready_reply(state, state.engine.snapshot())
    states = model_states(models, state.settings.stall_s)
    loaded = [each for each in models.states if models.described(each).is_loaded]
    at_work = [each for each in loaded if states[each.model.name] == READY] or loaded
    # Of a model that serves where there is one: another loads, or is started again.
    snapshot = at_work[0].engine.snapshot() if at_work else Snapshot()
    return ready_reply(state, snapshot, states)


def model_states(models: ModelStates, stall_s: float) -> dict[str, str]:
    """Return for each model that it is ready, where it is instead, or why it makes no progress."""
    found: dict[str, str] = {}
    for state in models.states:
        shelving = models.described(state)
        stall = stalled(state.engine.snapshot(), stall_s) if shelving.is_loaded else ""
        found[state.model.name] = stall or shelving.state
    return found


def ready_reply(
    state: ServerState, snapshot: Snapshot, models: dict[str, str] | None = None
) -> Response:
    """Return whether requests should be sent here now, and what that was judged by."""
    health = Health(
        restarts=snapshot.actors.restarts,
        progress_age_s=snapshot.actors.progress_age_s,
        actor_ages_s=snapshot.actors.actor_ages_s,
        loop_lag_ms=1e3 * state.loop_lag_s,
        replicas=replica_states(snapshot, state.settings.stall_s) or UNSET,
        models=models or UNSET,
    )
    if reason := not_ready(state, snapshot):
        error = ApiError(503, reason, code="not_ready", retry_after_ms=1000)
        body = {**msgspec.to_builtins(error.reply), **msgspec.to_builtins(health)}
        return Response(msgspec.json.encode(body), 503, error.headers, "application/json")
    return json_reply({"status": "ready", **msgspec.to_builtins(health)})


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `/ready`, in either state."""

    restarts: int
    """Restarts of actors since the server began."""
    progress_age_s: float
    """Since a round was committed, while there is work."""
    actor_ages_s: dict[str, float]
    """How long each actor has been at the work it is doing."""
    loop_lag_ms: float
    """How late the event loop woke last."""
    replicas: dict[str, str] | UnsetType = UNSET
    """The replicas of a cluster: "ready" for each replica, or why none of its requests would come
    on. The figures above are of the worst."""
    models: dict[str, str] | UnsetType = UNSET
    """The models of a server of several: ready, unloaded, loading or leaving for each, or why it
    makes no progress. The figures above are of one that is loaded."""


def not_ready(state: ServerState, snapshot: Snapshot) -> str:
    """Return why no request should be sent here now; empty if one may."""
    if state.draining or snapshot.draining:
        return "The server is shutting down."
    if state.memory.full:
        return "Memory is short."
    if state.admission.waiting >= max(state.settings.queue_max, 1):
        return "The queue is full."
    if not snapshot.cluster.replicas:
        return stalled(snapshot, state.settings.stall_s)
    states = replica_states(snapshot, state.settings.stall_s)
    if READY in states.values():
        return ""
    return "No replica serves. " + " ".join(f"{name}: {why}" for name, why in states.items())


def replica_states(snapshot: Snapshot, stall_s: float) -> dict[str, str]:
    """Return for each replica of a cluster that it is ready, or why it is not.

    One that has just joined has not reported yet, and counts as ready.
    """
    cluster = snapshot.cluster
    states = dict.fromkeys(cluster.open_replicas, READY) if cluster.replicas else {}
    for name, each in cluster.replicas.items():
        is_open = name in cluster.open_replicas and not each.draining
        states[name] = (stalled(each, stall_s) or READY) if is_open else CLOSED
    return states


def stalled(snapshot: Snapshot, stall_s: float) -> str:
    """Return why an engine makes no progress now; empty if it does."""
    if not snapshot.models.target_up:
        return "The model is being started again."
    age_s, ages_s = snapshot.actors.progress_age_s, snapshot.actors.actor_ages_s
    if age_s > stall_s:
        return f"No round was committed for {age_s:.0f} s."
    stuck = max(ages_s, key=lambda actor: ages_s[actor], default="")
    if stuck and ages_s[stuck] > stall_s:
        return f"The {stuck} has been at one thing for {ages_s[stuck]:.0f} s."
    return ""


async def metrics(request: Request) -> Response:
    """`GET /metrics`, in Prometheus' text format."""
    found = generate_latest(registry(models_of(request.app)))
    return Response(found, media_type=CONTENT_TYPE_LATEST)


async def trace(request: Request) -> Response:
    """`GET /debug/trace`: what the actors did lately, for Chrome's tracing page or Perfetto."""
    states = models_of(request.app).states
    return json_reply({"traceEvents": [each for one in states for each in one.engine.trace()]})


async def abilities(request: Request) -> Response:
    """`GET /v1/capabilities`: what is obeyed and what is refused."""
    return json_reply(capabilities(models_of(request.app).states, ENDPOINTS))


async def openapi(request: Request) -> Response:
    """`GET /openapi.json`."""
    return Response(OPENAPI, media_type="application/json")


ENDPOINTS = (
    *openai.ENDPOINTS,
    *infill.ENDPOINTS,
    *pooling.ENDPOINTS,
    *receipts.ENDPOINTS,
    *anthropic.ENDPOINTS,
    *ollama.ENDPOINTS,
    *batches.ENDPOINTS,
    *tokens.ENDPOINTS,
    *model_list.ENDPOINTS,
    Endpoint("GET", "/v1/capabilities", abilities, "Tell which fields are obeyed"),
    Endpoint("GET", "/health", health, "Tell whether the event loop answers"),
    Endpoint("GET", "/ready", ready, "Tell whether requests are taken and make progress"),
    Endpoint("GET", "/metrics", metrics, "Metrics for Prometheus", media_type="text/plain"),
)
"""All that is documented; the page and `--debug` add addresses of their own."""
OPENAPI = msgspec.json.encode(document(ENDPOINTS))
