"""A Messages body to a conversation and a plan of the reply."""

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from draftwerk.actors.client_prompts import Chat, ChatMessage, ToolCall
from draftwerk.api.anthropic.schema import (
    OBEYED,
    AnthropicMessage,
    AnthropicToolChoice,
    MessagesBody,
    PromptBody,
    RedactedThinking,
    TextInput,
    Thinking,
    ToolResult,
    ToolUse,
)
from draftwerk.api.core.errors import refused
from draftwerk.api.core.handling import RequestContext
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.fields.decoding import sampling_of, speculation_of
from draftwerk.api.fields.given_turns import check_turns
from draftwerk.api.fields.grammars import TextForm, schema_grammar
from draftwerk.api.fields.reasoning_request import ReasoningRequest, reasoning_of
from draftwerk.api.fields.reply_plan import ReplyPlan, plan_reply
from draftwerk.api.fields.segments import blend_of, with_documents
from draftwerk.api.fields.tool_request import ToolRequest, tool_request
from draftwerk.api.fields.tools_schema import FunctionDefinition
from draftwerk.speculative.replies.grammar import CallMode
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.fields import SamplingFields

PSEUDO_HEADER = re.compile(r"\Ax-anthropic-[a-z-]+:[^\n]*\n*", re.IGNORECASE)
"""Agents put such a line into the system prompt; it differs in every request, and would keep all
that follows it out of the prefix cache."""
MODES: dict[str, CallMode] = {"auto": "auto", "any": "required", "tool": "required", "none": "none"}
NAMES = {"messages": "messages", "response_format": "tools", "max_tokens": "max_tokens"}


def message_plan(body: PromptBody, model: ServedModel) -> ReplyPlan:
    """Return what the reply must be."""
    config = body.output_config
    form = None if config is None or config.format is None else config.format.schema
    path = "output_config.format.schema"
    thinking = body.thinking
    enabled = None if thinking is None else thinking.type != "disabled"
    reasons = model.reasoning is not None
    request = ReasoningRequest(
        effort=config.effort if config is not None and enabled is not False else None,
        enabled=enabled,
        budget=thinking.budget_tokens if thinking is not None and enabled and reasons else None,
        effort_field="thinking",
        budget_field="thinking.budget_tokens",
    )
    text = TextForm(None if form is None else schema_grammar(form, path), path)
    return plan_reply(_tools(body, model), reasoning_of(request, model), text, model)


def _tools(body: PromptBody, model: ServedModel) -> ToolRequest:
    definitions = [
        FunctionDefinition(each.name, each.description, each.input_schema)
        for each in body.tools or ()
    ]
    choice = body.tool_choice or AnthropicToolChoice("auto")
    if (choice.type == "tool") != (choice.name is not None):
        raise refused("`tool_choice.name` goes with the type tool.", "tool_choice.name", "invalid")
    allowed = None if choice.name is None else frozenset((choice.name,))
    parallel = not choice.disable_parallel_tool_use and choice.name is None
    return tool_request(definitions, MODES[choice.type], allowed, parallel, model)


def message_prompt(body: PromptBody, plan: ReplyPlan, model: ServedModel) -> Chat:
    """Return the conversation, with the documents in it."""
    turns: list[ChatMessage] = []
    if system := system_text(body.system):
        turns.append(ChatMessage("system", system))
    for index, each in enumerate(body.messages):
        turns += _turns(each, f"messages[{index}]")
    check_turns(turns, "messages")
    chat = Chat(tuple(turns), plan.tools, plan.variables)
    return with_documents(chat, body.documents, bool(body.blend), model)


def system_text(system: str | Sequence[TextInput] | None) -> str:
    """Return the system prompt without pseudo-headers that change from request to request."""
    texts = [system] if isinstance(system, str) else [each.text for each in system or ()]
    bare = (PSEUDO_HEADER.sub("", text) for text in texts)
    return "\n\n".join(text for text in bare if text)


def _turns(message: AnthropicMessage, path: str) -> list[ChatMessage]:
    """Return the turns of one message: results of tools come before what its user says."""
    tokens = message.token_ids or ()
    if tokens and message.role != "assistant":
        raise refused(f"`{path}.token_ids` is an assistant's.", f"{path}.token_ids", "invalid")
    if isinstance(message.content, str):
        return [ChatMessage(message.role, message.content, tokens=tokens)]
    results: list[ChatMessage] = []
    texts: list[str] = []
    calls: list[ToolCall] = []
    reasoning = ""
    for at, block in enumerate(message.content):
        is_answer = isinstance(block, ToolUse | Thinking | RedactedThinking)
        if (is_answer and message.role != "assistant") or (
            isinstance(block, ToolResult) and message.role != "user"
        ):
            field = f"{path}.content[{at}]"
            raise refused(f"`{field}` is not of the role {message.role}.", field, "invalid")
        match block:
            case TextInput():
                texts.append(block.text)
            case ToolUse():
                arguments = msgspec.json.encode(block.input).decode()
                calls.append(ToolCall(block.id, block.name, arguments))
            case Thinking():
                reasoning += block.thinking
            case RedactedThinking():
                pass
            case ToolResult():
                results.append(_result(block))
    text = "\n\n".join(texts) if message.role != "assistant" else "".join(texts)
    if results and not text:
        return results
    turn = ChatMessage(message.role, text, tokens=tokens, calls=tuple(calls), reasoning=reasoning)
    return [*results, turn]


def _result(block: ToolResult) -> ChatMessage:
    content = block.content
    text = content if isinstance(content, str) else "".join(each.text for each in content or ())
    return ChatMessage("tool", text, call_id=block.tool_use_id)


def message_options(
    body: MessagesBody, context: RequestContext, plan: ReplyPlan, tokens_max: int
) -> Options:
    """Return the engine's options."""
    request = SamplingFields(**{name: getattr(body, name) for name in OBEYED})
    sampling = sampling_of(request, context.model, context.new_seed)
    blend = blend_of(body.blend, body.documents, (), context.model)
    return Options(
        sampling=replace(sampling, grammar=plan.grammar),
        tokens_max=tokens_max,
        stop=tuple(body.stop_sequences or ()),
        reply=plan.form,
        speculation=speculation_of(body.speculation, context.model),
        blend=blend,
        adapter=context.model.adapter,
        cache_salt=body.cache_salt or "",
    )
