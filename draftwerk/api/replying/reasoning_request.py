"""What a request says of reasoning, and what that means for a model."""

from collections.abc import Mapping

from msgspec import Struct

from draftwerk.actors.client_prompts import Scalar
from draftwerk.api.core.errors import refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.replying.field_types import Effort

EFFORT_TOKENS: dict[Effort, int | None] = {
    "minimal": 128, "low": 512, "medium": 2048, "high": 8192, "xhigh": None, "max": None,
}  # fmt: skip
"""Tokens of reasoning for each effort; None for no bound."""


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


def reasoning_plan(
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
