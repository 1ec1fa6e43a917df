"""Tools and reasoning of a request: what the prompt tells of them, and what the reply must be."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from draftwerk.actors.messages import Scalar, ToolCall
from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.replying.field_types import Effort
from draftwerk.api.replying.tools_schema import (
    CalledFunction,
    ChatTool,
    ChatToolChoice,
    FlatTool,
    FlatToolChoice,
    FunctionDefinition,
    Mode,
)
from draftwerk.speculative.replies.argument_schemas import BadSchema, parameters_of
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.replies.grammar import (
    CallMode,
    ReplyRules,
    ToolFunction,
    raw_strings,
    reply_grammar,
)
from draftwerk.speculative.sampling.params import Grammar

SCHEMAS_MAX = 256 * 2**10
"""Bytes of all schemas of one request's tools."""
EFFORT_TOKENS: dict[Effort, int | None] = {
    "minimal": 128, "low": 512, "medium": 2048, "high": 8192, "xhigh": None, "max": None,
}  # fmt: skip
"""Tokens of reasoning for each effort; None for no bound."""


class ToolRequest(Struct, frozen=True):
    """What a request says of tools, in either protocol's words."""

    functions: tuple[FunctionDefinition, ...] = ()
    shown: tuple[str, ...] = ()
    """For the prompt: the tools in JSON, as chat has them."""
    mode: CallMode = "auto"
    allowed: frozenset[str] | None = None
    """Names of the functions that may be called; None for all."""
    parallel: bool = True
    path: str = "tools"


class ReasoningRequest(Struct, frozen=True):
    """What a request says of reasoning."""

    effort: Effort | None = None
    enabled: bool | None = None
    budget: int | None = None
    """Tokens."""
    variables: tuple[tuple[str, Scalar], ...] = ()
    """Of the chat template, as the request has them."""
    effort_field: str = "reasoning_effort"
    budget_field: str = "thinking_budget"


def reasoning_of(variables: Mapping[str, Scalar] | None) -> ReasoningRequest:
    """Return what variables of the chat template alone say."""
    return ReasoningRequest(variables=tuple(sorted((variables or {}).items())))


class ReplyPlan(Struct, frozen=True):
    """What a reply must be, and what the prompt tells of it."""

    grammar: Grammar | None = None
    form: ReplyFormat | None = None
    tools: tuple[str, ...] = ()
    variables: tuple[tuple[str, Scalar], ...] = ()
    blamed: str = ""
    """The request's field that the grammar comes from."""


def chat_wish(
    tools: Sequence[ChatTool] | None,
    choice: Mode | ChatToolChoice | None,
    parallel: bool | None,
) -> ToolRequest:
    """Return chat's tools and choice."""
    definitions = tuple(each.function for each in tools or ())
    mode, allowed, single = _chat_choice(choice)
    return tool_wish(definitions, mode, allowed, parallel is not False and not single)


def _chat_choice(
    choice: Mode | ChatToolChoice | None,
) -> tuple[CallMode, frozenset[str] | None, bool]:
    if choice is None or isinstance(choice, str):
        return choice or "auto", None, False
    if choice.type == "function":
        if choice.function is None:
            raise refused("`tool_choice.function` is required.", "tool_choice", "missing")
        return "required", frozenset((choice.function.name,)), True
    some = choice.allowed_tools
    if some is None:
        raise refused("`tool_choice.allowed_tools` is required.", "tool_choice", "missing")
    return some.mode, frozenset(each.function.name for each in some.tools), False


def flat_wish(
    tools: Sequence[FlatTool] | None,
    choice: Mode | FlatToolChoice | None,
    parallel: bool | None,
) -> ToolRequest:
    """Return Responses' tools and choice."""
    mode, allowed, single = _flat_choice(choice)
    return tool_wish(tuple(tools or ()), mode, allowed, parallel is not False and not single)


def _flat_choice(
    choice: Mode | FlatToolChoice | None,
) -> tuple[CallMode, frozenset[str] | None, bool]:
    if choice is None or isinstance(choice, str):
        return choice or "auto", None, False
    if choice.type == "function":
        if choice.name is None:
            raise refused("`tool_choice.name` is required.", "tool_choice", "missing")
        return "required", frozenset((choice.name,)), True
    if choice.tools is None:
        raise refused("`tool_choice.tools` is required.", "tool_choice", "missing")
    return choice.mode or "auto", frozenset(each.name for each in choice.tools), False


def tool_wish(
    definitions: tuple[FunctionDefinition, ...],
    mode: CallMode,
    allowed: frozenset[str] | None,
    parallel: bool,
) -> ToolRequest:
    """Return tools and choice; refuses those that contradict each other."""
    names = [each.name for each in definitions]
    if len(set(names)) < len(names):
        raise refused("`tools` names a function twice.", "tools", "invalid")
    if allowed is not None and (unknown := sorted(allowed - set(names))):
        said = f"`tool_choice` names {unknown[0]!r}, which is not among `tools`."
        raise refused(said, "tool_choice", "invalid")
    if mode == "required" and not definitions:
        raise refused("`tool_choice` needs `tools`.", "tool_choice", "invalid")
    shown = tuple(_shown(each) for each in definitions)
    return ToolRequest(definitions, shown, mode, allowed, parallel)


def _shown(definition: FunctionDefinition) -> str:
    """Return a tool as chat templates take it; without what the client left out."""
    function: dict[str, Any] = {"name": definition.name}
    if definition.description is not None:
        function["description"] = definition.description
    if definition.schema != b"null":
        function["parameters"] = definition.parameters
    return msgspec.json.encode({"type": "function", "function": function}).decode()


def plan_reply(
    wish: ToolRequest,
    reasoning: ReasoningRequest,
    text: Grammar | None,
    text_field: str,
    model: ServedModel,
) -> ReplyPlan:
    """Return the plan of a reply. Raises ApiError for what this model cannot do."""
    _check_tools(wish, model)
    variables, reasons, budget = _reasoning(reasoning, model)
    form = model.reasoning
    reply = ReplyFormat(
        calls=model.calls if wish.functions else None,
        reasoning=form,
        reasoning_open=form is not None and reasons and form.opens,
    )
    if reply.calls is None and form is None:
        return ReplyPlan(text, None, (), variables, text_field)
    functions = _functions(wish)
    if reply.calls is not None:
        raw = raw_strings(reply.calls, functions)
        reply = msgspec.structs.replace(reply, raw_strings=raw)
    if reply.calls is None and text is None and budget is None:
        return ReplyPlan(None, reply, (), variables)
    # What the grammar allows: no reasoning where it was turned off.
    allowed = reply if reasons else msgspec.structs.replace(reply, reasoning=None)
    rules = ReplyRules(
        allowed,
        wish.mode if functions else "none",
        functions,
        wish.parallel,
        text,
        budget if reasons else None,
    )
    try:
        grammar = reply_grammar(rules)
    except BadSchema as error:
        raise _bad_schema(wish, str(error)) from None
    return ReplyPlan(
        grammar, reply, wish.shown, variables, wish.path if wish.functions else text_field
    )


def _check_tools(wish: ToolRequest, model: ServedModel) -> None:
    if wish.functions and model.calls is None:
        said = (
            "`tools` is not supported by this server for this model, whose chat template has no "
            "calls of a known form; use --tool-format hermes to describe tools in words."
        )
        raise refused(said, wish.path, "unsupported")


def _functions(wish: ToolRequest) -> tuple[ToolFunction, ...]:
    """Return the functions that may be called, their schemas read."""
    size = sum(len(each.schema) for each in wish.functions)
    if size > SCHEMAS_MAX:
        said = f"The schemas in `{wish.path}` are longer than {SCHEMAS_MAX} bytes together."
        raise refused(said, wish.path, "invalid")
    found: list[ToolFunction] = []
    for index, each in enumerate(wish.functions):
        try:
            parameters = parameters_of(msgspec.json.decode(each.schema))
        except BadSchema as error:
            path = f"{wish.path}[{index}].parameters"
            raise refused(f"`{path}` {error}.", path, "invalid") from None
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            path = f"{wish.path}[{index}].parameters"
            raise refused(f"`{path}` cannot be read.", path, "invalid") from None
        if wish.allowed is None or each.name in wish.allowed:
            found.append(ToolFunction(each.name, parameters))
    return tuple(found)


def _bad_schema(wish: ToolRequest, words: str) -> ApiError:
    return refused(f"A schema in `{wish.path}` {words}.", wish.path, "unsupported")


# --- reasoning ------------------------------------------------------------------------------------


def _reasoning(
    wish: ReasoningRequest, model: ServedModel
) -> tuple[tuple[tuple[str, Scalar], ...], bool, int | None]:
    """Return the template's variables, whether the model reasons, and its budget in tokens."""
    _check_variables(wish, model)
    form = model.reasoning
    if form is None:
        if model.reasons and wish.effort is not None:
            said = f"`{wish.effort_field}` cannot be set for this model; say it in the prompt."
            raise refused(said, wish.effort_field, "unsupported")
        if wish.budget is not None:
            raise refused(
                f"`{wish.budget_field}` needs a model that reasons first.",
                wish.budget_field,
                "unsupported",
            )
        return wish.variables, False, None
    values = dict(wish.variables)
    enabled = wish.enabled if wish.enabled is not None else None
    if wish.effort is not None:
        enabled = wish.effort != "none"
    if (enabled is not None and enabled != form.default_on) or (enabled and form.variable):
        if not form.variable:
            raise refused(
                f"`{wish.effort_field}`: this model always reasons.",
                wish.effort_field,
                "unsupported",
            )
        values.setdefault(form.variable, bool(enabled))
    reasons = bool(values.get(form.variable, form.default_on)) if form.variable else True
    budget = wish.budget
    if wish.effort not in (None, "none") and reasons:
        if form.effort:
            values.setdefault("reasoning_effort", wish.effort)
        elif budget is None:
            budget = EFFORT_TOKENS[wish.effort]
    if budget is not None and not form.is_bounded:
        field = wish.budget_field if wish.budget is not None else wish.effort_field
        said = f"`{field}`: the end of this model's reasoning is no token of its own."
        raise refused(said, field, "unsupported")
    return tuple(sorted(values.items())), reasons, budget


def _check_variables(wish: ReasoningRequest, model: ServedModel) -> None:
    for name, _ in wish.variables:
        if name not in model.variables:
            known = ", ".join(model.variables) or "none"
            said = f"`chat_template_kwargs` may hold what this model's template asks for: {known}."
            raise refused(said, "chat_template_kwargs", "unsupported")


# --- earlier calls --------------------------------------------------------------------------------


def tool_call(call_id: str, function: CalledFunction, path: str) -> ToolCall:
    """Return a call of an earlier answer; its arguments must be what a call's are."""
    try:
        found = msgspec.json.decode(function.arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        said = f"`{path}.arguments` must be one object in JSON."
        raise refused(said, f"{path}.arguments", "invalid") from None
    del found
    return ToolCall(call_id, function.name, function.arguments or "{}")


def call_id_of(reply_id: str, choice: int, index: int) -> str:
    """Return the id of a generated call: letters and digits in its last nine places."""
    digest = sha256(f"{reply_id} {choice} {index}".encode()).hexdigest()
    return "call_" + digest[:24]
