"""Messages of a conversation to its turns."""

from collections.abc import Sequence

from draftwerk.actors.client_prompts import Chat, ChatMessage
from draftwerk.api.core.errors import refused
from draftwerk.api.fields.given_turns import check_message, check_turns
from draftwerk.api.fields.reply_plan import ReplyPlan
from draftwerk.api.fields.segments import marked
from draftwerk.api.fields.tool_request import tool_call
from draftwerk.api.openai.schema import Content, Message, MessageContent


def chat_prompt(messages: Sequence[Message], plan: ReplyPlan) -> Chat:
    """Return the conversation as plain text messages, with what the prompt tells of its reply."""
    turns = tuple(_chat_message(each, index) for index, each in enumerate(messages))
    check_turns(turns, "messages")
    return Chat(turns, plan.tools, plan.variables)


def _chat_message(message: Message, index: int) -> ChatMessage:
    path = f"messages[{index}]"
    check_message(message, path)
    if message.content is None and message.role != "assistant":
        raise refused(f"`{path}.content` is required.", f"{path}.content", "missing")
    role = "system" if message.role == "developer" else message.role
    if role != "assistant" and (message.tool_calls or message.reasoning_content):
        raise refused(f"`{path}.tool_calls` is an assistant's.", f"{path}.tool_calls", "invalid")
    if (role == "tool") != (message.tool_call_id is not None):
        field = f"{path}.tool_call_id"
        raise refused(f"`{field}` goes with the role tool.", field, "invalid")
    return ChatMessage(
        role,
        plain(message.content),
        message.name or "",
        calls=tuple(
            tool_call(each.id, each.function, f"{path}.tool_calls[{at}].function")
            for at, each in enumerate(message.tool_calls or ())
        ),
        call_id=message.tool_call_id or "",
        segments=marked(message.content),
        reasoning=message.reasoning_content or "",
    )


def plain(content: Content | MessageContent | None) -> str:
    """Return the text of a content, its parts joined."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)
