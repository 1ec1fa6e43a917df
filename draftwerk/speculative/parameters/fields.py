"""Requests' fields of sampling, under every protocol: names and bounds."""

from typing import Annotated

from msgspec import Meta

from draftwerk.speculative.parameters.bounds import Penalty
from draftwerk.speculative.parameters.defaults import SamplingDefaults

Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class SamplingFields(SamplingDefaults, frozen=True, kw_only=True, omit_defaults=False):
    """A request's sampling, which goes before the model's own; None where it says nothing."""

    presence_penalty: Penalty | None = None
    """Subtracted from the logits of tokens that the output has."""
    frequency_penalty: Penalty | None = None
    """Subtracted as often as the output has the token."""
    seed: Seed | None = None
    """The seed of the noise: one seed, one text; a random one if not given."""
