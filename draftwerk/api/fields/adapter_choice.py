"""Which adapter a request names: behind the model's name and a colon, or in `lora`."""

from draftwerk.api.core.errors import refused
from draftwerk.api.core.ports import ServedAdapter, ServedModel
from draftwerk.settings.engine_checks import LATEST
from draftwerk.speculative.blend.rules import Blend


def served_as(model: ServedModel, name: str | None, lora: str | None = None) -> ServedModel:
    """Return the model as a request has it; `name` is one of its own. Raises ApiError."""
    by_name, by_field = _by_name(model, name or ""), _by_field(model, lora)
    if by_name is not None and by_field not in (None, by_name):
        raise refused("`lora` and `model` name two adapters.", "lora", "invalid")
    found = by_name or by_field
    return model if found is None else model.with_adapter(found)


def adapter_beside(
    blend: Blend | None, model: ServedModel, name: str | None, lora: str | None = None
) -> str:
    """Return the digest of the adapter that is named, empty for none. Raises ApiError."""
    found = served_as(model, name, lora).adapter
    if found and blend is not None:
        said = "`blend` cannot go with an adapter: segments are reused of the model alone."
        raise refused(said, "blend", "unsupported")
    return found


def _by_name(model: ServedModel, name: str) -> ServedAdapter | None:
    name = name.removesuffix(f":{LATEST}")
    bases = (model.name, *model.aliases)
    found = (each for each in model.adapters for base in bases if name == f"{base}:{each.name}")
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
