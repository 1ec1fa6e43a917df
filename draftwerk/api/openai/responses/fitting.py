"""A response's prompt, cut to the context where that is asked for."""

from collections.abc import Sequence

from draftwerk.api.openai.responses.responses_schema import ResponsesBody
from draftwerk.api.openai.responses.responses_translate import responses_prompt
from draftwerk.api.requests.reply_plan import ReplyPlan
from draftwerk.api.shared.prompt_tokens import count_tokens
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage


async def fitted_prompt(
    state: ServerState,
    body: ResponsesBody,
    conversation: Sequence[ChatMessage],
    plan: ReplyPlan,
) -> Chat:
    """Return a response's prompt; with `truncation` auto, without the turns that do not fit."""
    if body.truncation != "auto":
        return responses_prompt(body, conversation, plan, state.model)
    room = state.model.context_max - (body.max_output_tokens or 1)
    candidates = shorter(conversation)
    low, high, tried = 0, len(candidates) - 1, 0  # most conversations fit whole
    while low < high:  # each is shorter than the one before
        prompt = responses_prompt(body, candidates[tried], plan, state.model)
        if await count_tokens(state, [prompt]) <= room:
            high = tried
        else:
            low = tried + 1
        tried = (low + high) // 2
    return responses_prompt(body, candidates[low], plan, state.model)


def shorter(conversation: Sequence[ChatMessage]) -> list[Sequence[ChatMessage]]:
    """Return a conversation whole, and without its first turns, one after the other.

    Leading system messages stay; the rest begins with a user's turn.
    """
    start = next((at for at, each in enumerate(conversation) if each.role != "system"), 0)
    later = [at for at in range(start + 1, len(conversation)) if conversation[at].role == "user"]
    return [[*conversation[:start], *conversation[at:]] for at in (start, *later)]
