"""Completion in the middle: the prompt that asks for what stands between two texts."""

from msgspec import Struct

from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.requests.client_prompts import Prompt


class Fim(Struct, frozen=True, kw_only=True):
    """The two texts to fill in between (fill in the middle), and how that begins."""

    before: str
    after: str
    begun: str = ""
    """How the text between them begins."""
    files: tuple[tuple[str, str], ...] = ()
    """Names and texts of other files, which come first."""


async def fim_prompt(state: ServerState, fim: Fim, field: str) -> Prompt:
    """Return the tokens that ask for the text between; `field` names the text behind it.

    Raises ApiError for a model whose vocabulary has no tokens for that.
    """
    tokens, text = state.model.fim, state.text_tools
    if tokens is None:
        raise refused(
            f"`{field}` is not supported by this server for this model, whose vocabulary has no "
            "tokens around a gap; use a model for code, or a text of your own around `prompt`.",
            field,
            "unsupported",
        )

    def encoded() -> list[int]:
        encode = text.encode_continuation
        files = tokens.files(fim.files, encode)
        parts = encode(fim.before), encode(fim.after)
        return [*tokens.prompt([*text.encode(""), *files], *parts), *encode(fim.begun)]

    return tuple(await state.text_worker.run(encoded))
