"""Bodies of Ollama's API to a conversation, a plan of the reply and the engine's options."""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import fields, replace

from draftwerk.api.ollama.schema import (
    GenerateBody,
    KeepAlive,
    OllamaBody,
    OllamaCall,
    OllamaChatBody,
    OllamaMessage,
    OllamaOptions,
    SentOptions,
)
from draftwerk.api.requests.decode import check_served
from draftwerk.api.requests.decoding import sampling_of, speculation_of
from draftwerk.api.requests.field_rows import rows_of
from draftwerk.api.requests.given_turns import check_message
from draftwerk.api.requests.grammars import ANY_OBJECT, TextForm, schema_grammar
from draftwerk.api.requests.reasoning_request import Reasoning, ReasoningRequest, reasoning_of
from draftwerk.api.requests.reply_plan import ReplyPlan, plan_reply
from draftwerk.api.requests.segments import blend_of, with_documents
from draftwerk.api.requests.tool_request import ToolRequest, nested_fields, tool_request
from draftwerk.api.responses.answers import call_id_of
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.handling import RequestContext
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.settings.durations import read_duration
from draftwerk.settings.engine_checks import LATEST
from draftwerk.speculative.parameters.defaults import SamplingDefaults
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage, Prompt, ToolCall

NAMES = {"max_tokens": "options.num_predict"}
OLLAMA = SamplingDefaults(temperature=0.8, top_k=40, top_p=0.9)
"""Ollama's defaults, for what the model does not say. Its `repeat_penalty` of 1.1 over 64 tokens
has none here that is the same."""
ANY_SEED = -1
SENT = msgspec.json.Decoder(SentOptions)
NAMES_SHOWN_MAX, NAME_SHOWN_MAX = 16, 64


def known_name(name: str | None, states: Iterable[ServerState]) -> str:
    """Return the name of the model that is meant; the tag "latest" is as good as none."""
    if name is None:
        raise refused("`model` is required.", "model", "missing")
    names = [each for state in states for each in state.model.names]
    if name in names:
        return name
    bare = name.removesuffix(f":{LATEST}")
    return next((each for each in names if each.removesuffix(f":{LATEST}") == bare), name)


def keep_alive_s(given: KeepAlive | None) -> float | None:
    """Return for how long a model is to stay loaded; None where it is not said."""
    try:
        return None if given is None else read_duration(given)
    except ValueError as error:
        raise refused(f"`keep_alive` must be {error}.", "keep_alive", "invalid") from None


def chat_plan(body: OllamaChatBody, model: ServedModel) -> ReplyPlan:
    """Return what the reply of a chat must be."""
    functions = [each.function for each in body.tools or ()]
    tools = tool_request(functions, nested_fields(functions), "auto", None, True, model)
    return plan_reply(tools, _reasoning(body, model), format_of(body.format), model)


def generate_plan(body: GenerateBody, model: ServedModel) -> ReplyPlan:
    """Return what a generated text must be; a raw one is not told apart into parts."""
    form = format_of(body.format)
    bare = "suffix" if body.suffix else "raw"
    if not getattr(body, bare):
        return plan_reply(ToolRequest(), _reasoning(body, model), form, model)
    for name in ("think", "system", "documents", "blend"):
        if getattr(body, name):
            raise refused(f"`{name}` cannot go with `{bare}`.", name, "invalid")
    return ReplyPlan(form.grammar, blamed=form.field)


def _reasoning(body: OllamaBody, model: ServedModel) -> Reasoning:
    think = body.think
    if think and model.reasoning is None:
        sentence = (
            "`think` is not supported by this server for this model, which does not reason first."
        )
        raise refused(sentence, "think", "unsupported")
    effort = think if isinstance(think, str) else None
    enabled = think if isinstance(think, bool) else None
    request = ReasoningRequest(effort, enabled, effort_field="think", budget_field="think")
    return reasoning_of(request, model)


def format_of(form: msgspec.Raw | UnsetType) -> TextForm:
    """Return what the text must be: anything, or of `"json"` or a schema."""
    raw = b"" if form is UNSET else bytes(form)
    if raw in (b"", b"null", b'""'):
        return TextForm(None, "format")
    if raw == b'"json"':
        return TextForm(ANY_OBJECT, "format")
    if not raw.startswith(b"{"):
        raise refused('`format` must be "json" or a schema, an object.', "format", "invalid")
    return TextForm(schema_grammar(msgspec.Raw(raw), "format"), "format")


def chat_conversation(body: OllamaChatBody, plan: ReplyPlan, model: ServedModel) -> Chat:
    """Return the conversation; calls and their results, which have no ids in it, are joined.

    A result of no call stands as it is, as with Ollama.
    """
    turns: list[ChatMessage] = []
    waiting: list[ToolCall] = []
    for index, message in enumerate(body.messages):
        turn = _turn(message, index, waiting)
        waiting += turn.calls
        waiting = [each for each in waiting if turn.role != "tool" or each.id != turn.call_id]
        turns.append(turn)
    chat = Chat(tuple(turns), plan.tools, plan.variables)
    return with_documents(chat, body.documents, bool(body.blend), model)


def _turn(message: OllamaMessage, index: int, waiting: list[ToolCall]) -> ChatMessage:
    """Return one turn; `waiting` are the calls before it that have no result yet."""
    path = f"messages[{index}]"
    check_message(message, path)
    for name in ("tool_calls", "thinking", "token_ids"):
        if getattr(message, name) and message.role != "assistant":
            raise refused(f"`{path}.{name}` is an assistant's.", f"{path}.{name}", "invalid")
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
        tokens=message.token_ids or (),
        calls=calls,
        call_id=answered,
        reasoning=message.thinking or "",
    )


def _call(call: OllamaCall, index: int, at: int) -> ToolCall:
    """Return an earlier call; without an id it gets one that is the same in every request."""
    function = call.function
    arguments = msgspec.json.encode(function.arguments).decode()
    return ToolCall(call.id or call_id_of("messages", index, at), function.name, arguments)


def generate_prompt(body: GenerateBody, plan: ReplyPlan, model: ServedModel) -> Prompt:
    """Return the prompt as the one turn of a conversation, or as it stands."""
    if body.raw:
        return body.prompt or ""
    turns = [ChatMessage("system", body.system)] if body.system else []
    turns.append(ChatMessage("user", body.prompt or ""))
    chat = Chat(tuple(turns), variables=plan.variables)
    return with_documents(chat, body.documents, bool(body.blend), model)


def unknown_options(raw: bytes) -> list[str]:
    """Return the names of a body's options that are not known, which change nothing."""
    named = set(SENT.decode(raw).options or ())
    known = {each.encode_name for each in fields(OllamaOptions)} | rows_of(OllamaOptions).keys()
    return sorted(each[:NAME_SHOWN_MAX] for each in named - known)[:NAMES_SHOWN_MAX]


def checked_options(body: OllamaBody, model: ServedModel) -> OllamaOptions:
    """Return the options of a body; refuses those that are known and not served."""
    found = body.options or OllamaOptions()
    check_served(found, "options.")
    return found


def engine_options(
    body: OllamaBody,
    settings: OllamaOptions,
    context: RequestContext,
    plan: ReplyPlan,
    tokens_max: int | None,
) -> Options:
    """Return the engine's options."""
    if settings.seed == ANY_SEED:
        settings = replace(settings, seed=None)
    sampling = sampling_of(
        settings,
        context.model,
        context.new_seed,
        window=settings.repeat_last_n,
        protocol=OLLAMA,
        path="options.",
    )
    fills = isinstance(body, GenerateBody) and body.suffix and context.model.fim
    blend = blend_of(body.blend, body.documents, (), context.model)
    stop = (settings.stop,) if isinstance(settings.stop, str) else settings.stop or ()
    return Options(
        sampling=replace(sampling, grammar=plan.grammar),
        tokens_max=tokens_max,
        stop=tuple(each for each in stop if each),
        stop_token_ids=tuple(sorted(fills.ends)) if fills else (),
        reply=plan.form,
        speculation=speculation_of(body.speculation, context.model),
        blend=blend,
        adapter=context.model.adapter,
        cache_salt=body.cache_salt or "",
    )
