"""Messages of a conversation to its turns."""

from collections.abc import Sequence
from itertools import accumulate

from draftwerk.api.openai.schema import ChatBody, Message, MessageContent
from draftwerk.api.requests.given_turns import check_message, check_turns
from draftwerk.api.requests.half_answers import taken_apart
from draftwerk.api.requests.reply_plan import ReplyPlan
from draftwerk.api.requests.segments import marked
from draftwerk.api.requests.tool_request import tool_call
from draftwerk.api.shared.errors import refused
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage, HalfTurn


def chat_prompt(messages: Sequence[Message], plan: ReplyPlan) -> Chat:
    """Return the conversation as plain text messages, with what the prompt tells of its reply."""
    turns = tuple(_chat_message(each, index) for index, each in enumerate(messages))
    check_turns(turns, "messages")
    return Chat(turns, plan.tools, plan.variables)


def continued(body: ChatBody, chat: Chat) -> tuple[Chat, HalfTurn | None]:
    """Return the conversation without a last message of the assistant's that goes on, and that.

    Raises ApiError for a body that contradicts itself.
    """
    is_last, opens = chat.messages[-1].role == "assistant", body.add_generation_prompt
    if body.continue_final_message and opens:
        said = "`continue_final_message` and `add_generation_prompt` cannot both be true."
        raise refused(said, "continue_final_message", "invalid")
    for name, needs_answer in (
        ("continue_final_message", body.continue_final_message),
        ("add_generation_prompt", opens is False),
    ):
        if needs_answer and not is_last:
            raise refused(f"`{name}` needs a last message of the assistant's.", name, "invalid")
    if opens or body.continue_final_message is False:
        return chat, None
    return taken_apart(chat)


def _chat_message(message: Message, index: int) -> ChatMessage:
    path = f"messages[{index}]"
    check_message(message, path)
    content = message.content if message.content is not None else message.refusal
    if content is None and message.role != "assistant":
        raise refused(f"`{path}.content` is required.", f"{path}.content", "missing")
    role = "system" if message.role == "developer" else message.role
    if role != "assistant" and message.token_ids:
        raise refused(f"`{path}.token_ids` is an assistant's.", f"{path}.token_ids", "invalid")
    reasoning = message.reasoning_content or message.reasoning or ""
    if message.reasoning and message.reasoning != reasoning:
        field = f"{path}.reasoning"
        raise refused(f"`{field}` and `reasoning_content` differ.", field, "invalid")
    if role != "assistant" and (message.tool_calls or reasoning):
        raise refused(f"`{path}.tool_calls` is an assistant's.", f"{path}.tool_calls", "invalid")
    if (role == "tool") != (message.tool_call_id is not None):
        field = f"{path}.tool_call_id"
        raise refused(f"`{field}` goes with the role tool.", field, "invalid")
    return ChatMessage(
        role,
        plain(content),
        message.name or "",
        message.token_ids or (),
        calls=tuple(
            tool_call(each.id, each.function.name, each.function.arguments)
            for each in message.tool_calls or ()
        ),
        call_id=message.tool_call_id or "",
        segments=marked(message.content),
        reasoning=reasoning,
        parts=part_ends(content),
    )


def part_ends(content: MessageContent | None) -> tuple[int, ...]:
    """Return where each of several parts ends in the text of all; empty for one."""
    if content is None or isinstance(content, str) or len(content) < 2:
        return ()
    return tuple(accumulate(len(part.text) for part in content))


def plain(content: MessageContent | None) -> str:
    """Return the text of a content, its parts joined."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)
