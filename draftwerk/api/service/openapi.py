"""The OpenAPI document, generated from the Structs that check requests and word replies."""

import re
from typing import Any

import msgspec
from msgspec import Struct

from draftwerk.api.anthropic.schema import (
    MessageReply,
    MessagesBody,
    PromptBody,
    TokenCountReply,
)
from draftwerk.api.core.errors import ErrorReply
from draftwerk.api.ollama.lines import (
    ChatLine,
    GenerateLine,
    ListedModels,
    RunningModels,
    ServerVersion,
    ShownModel,
)
from draftwerk.api.ollama.schema import (
    GenerateBody,
    OllamaChatBody,
    OllamaMessage,
    OllamaOptions,
    ShowBody,
)
from draftwerk.api.openai.replies import ChatReply, CompletionReply
from draftwerk.api.openai.responses_schema import (
    DeletedResponse,
    InputMessage,
    InputTokens,
    ResponseObject,
    ResponsesBody,
)
from draftwerk.api.openai.schema import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    Message,
    TokenizeBody,
)

JsonObject = dict[str, Any]


class Operation(Struct, frozen=True):
    """One endpoint: what goes in, what comes out; None is any JSON."""

    method: str
    path: str
    summary: str
    body: type[Struct] | None = None
    reply: type[Struct] | None = None
    media_type: str = "application/json"
    stream_type: str = ""
    """Of the reply as it comes; empty where it comes whole."""


EVENTS, LINES = "text/event-stream", "application/x-ndjson"


def generating(
    path: str, summary: str, body: type[Struct], reply: type[Struct], stream: str = EVENTS
) -> Operation:
    """Return an endpoint whose reply may come as a stream."""
    return Operation("post", path, summary, body, reply, stream_type=stream)


OPERATIONS = (
    generating("/v1/chat/completions", "Continue a conversation", ChatBody, ChatReply),
    generating("/v1/completions", "Continue a text", CompletionBody, CompletionReply),
    generating("/v1/responses", "Create a response", ResponsesBody, ResponseObject),
    generating("/v1/messages", "Continue a conversation", MessagesBody, MessageReply),
    Operation("post", "/v1/messages/count_tokens", "Count a prompt", PromptBody, TokenCountReply),
    Operation("post", "/v1/responses/input_tokens", "Count a prompt", ResponsesBody, InputTokens),
    Operation("get", "/v1/responses/{response_id}", "Return a kept response", None, ResponseObject),
    Operation(
        "delete", "/v1/responses/{response_id}", "Forget a kept response", None, DeletedResponse
    ),
    generating("/api/chat", "Continue a conversation", OllamaChatBody, ChatLine, LINES),
    generating("/api/generate", "Answer a prompt", GenerateBody, GenerateLine, LINES),
    Operation("post", "/api/show", "Describe the model served", ShowBody, ShownModel),
    Operation("get", "/api/ps", "Tell the model loaded", None, RunningModels),
    Operation("get", "/api/tags", "List the model served", None, ListedModels),
    Operation("get", "/api/version", "Tell the server's version", None, ServerVersion),
    Operation("post", "/tokenize", "Turn text into tokens", TokenizeBody),
    Operation("post", "/detokenize", "Turn tokens into text", DetokenizeBody),
    Operation("get", "/v1/models", "List the model served"),
    Operation("get", "/v1/models/{name}", "Describe the model served"),
    Operation("get", "/v1/capabilities", "Tell which fields are obeyed"),
    Operation("get", "/health", "Tell whether the event loop answers"),
    Operation("get", "/ready", "Tell whether requests are taken and make progress"),
    Operation("get", "/metrics", "Metrics for Prometheus", media_type="text/plain"),
)
ERRORS = {
    "400": "The request is wrong; the error names the field.",
    "401": "An API key is required.",
    "403": "The browser's page is not allowed.",
    "404": "There is no such model or address.",
    "408": "The body took too long.",
    "413": "The body is too large.",
    "500": "The server failed.",
    "503": "The server is full, starting or stopping; Retry-After tells when to come back.",
    "504": "The request's deadline passed before its text began.",
}


def document() -> JsonObject:
    """Return the document of `/openapi.json`."""
    structs = [ErrorReply]
    for each in OPERATIONS:
        structs += [kind for kind in (each.body, each.reply) if kind is not None]
    _, schemas = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    for kind in (*structs, Message, InputMessage, OllamaMessage, OllamaOptions):
        _drop_refused(kind, schemas[kind.__name__])
    paths: dict[str, JsonObject] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "draftwerk", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(operation: Operation) -> JsonObject:
    schema = _reference(operation.reply) if operation.reply else {}
    answers: JsonObject = {
        "200": {"description": "Done.", "content": {operation.media_type: {"schema": schema}}}
    }
    if operation.stream_type:
        answers["200"]["content"][operation.stream_type] = {}
    error = {"application/json": {"schema": _reference(ErrorReply)}}
    for status, words in ERRORS.items():
        answers[status] = {"description": words, "content": error}
    found: JsonObject = {"summary": operation.summary, "responses": answers}
    if operation.body is not None:
        content = {"application/json": {"schema": _reference(operation.body)}}
        found["requestBody"] = {"required": True, "content": content}
    names = re.findall(r"\{(\w+)\}", operation.path)
    if names:
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    return found


def _reference(struct: type[Struct]) -> JsonObject:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


def _drop_refused(struct: type[Struct], schema: JsonObject) -> None:
    """Leave out what is known only to be refused."""
    for field in msgspec.structs.fields(struct):
        if field.type is msgspec.Raw:
            schema["properties"].pop(field.encode_name, None)
