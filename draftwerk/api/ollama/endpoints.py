"""`/api/chat`, `/api/generate`, and what Ollama's clients ask about the server."""

from hashlib import sha256

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.actors.client_prompts import Prompt
from draftwerk.api.core.handling import (
    LINES,
    Endpoint,
    RequestContext,
    call_of,
    json_reply,
    state_of,
)
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.core.prompt_tokens import count_tokens
from draftwerk.api.fields.decode import body_of
from draftwerk.api.fields.reply_plan import ReplyPlan
from draftwerk.api.ollama.lines import (
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
    check_name,
    checked_options,
    engine_options,
    generate_plan,
    generate_prompt,
)
from draftwerk.api.replying.serializer import ReplyMetadata
from draftwerk.api.replying.sse import JSON_LINES, GenerationResponse
from draftwerk.machine.version import __version__

CHAT = msgspec.json.Decoder(OllamaChatBody)
GENERATE = msgspec.json.Decoder(GenerateBody)
SHOW = msgspec.json.Decoder(ShowBody)


async def chat(request: Request) -> GenerationResponse | Response:
    """`POST /api/chat`."""
    body = await body_of(request, CHAT)
    model = _checked_model(request, body)
    plan = chat_plan(body, model)
    return await _answer(request, body, chat_conversation(body, plan), plan, bool(body.messages))


async def generate(request: Request) -> GenerationResponse | Response:
    """`POST /api/generate`."""
    body = await body_of(request, GENERATE)
    model = _checked_model(request, body)
    plan = generate_plan(body, model)
    return await _answer(request, body, generate_prompt(body, plan), plan, bool(body.prompt))


async def _answer(
    request: Request, body: OllamaBody, prompt: Prompt, plan: ReplyPlan, is_asked: bool
) -> GenerationResponse | Response:
    state, is_chat = state_of(request), isinstance(body, OllamaChatBody)
    found = checked_options(body, state.model)
    metadata = ReplyMetadata(
        id=request.scope["request_id"],
        created=int(state.now()),
        model=state.model.name,
        fingerprint=state.model.fingerprint,
        is_parsed=plan.form is not None,
    )
    serializer = OllamaSerializer(metadata, is_chat)
    if not is_asked:
        line = msgspec.structs.replace(serializer.line(), done=True, done_reason="load")
        return json_reply(line)
    tokens_max = found.num_predict if (found.num_predict or 0) > 0 else None
    if tokens_max is not None:  # a bound, so what is left of the context is one as well
        room = state.model.context_max - await count_tokens(state, [prompt])
        tokens_max = max(1, min(tokens_max, room))
    options = engine_options(
        body, found, RequestContext(state.model, state.new_seed), plan, tokens_max
    )
    kind = "ollama chat" if is_chat else "ollama generate"
    names = {**NAMES, "response_format": plan.blamed or "format"}
    call = call_of(request, kind, [prompt], options, names)
    return GenerationResponse(
        state, call, serializer, body.stream is not False, end=b"", form=JSON_LINES
    )


async def tags(request: Request) -> Response:
    """`GET /api/tags`: the one model served, once for each of its names."""
    return json_reply(ListedModels(_listed(state_of(request).model)))


async def running(request: Request) -> Response:
    """`GET /api/ps`: the same, which is loaded."""
    model = state_of(request).model
    on_gpu = model.stored_bytes if model.device.startswith("cuda") else 0
    listed = map(msgspec.structs.asdict, _listed(model))
    return json_reply(
        RunningModels(tuple(RunningModel(**each, size_vram=on_gpu) for each in listed))
    )


def _listed(model: ServedModel) -> tuple[ListedModel, ...]:
    details = _details(model)
    digest = sha256(msgspec.json.encode(model)).hexdigest()
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
    model = state_of(request).model
    check_name(body.model or body.name, model)
    kinds = {
        "completion": True,
        "tools": model.calls is not None,
        "thinking": model.reasoning is not None,
    }
    family = model.family or "unknown"  # clients look for the length under this name
    shown = ShownModel(
        details=_details(model),
        model_info={
            "general.architecture": family,
            "general.basename": model.name,
            f"{family}.context_length": model.context_max,
            f"{family}.vocab_size": model.vocab_size,
        },
        capabilities=tuple(kind for kind, there in kinds.items() if there),
        modified_at=timestamp(model.created),
    )
    return json_reply(shown)


async def version(request: Request) -> Response:
    """`GET /api/version`."""
    return json_reply(ServerVersion(__version__))


def _checked_model(request: Request, body: OllamaBody) -> ServedModel:
    model = state_of(request).model
    check_name(body.model, model)
    return model


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
    Endpoint("POST", "/api/show", show, "Describe the model served", ShowBody, ShownModel),
    Endpoint("GET", "/api/ps", running, "Tell the model loaded", reply=RunningModels),
    Endpoint("GET", "/api/tags", tags, "List the model served", reply=ListedModels),
    Endpoint("GET", "/api/version", version, "Tell the server's version", reply=ServerVersion),
)
