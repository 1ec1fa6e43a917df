"""Notes to a client on tools that the model is not told of, or not held to."""

from collections.abc import Sequence

from draftwerk.api.requests.reply_plan import ReplyPlan
from draftwerk.api.shared.state import ServerState

LEFT_OUT, LOOSE = b"x-tools-left-out", b"x-tools-loosely-followed"


def note_weakened(plan: ReplyPlan, state: ServerState, tenant: str, session: str) -> None:
    """Write into the log which tools' schemas are not obeyed in full, once a session."""
    for each in plan.weakened:
        state.notes.note(tenant, session, f"a tool's schema is weakened: {each}")


def tool_notes(
    left_out: Sequence[str], loose: Sequence[str], state: ServerState, tenant: str, session: str
) -> list[tuple[bytes, bytes]]:
    """Return headers that name tools left out or weakened; the log names them once a session."""
    headers: list[tuple[bytes, bytes]] = []
    for name, found, words in (
        (LEFT_OUT, left_out, "hosted tools are left out"),
        (LOOSE, loose, "grammars of custom tools are told, and not enforced"),
    ):
        if found:
            listed = ", ".join(found)
            state.notes.note(tenant, session, f"{words}: {listed}")
            headers.append((name, listed.encode("latin-1", "replace")))
    return headers
