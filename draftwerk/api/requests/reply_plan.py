"""The form that a reply must have, from what a request says of tools, reasoning and text."""

from msgspec import Struct
from msgspec.structs import replace

from draftwerk.api.requests.grammars import TextForm
from draftwerk.api.requests.reasoning_request import Reasoning
from draftwerk.api.requests.tool_request import ToolRequest
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.replies.argument_schemas import BadSchema, raw_strings
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.replies.grammar import ReplyRules, reply_grammar
from draftwerk.speculative.requests.client_prompts import Scalar
from draftwerk.speculative.sampling import Grammar


class ReplyPlan(Struct, frozen=True):
    """The form that a reply must have, and what the prompt tells of it."""

    grammar: Grammar | None = None
    form: ReplyFormat | None = None
    tools: tuple[str, ...] = ()
    variables: tuple[tuple[str, Scalar], ...] = ()
    blamed: str = ""
    """The request's field that the grammar comes from."""
    schemas: tuple[str, ...] = ()
    """The fields of the functions' schemas in it."""
    weakened: tuple[str, ...] = ()
    """Functions whose schemas are not obeyed in full."""

    def names(self, default: str) -> dict[str, str]:
        """Return what the request calls the grammar that the engine may blame, and its parts."""
        parts = {f"response_format[{index}]": each for index, each in enumerate(self.schemas)}
        return {"response_format": self.blamed or default, **parts}


def plan_reply(
    tools: ToolRequest, reasoning: Reasoning, text: TextForm, model: ServedModel
) -> ReplyPlan:
    """Return the plan of a reply. Raises ApiError for what this model cannot do."""
    calls = model.calls if tools.functions else None
    form = model.reasoning
    if calls is None and form is None:
        return ReplyPlan(text.grammar, None, (), reasoning.variables, text.field)
    reply = ReplyFormat(
        calls=calls,
        reasoning=form,
        reasoning_open=form is not None and reasoning.reasons and form.opens,
        answer=None if form is None else form.answer,
        raw_strings=() if calls is None else raw_strings(calls, tools.functions),
    )
    if calls is None and text.grammar is None and reasoning.budget is None:
        return ReplyPlan(None, reply, (), reasoning.variables)
    rules = ReplyRules(
        # What the grammar allows: no reasoning where it was turned off.
        reply if reasoning.reasons else replace(reply, reasoning=None),
        tools.mode if calls is not None else "none",
        tools.functions,
        tools.parallel,
        text.grammar,
        reasoning.budget if reasoning.reasons else None,
    )
    try:
        grammar = reply_grammar(rules)
    except BadSchema as error:
        field = tools.fields[error.function]
        raise refused(f"`{field}` {error}.", field, "unsupported") from None
    of_text = text.field if text.grammar is not None else reasoning.bound_by
    field, schemas = (of_text, ()) if calls is None else ("tools", tools.fields)
    shown, variables = tools.shown, reasoning.variables
    return ReplyPlan(grammar, reply, shown, variables, field, schemas, tools.weakened)
