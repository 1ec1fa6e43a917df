"""What a model's makers recommend for sampling, for requests that do not say it themselves."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

TopK = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
RepetitionPenalty = Annotated[float, Meta(gt=0, le=10)]


class SamplingDefaults(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a distribution that a model may recommend; None where it says nothing."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """0 takes the most likely token; if not given the model's own or 1, 0 in a beam search."""
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Share of the mass that the most likely tokens make up which are kept."""
    top_k: TopK | None = None
    """How many of the most likely tokens are kept; 0 and -1 keep all."""
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Share of the most likely token's probability below which a token is not kept."""
    repetition_penalty: RepetitionPenalty | None = None
    """Divides the logits of tokens that prompt and output have, where they are positive."""

    def over(self, others: "SamplingDefaults") -> "SamplingDefaults":
        """Return these values, and the others' where these are None."""
        return msgspec.structs.replace(others, **self.given())

    def given(self) -> dict[str, float]:
        """Return the values of a distribution that are not None, by name."""
        values = {name: getattr(self, name) for name in SamplingDefaults.__struct_fields__}
        return {name: value for name, value in values.items() if value is not None}
