"""Every error a client can see: one body shape, our own sentences."""

import re

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from draftwerk.settings.field_faults import ErrorDetails, fault_of

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    426: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    503: "overloaded_error",
    504: "timeout_error",
}
PART_TYPE = re.compile(r"Invalid (?:enum )?value '(\w{1,32})'")
MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image"), "images are"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio is"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video is"),
    **dict.fromkeys(("file", "input_file", "document"), "files are"),
}
"""Types of a message's parts in other servers, in words."""
REFUSAL = "draftwerk.refusal"
"""Key of the error, in a scope, of a request that was refused before it reached the engine."""
OUT_OF_TIME = ("slo_unmet", "deadline_exceeded")
"""Codes of requests that were not served because of what they or the server said of times."""
TOO_LONG = "context_length_exceeded"
OLLAMA = "/api/"
"""The beginning of the paths of Ollama's API."""
OUTCOMES = {404: "not_found", 405: "method_not_allowed"}
"""The outcome as which an error without a code is counted."""
SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not answer to this method.",
}


NOT_FOUND = "Nothing of that name is served, or kept for this key."
TOO_MANY = "This key has as many as it may."
CODES = {
    "invalid": "The field named by `param` cannot have this value.",
    "missing": "The field named by `param` is required.",
    "unsupported": "The field named by `param` is known, and not served in this way.",
    "invalid_json": "The body is no JSON; it closes a WebSocket.",
    "refused": "The engine cannot serve it, as with a grammar that cannot be followed.",
    "context_length_exceeded": "The prompt, or it and `max_tokens`, is longer than the context.",
    "unknown_event": "A WebSocket's event has a type that is not known.",
    "invalid_api_key": "The key is missing or not known.",
    "admin_only": "Of several keys, that is for the one named `admin`.",
    "origin": "A browser's page of another site asked.",
    "model_not_found": NOT_FOUND,
    "model_busy": "The model is not loaded yet; `Retry-After` tells when it probably is.",
    "model_failed": "The model could not be loaded; the message says why.",
    "conversation_not_found": NOT_FOUND,
    "item_not_found": NOT_FOUND,
    "response_not_found": NOT_FOUND,
    "stream_not_found": NOT_FOUND,
    "file_not_found": NOT_FOUND,
    "batch_not_found": NOT_FOUND,
    "files_not_kept": "The server keeps none: it needs `--files`.",
    "too_many_files": TOO_MANY,
    "receipts_not_found": NOT_FOUND,
    "receipts_not_kept": "The server keeps none: it needs `--receipts` or `--record`.",
    "previous_response_not_found": NOT_FOUND,
    "cancelled": "The client left before its body was whole; only the log has it.",
    "body_timeout": "The body took too long to arrive.",
    "body_too_large": "The body is over the limit.",
    "lane_full": "Too many responses wait in this stream.",
    "too_many_lanes": "All streams of this socket are busy.",
    "too_many_streams": TOO_MANY,
    "too_many_sockets": TOO_MANY,
    "overloaded": "The server is full; `Retry-After` tells when to come back.",
    "slo_unmet": "What was promised cannot be kept; `Retry-After` tells when it could be.",
    "unavailable": "What it needs is away for a moment; `Retry-After` tells when to come back.",
    "deadline_exceeded": "The request's `deadline` passed before its text began.",
    "starting": "The models are loading.",
    "draining": "The server is shutting down.",
    "not_ready": "`/ready` says why.",
    "failed": "The engine could not finish the request.",
    "internal": "The server failed; its log has the reason under the request's id.",
}
"""Everything that `code` may be, for the reference; null where the status is enough."""
CLOSE_CODES = {
    1000: "The client closed.",
    1001: "Nothing was under way for too long.",
    1002: "A frame broke the protocol.",
    1003: "A binary frame came.",
    1007: "Text came that is no UTF-8 or no JSON.",
    1008: "The client read too slowly, or sent a large message so; or a handshake without key "
    "that could have no 401.",
    1009: "A message was over `--body-max`.",
    1011: "The server failed.",
    1012: "The server is shutting down.",
    1013: "A full server was asked again and again; or a handshake that could have no 503; or "
    "large messages of others left no room for one (`--bodies-max`).",
}


class ErrorBody(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str | None
    details: ErrorDetails | msgspec.UnsetType = msgspec.UNSET


class ErrorReply(msgspec.Struct, frozen=True):
    error: ErrorBody
    type: str = "error"
    """For clients of Anthropic's API, which look for it."""


class SentenceReply(msgspec.Struct, frozen=True):
    """The same for clients of Ollama's API, which show `error` as it is."""

    error: str
    param: str | None
    code: str | None


class ApiError(Exception):
    """A request that ends in an HTTP error; `retry_after_ms` is the wait before another try."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_ms: int | None = None,
        details: ErrorDetails | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_ms = retry_after_ms
        self.details = details

    @property
    def reply(self) -> ErrorReply:
        """The body, as every endpoint and every stream sends it."""
        kind = KINDS.get(self.status, "server_error")
        return ErrorReply(ErrorBody(self.message, kind, self.param, self.code, self.details))

    @property
    def sentence(self) -> SentenceReply:
        """The body where `error` is a sentence."""
        return SentenceReply(self.message, self.param, self.code)

    @property
    def outcome(self) -> str:
        """The word that the request is counted under; there are only so many."""
        return self.code or OUTCOMES.get(self.status, "refused")

    @property
    def headers(self) -> dict[str, str]:
        """Headers beside the body; both spellings of the delay, since clients differ."""
        if self.retry_after_ms is not None:
            seconds = -(-self.retry_after_ms // 1000)
            return {"retry-after": str(seconds), "retry-after-ms": str(self.retry_after_ms)}
        if self.status == 504:
            return {"x-should-retry": "false"}  # its time is over; OpenAI's clients would try again
        return {"www-authenticate": "Bearer"} if self.status == 401 else {}


def refused(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the 400 that names the field to blame."""
    return ApiError(400, message, param=param, code=code)


def invalid(message: str, struct: type[msgspec.Struct]) -> ApiError:
    """Turn a validation error into a 400 that names the field and what it may be."""
    fault = fault_of(message, struct)
    kind = PART_TYPE.match(message)
    if kind is not None and kind[1] in MEDIA and (fault.param or "").endswith(".type"):
        said = f"`{fault.param}`: {MEDIA[kind[1]]} not supported by this model, which reads text."
        return refused(said, fault.param, "unsupported")
    return refused(*fault)


def overloaded(retry_after_ms: int) -> ApiError:
    """Return the 503 for a full server."""
    return ApiError(
        503,
        "The server is full; try again after the time in Retry-After.",
        code="overloaded",
        retry_after_ms=retry_after_ms,
    )


def slo_unmet(retry_after_ms: int) -> ApiError:
    """Return the 503 for a request that cannot be kept what it was promised."""
    return ApiError(
        503,
        f"What was promised cannot be kept now; try again in {retry_after_ms} ms.",
        code="slo_unmet",
        retry_after_ms=retry_after_ms,
    )


def unavailable(reason: str, retry_after_ms: int) -> ApiError:
    """Return the 503 for a request that needs what is away for a moment."""
    said = f"{reason[:1].upper()}{reason[1:]}."
    return ApiError(503, said, code="unavailable", retry_after_ms=retry_after_ms)


def deadline_exceeded() -> ApiError:
    """Return the 504 for a request whose text has not begun in time."""
    said = "The request's `deadline` passed before its text began."
    return ApiError(504, said, param="deadline", code="deadline_exceeded")


def draining() -> ApiError:
    """Return the 503 for a server that is shutting down."""
    return ApiError(503, "The server is shutting down.", code="draining", retry_after_ms=5000)


def internal() -> ApiError:
    """Return the 500 without its cause, which the log has under the request's id."""
    return ApiError(500, "The server failed to answer; its log has the reason.", code="internal")


def response(error: ApiError, scope: Scope) -> Response:
    """Return the error as an HTTP response, in the words of the API that was asked."""
    path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
    body = msgspec.json.encode(error.sentence if path.startswith(OLLAMA) else error.reply)
    return Response(body, error.status, error.headers, media_type="application/json")


async def turned_away(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request or a handshake; where a handshake can have no body, close it with a code."""
    scope[REFUSAL] = error
    answerable = "websocket.http.response" in scope.get("extensions", {})
    if scope["type"] == "http" or answerable:
        await response(error, scope)(scope, receive, send)
        return
    code = 1008 if error.status < 429 else 1013
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": code, "reason": error.message})


async def on_api_error(request: Request, error: Exception) -> Response:
    """Answer an ApiError raised by an endpoint."""
    assert isinstance(error, ApiError)
    request.scope[REFUSAL] = error
    return response(error, request.scope)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer what the framework itself refuses (404, 405) in our shape."""
    assert isinstance(error, HTTPException)
    sentence = SENTENCES.get(error.status_code, "The request cannot be served.")
    if allowed := (error.headers or {}).get("Allow"):
        sentence = f"{sentence[:-1]}, only to {', '.join(sorted(allowed.split(', ')))}."
    found = request.scope[REFUSAL] = ApiError(error.status_code, sentence)
    answer = response(found, request.scope)
    answer.headers.update(error.headers or {})
    return answer


async def on_client_gone(request: Request, error: Exception) -> Response:
    """Answer a client that left before its body was whole; the answer is not read."""
    gone = ApiError(400, "The client left before its body was whole.", code="cancelled")
    request.scope[REFUSAL] = gone
    return response(gone, request.scope)


class ClientGoneError(Exception):
    """The client closed the connection."""


class SlowClientError(ClientGoneError):
    """The client has the connection open, and reads nothing."""
