"""Fields that requests for vectors and for ranked documents share, whatever their protocol."""

from typing import Annotated

from msgspec import Meta, Struct

from draftwerk.api.requests.deadlines import deadlines_of
from draftwerk.api.requests.field_rows import knows, no_effect
from draftwerk.api.requests.field_types import Label, Name, Salt, Time
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.pooling import PoolingParams
from draftwerk.speculative.sampling import Sampling

INPUTS_MAX = 2048
"""Texts in a request at most, as OpenAI has it."""
Dimensions = Annotated[int, Meta(ge=1, le=2**16)]


@knows(no_effect("user", why="nothing is done with it"))
class PoolingBody(Struct, frozen=True, kw_only=True):
    """The fields that embeddings and reranking share."""

    model: Name | None = None
    user: Label | None = None
    cache_salt: Salt | None = None
    """Ours."""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    """Ours."""
    deadline: Time | None = None
    """From its arrival until it fails unless it is answered; ours."""


def pooling_options(body: PoolingBody, pooling: PoolingParams, model: ServedModel) -> Options:
    """Return the engine's options for prompts that are read by a model as it is asked for."""
    return Options(
        sampling=Sampling(temperature=0.0),
        pooling=pooling,
        adapter=model.adapter,
        cache_salt=body.cache_salt or "",
        priority=body.priority or 0,
        deadline_s=deadlines_of(None, body.deadline).deadline_s,
    )


def check_dimensions(dimensions: int | None, model: ServedModel) -> None:
    """Refuse more numbers than a vector has."""
    width = model.vectors.width
    if dimensions is not None and width and dimensions > width:
        raise refused(f"`dimensions` must be at most {width}.", "dimensions", "invalid")


def prompted(inputs: list[Prompt], name: str | None, model: ServedModel) -> list[Prompt]:
    """Return texts behind one of the model's own prompts, if it has one or one is asked for."""
    prompts = model.vectors.prompts
    if name is not None and name not in prompts:
        known = ", ".join(f"`{each}`" for each in prompts) or "none"
        said = f"`prompt_name` {name[:80]!r} is none of the model's prompts; it has {known}."
        raise refused(said, "prompt_name", "invalid")
    before = prompts.get(name or model.vectors.prompt_name, "")
    if not before:
        return inputs
    if not all(isinstance(each, str) for each in inputs):
        if name is None:
            return inputs
        raise refused("`prompt_name` goes with texts, not token ids.", "prompt_name", "invalid")
    return [before + str(each) for each in inputs]
