"""How a reply is decoded: how its tokens are drawn, and how they are drafted."""

from collections.abc import Callable

from msgspec.structs import replace

from draftwerk.api.requests.field_types import SpeculationBody
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.parameters.bounds import BIAS_BOUND
from draftwerk.speculative.parameters.defaults import SamplingDefaults
from draftwerk.speculative.parameters.fields import SamplingFields
from draftwerk.speculative.request import Speculation
from draftwerk.speculative.sampling import Sampling

NO_DEFAULTS = SamplingDefaults()
"""Defaults of a protocol that leaves the distribution as it is."""
SEARCH_DEFAULTS = SamplingDefaults(temperature=0.0)
"""Defaults of a beam search, which does not sample unless asked to; it has nothing of the model's.
"""
WHOLE_WINDOWS = (-1, 64)
"""Values of `repeat_last_n` that are taken for all of the text: that, and what clients send without
having been asked."""
TEMPERATURE_MIN = 1e-6
"""Below this, one unit in the last place of a float32 logit outweighs any noise: it is greedy."""


def sampling_of(
    request: SamplingFields,
    model: ServedModel,
    new_seed: Callable[[], int],
    *,
    is_search: bool = False,
    repeat_penalty: float | None = None,
    window: int | None = None,
    protocol: SamplingDefaults = NO_DEFAULTS,
    path: str = "",
) -> Sampling:
    """Return the distribution of a request, else the model's, else its protocol's, and the seed.

    `repeat_penalty` is another name of `repetition_penalty`, `window` is `repeat_last_n`; `path` is
    where the request has that. Raises ApiError for what is not served.
    """
    own = SEARCH_DEFAULTS if is_search else model.sampling
    found = replace(
        Sampling(),
        **request.over(own.over(protocol)).given() | _renamed(request, repeat_penalty),
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        logit_bias=tuple((token, -BIAS_BOUND) for token in model.suppressed),
        seed=(new_seed() if request.seed is None else request.seed) & (2**64 - 1),
    )
    temperature = found.temperature if found.temperature >= TEMPERATURE_MIN else 0.0
    found = replace(found, temperature=temperature, top_k=max(found.top_k, 0))
    return _windowed(found, window, path)


def _renamed(request: SamplingFields, repeat_penalty: float | None) -> dict[str, float]:
    """Return what llama.cpp's name for the repetition penalty says."""
    if repeat_penalty is None:
        return {}
    if request.repetition_penalty not in (None, repeat_penalty):
        sentence = "`repetition_penalty` and `repeat_penalty` differ."
        raise refused(sentence, "repeat_penalty", "invalid")
    return {"repetition_penalty": repeat_penalty}


def _windowed(sampling: Sampling, window: int | None, path: str) -> Sampling:
    """Return it without penalties for the window 0; refuses one that does not hold all the text."""
    bare = replace(sampling, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
    if sampling == bare or window == 0:
        return bare
    if window not in (None, *WHOLE_WINDOWS):
        field = path + "repeat_last_n"
        sentence = f"`{field}` is not supported by this server: penalties look at all of the text."
        raise refused(sentence, field, "unsupported")
    return sampling


def speculation_of(
    body: SpeculationBody | None, model: ServedModel, prediction: str = ""
) -> Speculation:
    """Return how to draft, also from the predicted text. Raises ApiError for an unknown method."""
    body = body or SpeculationBody()
    for name in body.methods or ():
        if name not in model.draft_sources:
            known = ", ".join(model.draft_sources) or "none"
            sentence = f"`speculation.methods` names {name[:80]!r}; this server has {known}."
            raise refused(sentence, "speculation.methods", "unsupported")
    return Speculation(
        enabled=body.enabled is not False,
        methods=None if body.methods is None else tuple(body.methods),
        draft_max=body.draft_max,
        prediction=prediction,
    )
