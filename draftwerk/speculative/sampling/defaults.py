"""What a model's makers recommend for sampling, for requests that do not say it themselves."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct


class SamplingDefaults(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a distribution that a model may recommend; None where it says nothing."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None

    def over(self, others: "SamplingDefaults") -> "SamplingDefaults":
        """Return these values, and the others' where these are None."""
        return msgspec.structs.replace(others, **self.given())

    def given(self) -> dict[str, float]:
        """Return the values that are not None, by name."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value is not None}
