"""A Messages body to a conversation and a plan of the reply."""

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from draftwerk.api.anthropic.content_blocks import (
    Block,
    DocumentInput,
    DocumentSource,
    FoundToolsBlock,
    LeftOut,
    ResultBlock,
    SearchResult,
    TextInput,
    Thinking,
    ToolReference,
    ToolResult,
    ToolUse,
)
from draftwerk.api.anthropic.message_tools import MessageTools
from draftwerk.api.anthropic.schema import (
    OBEYED,
    AnthropicMessage,
    MessagesBody,
    PromptBody,
)
from draftwerk.api.requests.decoding import sampling_of, speculation_of
from draftwerk.api.requests.given_turns import check_message, check_turns
from draftwerk.api.requests.grammars import TextForm, schema_grammar
from draftwerk.api.requests.reasoning_request import ReasoningRequest, reasoning_of
from draftwerk.api.requests.reply_plan import ReplyPlan, plan_reply
from draftwerk.api.requests.segments import blend_of, with_documents
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.handling import RequestContext
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.parameters.fields import SamplingFields
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage, ToolCall

PSEUDO_HEADER = re.compile(r"\Ax-anthropic-[a-z-]+:[^\n]*\n*", re.IGNORECASE)
"""Agents put such a line into the system prompt; it differs in every request, and would keep all
that follows it out of the prefix cache."""
NAMES = {"messages": "messages", "response_format": "tools", "max_tokens": "max_tokens"}


def message_plan(body: PromptBody, tools: MessageTools, model: ServedModel) -> ReplyPlan:
    """Return what the reply must be."""
    config = body.output_config
    if config is not None:
        check_message(config, "output_config")
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
    return plan_reply(tools.request, reasoning_of(request, model), text, model)


def message_prompt(
    body: PromptBody, tools: MessageTools, plan: ReplyPlan, model: ServedModel
) -> Chat:
    """Return the conversation, with the documents in it."""
    turns: list[ChatMessage] = []
    if system := system_text(body.system):
        turns.append(ChatMessage("system", system))
    for index, each in enumerate(body.messages):
        turns += _turns(each, tools, f"messages[{index}]")
    check_turns(turns, "messages")
    chat = Chat(tuple(turns), plan.tools, plan.variables)
    return with_documents(chat, body.documents, bool(body.blend), model)


def system_text(system: str | Sequence[TextInput] | None) -> str:
    """Return the system prompt without pseudo-headers that change from request to request."""
    texts = [system] if isinstance(system, str) else [each.text for each in system or ()]
    bare = (PSEUDO_HEADER.sub("", text) for text in texts)
    return "\n\n".join(text for text in bare if text)


def _turns(message: AnthropicMessage, tools: MessageTools, path: str) -> list[ChatMessage]:
    """Return the turns of one message: results of tools come before what its user says."""
    check_message(message, path)
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
        field = f"{path}.content[{at}]"
        _check_role(block, message.role, field)
        match block:
            case TextInput() | DocumentInput() | SearchResult():
                texts.append(block_text(block, tools, field))
            case ToolUse():
                arguments = msgspec.json.encode(block.input).decode()
                calls.append(ToolCall(block.id, block.name, arguments))
            case Thinking():
                reasoning += block.thinking
            case ToolResult():
                results.append(_result(block, tools, field))
            case FoundToolsBlock() | LeftOut():
                pass
    text = "\n\n".join(texts) if message.role != "assistant" else "".join(texts)
    if results and not text:
        return results
    turn = ChatMessage(message.role, text, tokens=tokens, calls=tuple(calls), reasoning=reasoning)
    return [*results, turn]


def _check_role(block: Block, role: str, field: str) -> None:
    """Refuse a block that is not of its message's role."""
    of_answers = isinstance(block, ToolUse | Thinking | LeftOut | FoundToolsBlock)
    of_users = isinstance(block, ToolResult | DocumentInput | SearchResult)
    if (of_answers and role != "assistant") or (of_users and role != "user"):
        raise refused(f"`{field}` is not of the role {role}.", field, "invalid")


def _result(block: ToolResult, tools: MessageTools, path: str) -> ChatMessage:
    content = block.content
    if not isinstance(content, str):
        parts = enumerate(content or ())
        texts = [block_text(each, tools, f"{path}.content[{at}]") for at, each in parts]
        is_text = all(isinstance(each, TextInput) for each in block.content or ())
        content = ("" if is_text else "\n\n").join(texts)
    return ChatMessage("tool", content, call_id=block.tool_use_id)


def block_text(block: ResultBlock, tools: MessageTools, path: str) -> str:
    """Return what the model is shown of a block. Raises ApiError for what is no text."""
    match block:
        case TextInput():
            return block.text
        case ToolReference():
            return tools.text(block.tool_name, f"{path}.tool_name")
        case DocumentInput():
            lines = (block.title, block.context, _source_text(block.source, f"{path}.source"))
        case SearchResult():
            lines = (block.title, block.source, *(each.text for each in block.content))
    if block.citations is not None and block.citations.enabled:
        field = f"{path}.citations"
        raise refused(f"`{field}` is not supported by this server.", field, "unsupported")
    return "\n".join(each for each in lines if each)


def _source_text(source: DocumentSource, path: str) -> str:
    """Return a document's text. Raises ApiError for a file."""
    if source.type not in ("text", "content"):
        said = f"`{path}.type`: files are not supported by this model, which reads text."
        raise refused(said, f"{path}.type", "unsupported")
    name, found = ("data", source.data) if source.type == "text" else ("content", source.content)
    if found is None:
        raise refused(f"`{path}.{name}` is required.", f"{path}.{name}", "missing")
    return found if isinstance(found, str) else "\n".join(each.text for each in found)


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
