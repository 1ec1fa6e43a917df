"""Completion in the middle: `suffix` of `/v1/completions`."""

from draftwerk.api.openai.schema import CompletionBody
from draftwerk.api.requests.prompts.fim_prompt import Fim, fim_prompt
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.requests.client_prompts import Prompt

BESIDE = ("echo", "documents", "blend")
"""Fields that are about a prompt of one text."""


async def suffix_prompt(state: ServerState, body: CompletionBody) -> Prompt:
    """Return the tokens that ask for what stands between `prompt` and `suffix`. Raises ApiError."""
    if not isinstance(body.prompt, str):
        raise refused("`suffix` goes with one text as `prompt`.", "suffix", "unsupported")
    for name in BESIDE:
        if getattr(body, name):
            raise refused(f"`{name}` cannot go with `suffix`.", name, "unsupported")
    return await fim_prompt(state, Fim(before=body.prompt, after=body.suffix or ""), "suffix")
