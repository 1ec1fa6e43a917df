"""The sampling that a model's makers recommend, for requests that do not say it themselves."""

import msgspec
from msgspec import Struct

from draftwerk.speculative.parameters.bounds import (
    Probability,
    RepetitionPenalty,
    Temperature,
    TopK,
)


class SamplingDefaults(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a distribution that a model may recommend; None where it says nothing."""

    temperature: Temperature | None = None
    """0 takes the most likely token; if not given the model's own or 1, 0 in a beam search."""
    top_p: Probability | None = None
    """Share of the mass that the most likely tokens make up which are kept."""
    top_k: TopK | None = None
    """How many of the most likely tokens are kept; 0 and -1 keep all."""
    min_p: Probability | None = None
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
