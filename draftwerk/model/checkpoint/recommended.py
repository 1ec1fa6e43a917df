"""The sampling that a model comes with: of its `generation_config.json`, or of its model card."""

from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.hf_config import read_generation
from draftwerk.model.checkpoint.hub import DEFAULT_NAME
from draftwerk.model.checkpoint.supported import GENERATION_FILE
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.sampling.defaults import SamplingDefaults

CARDS = {DEFAULT_NAME: SamplingDefaults(temperature=0.2, top_p=0.9)}
"""Of model cards, for the built-in model, whose file has none."""


def recommended(directory: Path, built_in: str = "") -> tuple[SamplingDefaults, str]:
    """Return a model's own sampling, and where it is said; `built_in` names an embedded model.

    Raises Refused for values that no request could have.
    """
    found = read_generation(directory)
    names = SamplingDefaults.__struct_fields__
    said = {name: found[name] for name in names if found.get(name) is not None}
    if not said:
        card = CARDS.get(built_in)
        return (SamplingDefaults(), "") if card is None else (card, "its model card")
    try:
        return msgspec.convert(said, SamplingDefaults), GENERATION_FILE
    except msgspec.ValidationError as error:
        remedy = "--generation-config none leaves it aside"
        raise Refused(f"{directory / GENERATION_FILE}: {error}; {remedy}") from None
