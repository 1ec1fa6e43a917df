"""The reasoning that a request asks for, and what that means for a model."""

from collections.abc import Mapping

from msgspec import Struct

from draftwerk.api.requests.field_types import Effort
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.requests.client_prompts import Scalar

EFFORT_TOKENS: dict[Effort, int | None] = {
    "minimal": 128, "low": 512, "medium": 2048, "high": 8192, "xhigh": None, "max": None,
}  # fmt: skip
"""Tokens of reasoning for each effort; None for no bound."""
SWITCHES = ("enable_thinking", "thinking")
"""Variables of templates that let a model reason first."""


class ReasoningRequest(Struct, frozen=True):
    """The reasoning that a request asks for."""

    effort: Effort | None = None
    enabled: bool | None = None
    """Without meaning where the model does not reason first."""
    budget: int | None = None
    """Tokens."""
    variables: Mapping[str, Scalar] | None = None
    """The chat template's variables, as the request has them."""
    effort_field: str = "reasoning_effort"
    budget_field: str = "thinking_budget"


class Reasoning(Struct, frozen=True):
    """How a reply's reasoning begins and ends."""

    variables: tuple[tuple[str, Scalar], ...] = ()
    """The chat template's variables."""
    reasons: bool = False
    budget: int | None = None
    """Tokens; None for no bound."""
    bound_by: str = ""
    """The request's field that the bound comes from."""


def reasoning_of(request: ReasoningRequest, model: ServedModel) -> Reasoning:
    """Return the reasoning of a reply. Raises ApiError for what this model cannot do."""
    values = _read_variables(request.variables or {}, model)
    form, effort, budget = model.reasoning, request.effort, request.budget
    if form is None:
        _check_absent(request, model)
        return Reasoning(tuple(sorted(values.items())))
    enabled = request.enabled if effort is None else effort != "none"
    if (enabled is not None and enabled != form.default_on) or (enabled and form.variable):
        if not form.variable:
            field = request.effort_field
            raise refused(f"`{field}`: this model always reasons.", field, "unsupported")
        values.setdefault(form.variable, bool(enabled))
    reasons = bool(values.get(form.variable, form.default_on)) if form.variable else True
    if effort not in (None, "none") and reasons:
        if form.effort:
            values.setdefault("reasoning_effort", effort)
        elif budget is None:
            budget = EFFORT_TOKENS[effort]
    field = request.budget_field if request.budget is not None else request.effort_field
    if budget is not None and not form.is_bounded:
        sentence = f"`{field}`: the end of this model's reasoning is no token of its own."
        raise refused(sentence, field, "unsupported")
    return Reasoning(tuple(sorted(values.items())), reasons, budget, field)


def _check_absent(request: ReasoningRequest, model: ServedModel) -> None:
    """Refuse what only a model that reasons first can obey."""
    if model.reasons and request.effort is not None:
        field = request.effort_field
        sentence = f"`{field}` cannot be set for this model; say it in the prompt."
        raise refused(sentence, field, "unsupported")
    if request.budget is not None:
        field = request.budget_field
        raise refused(f"`{field}` needs a model that reasons first.", field, "unsupported")


def _read_variables(given: Mapping[str, Scalar], model: ServedModel) -> dict[str, Scalar]:
    """Return those that the template reads; of the others, one that asks for nothing is dropped,
    and so is a switch of reasoning where the model has none."""
    for name, value in given.items():
        if name not in model.variables and value and not (name in SWITCHES and not model.reasons):
            known = ", ".join(model.variables) or "none"
            sentence = (
                f"`chat_template_kwargs` may hold what this model's template asks for: {known}."
            )
            raise refused(sentence, "chat_template_kwargs", "unsupported")
    return {name: value for name, value in given.items() if name in model.variables}
