"""Prompts of completions cut to a number of tokens; vLLM's `truncate_prompt_tokens`."""

from draftwerk.api.openai.schema import CompletionBody
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.prompt_tokens import encoded
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.requests.client_prompts import Prompt

FIELD, SIDE = "truncate_prompt_tokens", "truncation_side"
TOKENS_DEFAULT = 16
"""As many as a completion has that names no bound."""


async def cut_prompts(
    state: ServerState, body: CompletionBody, prompts: list[Prompt]
) -> list[Prompt]:
    """Return the prompts' last tokens, or their first ones. Raises ApiError."""
    most = body.truncate_prompt_tokens
    if most == 0:
        raise refused(f"`{FIELD}` must be at least 1, or -1.", FIELD, "invalid")
    if most is None:
        if body.truncation_side is not None:
            raise refused(f"`{SIDE}` needs `{FIELD}`.", SIDE, "invalid")
        return prompts
    for name in ("suffix", "documents", "blend"):
        if getattr(body, name):
            raise refused(f"`{name}` cannot go with `{FIELD}`.", name, "unsupported")
    if most == -1:
        written = TOKENS_DEFAULT if body.max_tokens in (None, -1) else body.max_tokens
        most = max(1, state.model.context_max - (written or 0))
    kept = slice(most) if body.truncation_side == "right" else slice(-most, None)
    return [tuple((await encoded(state, each))[kept]) for each in prompts]
