"""The endpoints about the server itself: models, health, capabilities, tokens, metrics."""

import asyncio

import msgspec
from msgspec import UNSET, UnsetType
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.actors.messages import Prompt
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.state import ServerState
from draftwerk.api.openai.endpoints import body_of, encoded, state_of
from draftwerk.api.openai.schema import DetokenizeBody, TokenizeBody
from draftwerk.api.openai.translate import chat_prompt, check_model
from draftwerk.api.replying.reasoning_request import reasoning_of
from draftwerk.api.replying.reply_plan import plan_reply
from draftwerk.api.replying.segments import check_unmarked
from draftwerk.api.replying.tool_request import chat_wish
from draftwerk.api.service.capabilities import capabilities
from draftwerk.api.service.metrics import registry
from draftwerk.api.service.openapi import document

OPENAPI = msgspec.json.encode(document())
DETOKENIZE = msgspec.json.Decoder(DetokenizeBody)
TOKENIZE = msgspec.json.Decoder(TokenizeBody)
READY = "ready"
CLOSED = "It takes no new requests: it leaves, or computes other bits than most."


async def models(request: Request) -> Response:
    """`GET /v1/models`: the one model served, once for each of its names."""
    names = state_of(request).model.names
    return _json({"object": "list", "data": [_model(request, name) for name in names]})


async def model(request: Request) -> Response:
    """`GET /v1/models/{name}`."""
    name = request.path_params["name"]
    check_model(name, state_of(request).model)
    return _json(_model(request, name))


async def health(request: Request) -> Response:
    """`GET /health`: the event loop answers, no more."""
    return _json({"status": "ok"})


async def ready(request: Request) -> Response:
    """`GET /ready`: takes requests, and those it has make progress."""
    state = state_of(request)
    return ready_reply(state, state.engine.snapshot())


def ready_reply(state: ServerState, snapshot: Snapshot) -> Response:
    """Return whether requests should be sent here now, and what that was judged by."""
    health = Health(
        restarts=snapshot.restarts,
        progress_age_s=snapshot.progress_age_s,
        actor_ages_s=snapshot.actor_ages_s,
        loop_lag_ms=1e3 * state.loop_lag_s,
        replicas=replica_states(snapshot, state.settings.stall_s) or UNSET,
    )
    if reason := not_ready(state, snapshot):
        error = ApiError(503, reason, code="not_ready", retry_after_ms=1000)
        body = {**msgspec.to_builtins(error.reply), **msgspec.to_builtins(health)}
        return Response(msgspec.json.encode(body), 503, error.headers, "application/json")
    return _json({"status": "ready", **msgspec.to_builtins(health)})


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `/ready`, in either state."""

    restarts: int
    """Of the actors, since the server began."""
    progress_age_s: float
    """Since a round was committed, while there is work."""
    actor_ages_s: dict[str, float]
    """How long each actor has been at the work it is doing."""
    loop_lag_ms: float
    """How late the event loop woke last."""
    replicas: dict[str, str] | UnsetType = UNSET
    """Of a cluster: "ready" for each replica, or why none of its requests would come on. The
    figures above are of the worst."""


def not_ready(state: ServerState, snapshot: Snapshot) -> str:
    """Return why no request should be sent here now; empty if one may."""
    if state.draining or snapshot.draining:
        return "The server is shutting down."
    if state.memory.full:
        return "Memory is short."
    if state.admission.waiting >= max(state.settings.queue_max, 1):
        return "The queue is full."
    if not snapshot.replicas:
        return stalled(snapshot, state.settings.stall_s)
    states = replica_states(snapshot, state.settings.stall_s)
    if READY in states.values():
        return ""
    return "No replica serves. " + " ".join(f"{name}: {why}" for name, why in states.items())


def replica_states(snapshot: Snapshot, stall_s: float) -> dict[str, str]:
    """Return for each replica of a cluster that it is ready, or why it is not.

    One that has just joined has not reported yet, and counts as ready.
    """
    states = dict.fromkeys(snapshot.open_replicas, READY) if snapshot.replicas else {}
    for name, each in snapshot.replicas.items():
        is_open = name in snapshot.open_replicas and not each.draining
        states[name] = (stalled(each, stall_s) or READY) if is_open else CLOSED
    return states


def stalled(snapshot: Snapshot, stall_s: float) -> str:
    """Return why an engine makes no progress now; empty if it does."""
    if not snapshot.target_up:
        return "The model is being started again."
    if snapshot.progress_age_s > stall_s:
        return f"No round was committed for {snapshot.progress_age_s:.0f} s."
    stuck = max(snapshot.actor_ages_s, key=lambda actor: snapshot.actor_ages_s[actor], default="")
    if stuck and snapshot.actor_ages_s[stuck] > stall_s:
        return f"The {stuck} has been at one thing for {snapshot.actor_ages_s[stuck]:.0f} s."
    return ""


async def metrics(request: Request) -> Response:
    """`GET /metrics`, in Prometheus' text format."""
    found = generate_latest(registry(state_of(request)))
    return Response(found, media_type=CONTENT_TYPE_LATEST)


async def trace(request: Request) -> Response:
    """`GET /debug/trace`: what the actors did lately, for Chrome's tracing page or Perfetto."""
    return _json({"traceEvents": state_of(request).engine.trace()})


async def abilities(request: Request) -> Response:
    """`GET /v1/capabilities`: what is obeyed and what is refused."""
    return _json(capabilities(state_of(request)))


async def openapi(request: Request) -> Response:
    """`GET /openapi.json`."""
    return Response(OPENAPI, media_type="application/json")


async def tokenize(request: Request) -> Response:
    """`POST /tokenize`: the tokens of a prompt, or of a conversation as the model sees it."""
    state = state_of(request)
    body = await body_of(request, TOKENIZE)
    check_model(body.model, state.model)
    if (body.prompt is None) == (body.messages is None):
        raise refused("Give `prompt` or `messages`, one of them.", "prompt", "invalid")
    prompt: Prompt = body.prompt or ""
    if body.messages is not None:
        check_unmarked([each.content for each in body.messages])
        wish = chat_wish(body.tools, None, None)
        plan = plan_reply(wish, reasoning_of(body.chat_template_kwargs), None, "", state.model)
        prompt = chat_prompt(body.messages, plan.tools, plan.variables)
    if body.add_special_tokens is False and body.messages is None:
        tools = state.text_tools
        prompt = tuple(await asyncio.to_thread(tools.encode_continuation, body.prompt or ""))
    tokens = await encoded(state, prompt)
    most = state.model.context_max
    return _json({"tokens": tokens, "count": len(tokens), "max_model_len": most})


async def detokenize(request: Request) -> Response:
    """`POST /detokenize`: the text of tokens."""
    state = state_of(request)
    body = await body_of(request, DETOKENIZE)
    check_model(body.model, state.model)
    if body.tokens and max(body.tokens) >= (state.model.vocab_size or 2**31):
        raise refused(f"`tokens` must be under {state.model.vocab_size}.", "tokens", "invalid")
    try:
        text = await asyncio.to_thread(
            state.text_tools.decode, body.tokens, bool(body.skip_special_tokens)
        )
    except ValueError:
        raise refused("`tokens` names unknown tokens.", "tokens", "invalid") from None
    return _json({"prompt": text})


def _model(request: Request, name: str) -> dict[str, object]:
    card = state_of(request).model
    return {
        "id": name,
        "object": "model",
        "created": card.created,
        "owned_by": "draftwerk",
        "root": card.name,
        "max_model_len": card.context_max,
        "sampling": {**card.sampling.given(), "source": card.sampling_source or None},
    }


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
