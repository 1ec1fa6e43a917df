"""What a client is told of tools that the model is not told of, or not held to."""

from draftwerk.api.core.state import ServerState
from draftwerk.api.openai.responses.items.response_tools import OfferedTools
from draftwerk.api.openai.responses.responses_schema import ResponsesBody, conversation_id_of
from draftwerk.api.replying.sse import Headers

LEFT_OUT, LOOSE = b"x-tools-left-out", b"x-tools-loosely-followed"


def tool_notes(
    offered: OfferedTools, body: ResponsesBody, state: ServerState, tenant: str
) -> Headers:
    """Return headers that name tools left out or weakened; the log names them once a session."""
    session = body.prompt_cache_key or conversation_id_of(body) or body.user or ""
    headers: list[tuple[bytes, bytes]] = []
    for name, found, words in (
        (LEFT_OUT, offered.left_out, "hosted tools are left out"),
        (LOOSE, offered.loose, "grammars of custom tools are told, and not enforced"),
    ):
        if found:
            listed = ", ".join(found)
            state.notes.note(tenant, session, f"{words}: {listed}")
            headers.append((name, listed.encode("latin-1", "replace")))
    return headers
