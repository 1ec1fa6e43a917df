"""`/api/chat`, `/api/generate`, and what Ollama's clients ask about the server."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.api.ollama import embedding
from draftwerk.api.ollama.lines import (
    FOREVER,
    ChatLine,
    GenerateLine,
    ListedModel,
    ListedModels,
    ModelDetails,
    RunningModel,
    RunningModels,
    ServerVersion,
    ShownModel,
)
from draftwerk.api.ollama.schema import (
    GenerateBody,
    OllamaBody,
    OllamaChatBody,
    OllamaMessage,
    OllamaOptions,
    ShowBody,
)
from draftwerk.api.ollama.serializer import OllamaSerializer, timestamp
from draftwerk.api.ollama.translate import (
    NAMES,
    chat_conversation,
    chat_plan,
    checked_options,
    engine_options,
    generate_plan,
    generate_prompt,
    keep_alive_s,
    known_name,
    unknown_options,
)
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.half_answers import check_goes_on, taken_apart
from draftwerk.api.requests.model_choice import loaded_state, named, served_as
from draftwerk.api.requests.prompts.fim_prompt import Fim, fim_prompt
from draftwerk.api.requests.reply_plan import ReplyPlan
from draftwerk.api.requests.tool_notes import note_weakened
from draftwerk.api.responses.serializer import ReplyMetadata
from draftwerk.api.responses.sse import JSON_LINES, GenerationResponse
from draftwerk.api.shared.calls import printable
from draftwerk.api.shared.handling import (
    LINES,
    Endpoint,
    RequestContext,
    call_of,
    check_may_unload,
    json_reply,
    tenant_of,
)
from draftwerk.api.shared.models import OneModel, models_of
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.prompt_tokens import check_beginning, count_going_on
from draftwerk.api.shared.state import ServerState
from draftwerk.machine.version import __version__
from draftwerk.speculative.requests.client_prompts import Chat, HalfTurn, Prompt

CHAT = msgspec.json.Decoder(OllamaChatBody)
GENERATE = msgspec.json.Decoder(GenerateBody)
SHOW = msgspec.json.Decoder(ShowBody)


async def chat(request: Request) -> GenerationResponse | Response:
    """`POST /api/chat`."""
    ignored: list[str] = []
    body = await body_of(request, CHAT, lambda raw: ignored.extend(unknown_options(raw)))
    if done := _unloaded(request, body, bool(body.messages)):
        return done
    state = await _state(request, body)
    plan = chat_plan(body, state.model)
    prompt = chat_conversation(body, plan, state.model)
    return await _answer(request, state, body, prompt, plan, bool(body.messages), ignored)


async def generate(request: Request) -> GenerationResponse | Response:
    """`POST /api/generate`."""
    ignored: list[str] = []
    body = await body_of(request, GENERATE, lambda raw: ignored.extend(unknown_options(raw)))
    is_asked = bool(body.prompt or body.suffix)
    if done := _unloaded(request, body, is_asked):
        return done
    state = await _state(request, body)
    plan = generate_plan(body, state.model)
    prompt = generate_prompt(body, plan, state.model)
    if body.suffix:
        fim = Fim(before=body.prompt or "", after=body.suffix)
        prompt = await fim_prompt(state, fim, "suffix")
    return await _answer(request, state, body, prompt, plan, is_asked, ignored)


async def _state(request: Request, body: OllamaBody) -> ServerState:
    """Return the state of the model asked for, loaded."""
    name = known_name(body.model, models_of(request.app).states)
    return await loaded_state(request, name, keep_alive_s(body.keep_alive))


def _unloaded(request: Request, body: OllamaBody, is_asked: bool) -> Response | None:
    """Answer a request for nothing but that a model be unloaded; None for any other."""
    models = models_of(request.app)
    if is_asked or keep_alive_s(body.keep_alive) != 0.0 or isinstance(models, OneModel):
        return None
    state = named(models.states, known_name(body.model, models.states))
    check_may_unload(request)
    models.unload(state)
    line = _serializer(request, state, served_as(state.model, body.model), body).line()
    return json_reply(msgspec.structs.replace(line, done=True, done_reason="unload"))


def _serializer(
    request: Request,
    state: ServerState,
    model: ServedModel,
    body: OllamaBody,
    is_parsed: bool = False,
    half: HalfTurn | None = None,
) -> OllamaSerializer:
    metadata = ReplyMetadata(
        id=request.scope["request_id"],
        created=int(state.now()),
        model=model.name,
        fingerprint=model.fingerprint,
        is_parsed=is_parsed,
        half=half,
    )
    return OllamaSerializer(metadata, isinstance(body, OllamaChatBody))


async def _answer(
    request: Request,
    state: ServerState,
    body: OllamaBody,
    prompt: Prompt,
    plan: ReplyPlan,
    is_asked: bool,
    ignored: Sequence[str],
) -> GenerationResponse | Response:
    found = checked_options(body, state.model)
    model = served_as(state.model, body.model)
    prompt, half = taken_apart(prompt, True) if isinstance(prompt, Chat) else (prompt, None)
    serializer = _serializer(request, state, model, body, plan.form is not None, half)
    if not is_asked:
        line = msgspec.structs.replace(serializer.line(), done=True, done_reason="load")
        return json_reply(line)
    prompt_count = None
    tokens_max = found.num_predict if (found.num_predict or 0) > 0 else None
    if tokens_max is not None:  # a bound, so what is left of the context is one as well
        await check_beginning(state, prompt, input_overflow)
        prompt_count = await count_going_on(state, prompt, half, plan.form)
        tokens_max = max(1, min(tokens_max, state.model.context_max - prompt_count))
    context = RequestContext(model, state.new_seed)
    options = engine_options(body, found, context, plan, tokens_max)
    check_goes_on(half, options)
    kind, text = "ollama generate", "prompt"
    if isinstance(body, OllamaChatBody):
        kind, text = "ollama chat", "messages"
    names = {**NAMES, "messages": text, **plan.names("format")}
    call = call_of(request, kind, [prompt], options, names, half)
    call = msgspec.structs.replace(call, overflow=input_overflow, prompt_count=prompt_count)
    note_weakened(plan, state, tenant_of(request), "")
    notes = _ignored(ignored, state, tenant_of(request))
    streams = body.stream is not False
    return GenerationResponse(
        state, call, serializer, streams, end=b"", form=JSON_LINES, headers=notes
    )


def input_overflow(count: int, more: int, context_max: int) -> str:
    """Return what Ollama says of a prompt that it does not cut."""
    return f"the input length exceeds the context length: {count + more} tokens > {context_max}"


def _ignored(names: Sequence[str], state: ServerState, tenant: str) -> list[tuple[bytes, bytes]]:
    """Return a header that names options that are not known; the log does so too."""
    if not names:
        return []
    listed = printable(", ".join(names))
    state.notes.note(tenant, "", f"options are not known, and ignored: {listed}")
    return [(b"x-options-ignored", listed.encode("latin-1"))]


async def tags(request: Request) -> Response:
    """`GET /api/tags`: every model served, once for each of its names."""
    states = models_of(request.app).states
    return json_reply(ListedModels(tuple(each for one in states for each in _listed(one.model))))


async def running(request: Request) -> Response:
    """`GET /api/ps`: those that are loaded."""
    models = models_of(request.app)
    found: list[RunningModel] = []
    for state in models.states:
        shelving, model = models.described(state), state.model
        on_gpu = model.stored_bytes if model.device.startswith("cuda") else 0
        left_s = shelving.idle_left_s
        expires = FOREVER if left_s is None else timestamp(state.now() + left_s)
        if shelving.is_loaded:
            found += [
                RunningModel(**msgspec.structs.asdict(each), size_vram=on_gpu, expires_at=expires)
                for each in _listed(model)
            ]
    return json_reply(RunningModels(tuple(found)))


def _listed(model: ServedModel) -> tuple[ListedModel, ...]:
    details = _details(model)
    digest = sha256(f"{model.name} {model.fingerprint}".encode()).hexdigest()
    return tuple(
        ListedModel(
            name=name,
            model=name,
            modified_at=timestamp(model.created),
            size=model.stored_bytes,
            digest=digest,
            details=details,
        )
        for name in model.names
    )


async def show(request: Request) -> Response:
    """`POST /api/show`."""
    body = await body_of(request, SHOW)
    states = models_of(request.app).states
    model = named(states, known_name(body.model or body.name, states)).model
    family = model.family or "unknown"  # clients look for the length under this name
    shown = ShownModel(
        details=_details(model),
        model_info={
            "general.architecture": family,
            "general.basename": model.name,
            f"{family}.context_length": model.context_max,
            f"{family}.vocab_size": model.vocab_size,
        },
        capabilities=model.capabilities,
        modified_at=timestamp(model.created),
    )
    return json_reply(shown)


async def version(request: Request) -> Response:
    """`GET /api/version`."""
    return json_reply(ServerVersion(__version__))


def _details(model: ServedModel) -> ModelDetails:
    families = (model.family,) if model.family else ()
    level = (model.weights and model.file_format) or model.dtype
    return ModelDetails(family=model.family, families=families, quantization_level=level)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/chat",
        chat,
        "Continue a conversation",
        OllamaChatBody,
        ChatLine,
        stream_type=LINES,
        parts=(OllamaMessage, OllamaOptions),
    ),
    Endpoint(
        "POST",
        "/api/generate",
        generate,
        "Answer a prompt",
        GenerateBody,
        GenerateLine,
        stream_type=LINES,
    ),
    *embedding.ENDPOINTS,
    Endpoint("POST", "/api/show", show, "Describe a model", ShowBody, ShownModel),
    Endpoint("GET", "/api/ps", running, "Tell the models loaded", reply=RunningModels),
    Endpoint("GET", "/api/tags", tags, "List the models served", reply=ListedModels),
    Endpoint("GET", "/api/version", version, "Tell the server's version", reply=ServerVersion),
)
