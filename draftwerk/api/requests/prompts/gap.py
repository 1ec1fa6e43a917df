"""Completion in the middle: the prompt that asks for what stands between two texts."""

from msgspec import Struct

from draftwerk.actors.client_prompts import Prompt
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.state import ServerState


class Gap(Struct, frozen=True, kw_only=True):
    """The texts around a gap, and what is known of its own."""

    before: str
    after: str
    begun: str = ""
    """How the gap's text begins."""
    files: tuple[tuple[str, str], ...] = ()
    """Names and texts of other files, which come first."""


async def gap_prompt(state: ServerState, gap: Gap, field: str) -> Prompt:
    """Return the tokens that ask for a gap's text; `field` is what the text behind it is called.

    Raises ApiError for a model whose vocabulary has no tokens for that.
    """
    tokens, text = state.model.middle, state.text_tools
    if tokens is None:
        raise refused(
            f"`{field}` is not supported by this server for this model, whose vocabulary has no "
            "tokens around a gap; use a model for code, or a text of your own around `prompt`.",
            field,
            "unsupported",
        )

    def encoded() -> list[int]:
        encode = text.encode_continuation
        files = tokens.files(gap.files, encode)
        parts = encode(gap.before), encode(gap.after)
        return [*tokens.prompt([*text.encode(""), *files], *parts), *encode(gap.begun)]

    return tuple(await state.text_worker.run(encoded))
