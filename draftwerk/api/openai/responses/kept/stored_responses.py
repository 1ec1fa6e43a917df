"""The endpoints of responses that are kept: read, listed, cancelled, forgotten."""

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from draftwerk.api.openai.responses.items.kept_items import listed
from draftwerk.api.openai.responses.responses_events import Incomplete
from draftwerk.api.openai.responses.responses_objects import DeletedResponse
from draftwerk.api.responses.resuming import resumed
from draftwerk.api.responses.sse import framed
from draftwerk.api.shared.errors import ApiError, refused
from draftwerk.api.shared.handling import json_reply, state_of, tenant_of
from draftwerk.api.shared.kept_streams import KeptStream


async def stored_response(request: Request) -> ASGIApp:
    """`GET` and `DELETE /v1/responses/{response_id}`: what is kept for this API key."""
    response_id: str = request.path_params["response_id"]
    kept = state_of(request).responses.of(tenant_of(request))
    if request.query_params.get("stream", "false") != "false":
        return resumed(request, response_id)
    found = kept.find(response_id)
    stream = state_of(request).streams[tenant_of(request)].streams.get(response_id)
    so_far = None if stream is None else stream.so_far
    if found is None and so_far is None:
        raise not_kept(response_id)
    if request.method != "DELETE":
        if found is not None:
            return Response(found.body, media_type="application/json")
        assert stream is not None and so_far is not None
        return reply_so_far(stream, so_far())
    kept.forget(response_id)
    if stream is not None:
        stream.so_far = None  # of what has ended the events stay, for who reads them
        if not stream.over:
            stream.drop()
    return json_reply(DeletedResponse(response_id))


def reply_so_far(stream: KeptStream, response: Struct) -> Response:
    """Return what a background response has come to that has not ended well."""
    if stream.head is not None and stream.is_refused:
        body = b"".join(stream.events)
        return Response(body, stream.head["status"], media_type="application/json")
    return json_reply(response)


async def cancel_response(request: Request) -> ASGIApp:
    """`POST /v1/responses/{response_id}/cancel`: end it early, or return it if it has ended."""
    response_id: str = request.path_params["response_id"]
    stream = state_of(request).streams[tenant_of(request)].streams.get(response_id)
    if stream is None or stream.over or stream.on_cancel is None:
        found = state_of(request).responses.of(tenant_of(request)).find(response_id)
        if found is not None and not msgspec.json.decode(found.body)["background"]:
            said = "Only a response that runs in the background can be cancelled."
            raise refused(said, "response_id", "invalid")
        return await stored_response(request)
    *_, last = events = stream.on_cancel()
    assert isinstance(last, Incomplete)
    stream.finish([framed(each) for each in events])
    return json_reply(last.response)


async def input_items(request: Request) -> Response:
    """`GET /v1/responses/{response_id}/input_items`: what a kept response was sent."""
    response_id: str = request.path_params["response_id"]
    found = state_of(request).responses.of(tenant_of(request)).find(response_id)
    if found is None:
        raise not_kept(response_id)
    return json_reply(listed(msgspec.json.decode(found.input), request.query_params))


def not_kept(response_id: str) -> ApiError:
    """Return the 404 of a response that this key has none of."""
    said = f"The response {response_id[:80]!r} is not kept here."
    return ApiError(404, said, param="response_id", code="response_not_found")
