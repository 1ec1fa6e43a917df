"""What this server obeys and what it refuses, read from the Structs that check the requests."""

import msgspec
from msgspec import Struct, inspect

from draftwerk.api.core.state import ServerState
from draftwerk.api.openai.decode import described
from draftwerk.api.openai.responses_schema import ResponsesBody
from draftwerk.api.openai.schema import ChatBody, CompletionBody

ENDPOINTS: dict[str, type[Struct]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
}


def capabilities(state: ServerState) -> dict[str, object]:
    """Return the document of `/v1/capabilities`."""
    card = state.model
    return {
        "model": card.name,
        "context_max": card.context_max,
        "exact": card.exact,
        "device": card.device,
        "dtype": card.dtype,
        "attention": card.attention,
        "draft_model": card.draft_model or None,
        "draft_sources": card.draft_sources,
        "endpoints": {path: _fields(body) for path, body in ENDPOINTS.items()},
    }


def _fields(body: type[Struct]) -> dict[str, object]:
    """Return the fields of a body: the obeyed ones with what they may hold, and the refused."""
    supported: dict[str, str] = {}
    refused: list[str] = []
    for each in msgspec.structs.fields(body):
        if each.type is msgspec.Raw:
            refused.append(each.encode_name)
        else:
            supported[each.encode_name] = described(inspect.type_info(each.type))
    return {"supported": supported, "unsupported": refused}
