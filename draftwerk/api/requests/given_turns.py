"""The rules for turns of a conversation, in every protocol."""

from collections.abc import Sequence

from msgspec import Struct

from draftwerk.api.requests.decode import check_served, refused_fields
from draftwerk.api.shared.errors import refused
from draftwerk.speculative.requests.client_prompts import ChatMessage


def check_turns(turns: Sequence[ChatMessage], path: str) -> None:
    """Refuse a tool's result that answers no call before it."""
    called: set[str] = set()
    for index, turn in enumerate(turns):
        called.update(each.id for each in turn.calls)
        if turn.role == "tool" and turn.call_id not in called:
            sentence = f"`{path}[{index}]` is the result of a call that is not before it."
            raise refused(sentence, f"{path}[{index}]", "invalid")


def check_message(message: Struct, path: str) -> None:
    """Refuse fields of a message, or of another part, that are known and not served."""
    if "images" in refused_fields(message):
        said = f"`{path}.images` are not supported by this model."
        raise refused(said, f"{path}.images", "unsupported")
    check_served(message, f"{path}.")
