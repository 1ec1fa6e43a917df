"""What a reply must be, from what a request says of tools, reasoning and text."""

import msgspec
from msgspec import Struct

from draftwerk.actors.client_prompts import Scalar
from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.replying.reasoning_request import ReasoningRequest, reasoning_plan
from draftwerk.api.replying.tool_request import ToolRequest
from draftwerk.speculative.replies.argument_schemas import BadSchema, parameters_of
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.replies.grammar import (
    ReplyRules,
    ToolFunction,
    raw_strings,
    reply_grammar,
)
from draftwerk.speculative.sampling.params import Grammar

SCHEMAS_MAX = 256 * 2**10
"""Bytes of all schemas of one request's tools."""


class ReplyPlan(Struct, frozen=True):
    """What a reply must be, and what the prompt tells of it."""

    grammar: Grammar | None = None
    form: ReplyFormat | None = None
    tools: tuple[str, ...] = ()
    variables: tuple[tuple[str, Scalar], ...] = ()
    blamed: str = ""
    """The request's field that the grammar comes from."""


def plan_reply(
    wish: ToolRequest,
    reasoning: ReasoningRequest,
    text: Grammar | None,
    text_field: str,
    model: ServedModel,
) -> ReplyPlan:
    """Return the plan of a reply. Raises ApiError for what this model cannot do."""
    _check_tools(wish, model)
    variables, reasons, budget = reasoning_plan(reasoning, model)
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
