"""Models as Anthropic's clients list them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct
from starlette.requests import Request

from draftwerk.api.shared.errors import refused

VERSION = "anthropic-version"
"""The header that such a client sends."""
LIMIT, LIMIT_MAX = 20, 1000


class AnthropicModel(Struct, frozen=True, kw_only=True):
    """One model."""

    id: str
    type: str = "model"
    display_name: str
    created_at: str
    max_input_tokens: int
    max_tokens: int
    lifecycle: str = "active"
    capabilities: None = None
    line: None = None
    deprecated_at: None = None
    retires_at: None = None


class ModelPage(Struct, frozen=True, kw_only=True):
    """Some of the models, in their order."""

    data: tuple[AnthropicModel, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


def anthropic_model(name: str, created: int, context_max: int) -> AnthropicModel:
    """Return a model under one of its names."""
    return AnthropicModel(
        id=name,
        display_name=name,
        created_at=datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        max_input_tokens=context_max,
        max_tokens=context_max,
    )


def model_page(models: Sequence[AnthropicModel], request: Request) -> ModelPage:
    """Return the page that a request's `limit`, `after_id` and `before_id` name.

    Raises ApiError.
    """
    query = request.query_params
    limit = query.get("limit", str(LIMIT))
    if not limit.isdecimal() or not 1 <= int(limit) <= LIMIT_MAX:
        raise refused(f"`limit` must be from 1 to {LIMIT_MAX}.", "limit", "invalid")
    names = [each.id for each in models]
    start, end = 0, len(models)
    for name in ("after_id", "before_id"):
        if (named := query.get(name)) is None:
            continue
        if named not in names:
            raise refused(f"`{name}` names no model.", name, "invalid")
        at = names.index(named)
        start, end = (at + 1, end) if name == "after_id" else (start, at)
    chosen = tuple(models[start:end])
    is_backward = "before_id" in query and "after_id" not in query
    shown = chosen[-int(limit) :] if is_backward else chosen[: int(limit)]
    ids = [each.id for each in shown]
    return ModelPage(
        data=shown,
        first_id=ids[0] if ids else None,
        last_id=ids[-1] if ids else None,
        has_more=len(shown) < len(chosen),
    )
