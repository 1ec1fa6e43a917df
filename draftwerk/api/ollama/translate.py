"""Bodies of Ollama's API to a conversation, a plan of the reply and the engine's options."""

from collections.abc import Callable

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.messages import Chat, ChatMessage, Options, Prompt, ToolCall
from draftwerk.api.core.errors import refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.ollama.schema import (
    GenerateBody,
    OllamaBody,
    OllamaCall,
    OllamaChatBody,
    OllamaMessage,
    OllamaOptions,
)
from draftwerk.api.openai.schema import SamplingBody
from draftwerk.api.openai.translate import (
    check_message,
    check_model,
    check_turns,
    options,
)
from draftwerk.api.replying.decode import check_served, instead_of
from draftwerk.api.replying.grammars import ANY_OBJECT, schema_grammar
from draftwerk.api.replying.reasoning_request import ReasoningRequest
from draftwerk.api.replying.reply_plan import ReplyPlan, plan_reply
from draftwerk.api.replying.tool_request import call_id_of, tool_wish
from draftwerk.speculative.sampling.defaults import SamplingDefaults
from draftwerk.speculative.sampling.params import Grammar

NAMES = {"messages": "messages", "response_format": "format", "max_tokens": "options.num_predict"}
OLLAMA = SamplingDefaults(temperature=0.8, top_k=40, top_p=0.9)
"""Ollama's defaults, for what the model does not say. Its `repeat_penalty` of 1.1 over 64 tokens
has none here that is the same."""
ANY_SEED = -1
LATEST = ":latest"


def check_name(name: str | None, model: ServedModel) -> None:
    """Refuse a model that is not the one served; the tag "latest" is as good as none."""
    if name is None:
        raise refused("`model` is required.", "model", "missing")
    if name.removesuffix(LATEST) not in [each.removesuffix(LATEST) for each in model.names]:
        check_model(name, model)


def chat_plan(body: OllamaChatBody, model: ServedModel) -> ReplyPlan:
    """Return what the reply of a chat must be."""
    tools = tool_wish(tuple(each.function for each in body.tools or ()), "auto", None, True)
    return plan_reply(tools, _reasoning(body, model), format_grammar(body.format), "format", model)


def generate_plan(body: GenerateBody, model: ServedModel) -> ReplyPlan:
    """Return what a generated text must be; a raw one is not told apart into parts."""
    form = format_grammar(body.format)
    if not body.raw:
        no_tools = tool_wish((), "none", None, False)
        return plan_reply(no_tools, _reasoning(body, model), form, "format", model)
    for name in ("think", "system"):
        if getattr(body, name):
            raise refused(f"`{name}` cannot go with `raw`.", name, "invalid")
    return ReplyPlan(form, blamed="format")


def _reasoning(body: OllamaBody, model: ServedModel) -> ReasoningRequest:
    think = body.think
    if think and model.reasoning is None:
        said = "`think` is not supported by this server for this model, which does not reason first"
        raise refused(said + instead_of(body, "think"), "think", "unsupported")
    return ReasoningRequest(
        effort=think if isinstance(think, str) else None,
        enabled=think if isinstance(think, bool) and model.reasoning is not None else None,
        effort_field="think",
        budget_field="think",
    )


def format_grammar(form: msgspec.Raw | UnsetType) -> Grammar | None:
    """Return the grammar of `"json"` or of a schema, None for plain text."""
    raw = b"" if form is UNSET else bytes(form)
    if raw in (b"", b"null", b'""'):
        return None
    if raw == b'"json"':
        return ANY_OBJECT
    if not raw.startswith(b"{"):
        raise refused('`format` must be "json" or a schema, an object.', "format", "invalid")
    return schema_grammar(msgspec.Raw(raw), "format")


def chat_conversation(body: OllamaChatBody, plan: ReplyPlan) -> Chat:
    """Return the conversation; calls and their results, which have no ids in it, are joined."""
    turns: list[ChatMessage] = []
    waiting: list[ToolCall] = []
    for index, message in enumerate(body.messages):
        turn = _turn(message, index, waiting)
        waiting += turn.calls
        waiting = [each for each in waiting if turn.role != "tool" or each.id != turn.call_id]
        turns.append(turn)
    check_turns(turns, "messages")
    if turns and turns[-1].role == "assistant":
        raise refused("`messages` ends with an assistant's turn; none is continued.", "messages")
    return Chat(tuple(turns), plan.tools, plan.variables)


def _turn(message: OllamaMessage, index: int, waiting: list[ToolCall]) -> ChatMessage:
    """Return one turn; `waiting` are the calls before it that have no result yet."""
    path = f"messages[{index}]"
    check_message(message, path)
    for name, role in (("tool_calls", "assistant"), ("thinking", "assistant")):
        if getattr(message, name) and message.role != role:
            raise refused(f"`{path}.{name}` is an {role}'s.", f"{path}.{name}", "invalid")
    if message.tool_name is not None and message.role != "tool":
        raise refused(f"`{path}.tool_name` is a tool's.", f"{path}.tool_name", "invalid")
    calls = tuple(_call(each, index, at) for at, each in enumerate(message.tool_calls or ()))
    answered = ""
    if message.role == "tool":
        named = (each.id for each in waiting if message.tool_name in (None, each.name))
        answered = message.tool_call_id or next(named, "")
    return ChatMessage(
        message.role,
        message.content or "",
        calls=calls,
        call_id=answered,
        reasoning=message.thinking or "",
    )


def _call(call: OllamaCall, index: int, at: int) -> ToolCall:
    """Return an earlier call; without an id it gets one that is the same in every request."""
    function = call.function
    arguments = msgspec.json.encode(function.arguments).decode()
    return ToolCall(call.id or call_id_of("messages", index, at), function.name, arguments)


def generate_prompt(body: GenerateBody, plan: ReplyPlan) -> Prompt:
    """Return the prompt as the one turn of a conversation, or as it stands."""
    if body.raw:
        return body.prompt or ""
    turns = [ChatMessage("system", body.system)] if body.system else []
    turns.append(ChatMessage("user", body.prompt or ""))
    return Chat(tuple(turns), variables=plan.variables)


def checked_options(body: OllamaBody, model: ServedModel) -> OllamaOptions:
    """Return the options of a body; refuses those that are known and not served."""
    found = body.options or OllamaOptions()
    check_served(found, "options.")
    if found.num_predict == 0:
        said = "`options.num_predict` must be at least 1, or below 0 for no bound."
        raise refused(said, "options.num_predict", "invalid")
    return found


def engine_options(
    body: OllamaBody,
    found: OllamaOptions,
    model: ServedModel,
    tenant: str,
    new_seed: Callable[[], int],
    plan: ReplyPlan,
    tokens_max: int | None,
) -> Options:
    """Return the engine's options."""
    sampling = SamplingBody(
        temperature=found.temperature,
        top_k=found.top_k,
        top_p=found.top_p,
        min_p=found.min_p,
        repetition_penalty=found.repeat_penalty,
        repeat_last_n=found.repeat_last_n,
        presence_penalty=found.presence_penalty,
        frequency_penalty=found.frequency_penalty,
        seed=None if found.seed == ANY_SEED else found.seed,
        speculation=body.speculation,
        cache_salt=body.cache_salt,
    )
    asked = options(
        sampling,
        model,
        tenant,
        new_seed,
        tokens_max=tokens_max,
        grammar=plan.grammar,
        grammar_field=plan.blamed,
        reply=plan.form,
        protocol=OLLAMA,
        path="options.",
    )
    stop = (found.stop,) if isinstance(found.stop, str) else tuple(found.stop or ())
    return msgspec.structs.replace(asked, stop=tuple(each for each in stop if each))
