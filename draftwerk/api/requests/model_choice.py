"""Which model a request names, and which adapter: by its name, behind the
model's and a colon or alone, or in `lora`."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request

from draftwerk.api.shared.errors import ApiError, refused
from draftwerk.api.shared.handling import may_unload
from draftwerk.api.shared.models import HOLDS, models_of
from draftwerk.api.shared.ports import ServedAdapter, ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.settings.engine_checks import LATEST


async def loaded_state(
    request: Request, name: str | None, keep_alive_s: float | None = None
) -> ServerState:
    """Return the state of a model, which stays loaded until the reply has ended.

    Who may not unload it does not decide for how long it stays after that.
    Raises the 404 of a name that is not served, and the 503 of a model that has to wait.
    """
    models = models_of(request.app)
    state = named(models.states, name)
    kept_s = keep_alive_s if may_unload(request) else None
    request.scope.setdefault(HOLDS, []).append(await models.hold(state, kept_s))
    return state


@asynccontextmanager
async def held(app: Starlette, state: ServerState) -> AsyncGenerator[None, None]:
    """Have a model loaded while the block lasts. Raises the 503 of one that has to wait."""
    release = await models_of(app).hold(state)
    try:
        yield
    finally:
        release()


def named_state(request: Request, name: str | None) -> ServerState:
    """Return the state of a model, loaded or not: for what its tokenizer and its card can tell."""
    return named(models_of(request.app).states, name)


def named(states: Sequence[ServerState], name: str | None) -> ServerState:
    """Return the model of a name; no name means the first. Raises the 404."""
    if name is None:
        return states[0]
    own = [state for state in states if name in state.model.names]
    found = own or [state for state in states if name in state.model.adapter_names]
    if found:
        return found[0]
    names = ", ".join(f"`{state.model.name}`" for state in states)
    hint = "; --served-model-name gives it other names." if len(states) == 1 else "."
    said = f"The model `{name[:80]}` is not served here, only {names} (see /v1/models){hint}"
    raise ApiError(404, said, param="model", code="model_not_found")


def served_as(model: ServedModel, name: str | None, lora: str | None = None) -> ServedModel:
    """Return the model as a request has it; `name` is one of its own. Raises ApiError."""
    by_name, by_field = _by_name(model, name or ""), _by_field(model, lora)
    if by_name is not None and by_field not in (None, by_name):
        raise refused("`lora` and `model` name two adapters.", "lora", "invalid")
    found = by_name or by_field
    return model if found is None else model.with_adapter(found)


def _by_name(model: ServedModel, name: str) -> ServedAdapter | None:
    name = name.removesuffix(f":{LATEST}")
    bases = (model.name, *model.aliases)
    if name in bases:
        return None
    prefixes = ("", *(f"{base}:" for base in bases))
    found = (each for each in model.adapters for first in prefixes if name == first + each.name)
    return next(found, None)


def _by_field(model: ServedModel, lora: str | None) -> ServedAdapter | None:
    if lora is None:
        return None
    for each in model.adapters:
        if each.name == lora:
            return each
    names = ", ".join(each.name for each in model.adapters) or "none"
    said = f"`lora` is no adapter of this server, which has {names}."
    raise refused(said, "lora", "invalid")
