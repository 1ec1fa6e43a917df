"""The sampling that a model comes with: of its `generation_config.json`, or of its model card."""

from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.hf_config import read_generation
from draftwerk.model.checkpoint.hub import DEFAULT_NAME
from draftwerk.model.checkpoint.keys.generation_keys import GENERATION
from draftwerk.model.checkpoint.supported import GENERATION_FILE
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.parameters.defaults import SamplingDefaults

REMEDY = "--generation-config none leaves it aside"
SUPPRESSED_MAX = 512
CARDS = {DEFAULT_NAME: SamplingDefaults(temperature=0.2, top_p=0.9)}
"""The sampling of model cards, for the built-in model, whose file has none."""


def recommended(directory: Path, built_in: str = "") -> tuple[SamplingDefaults, str]:
    """Return a model's own sampling, and where it is said; `built_in` names the built-in model.

    Raises Refused for values that no request could have.
    """
    found = read_generation(directory)
    _check(directory, found)
    names = SamplingDefaults.__struct_fields__
    said = {name: found[name] for name in names if found.get(name) is not None}
    if found.get("do_sample") is False:
        said |= {"temperature": 0.0}
    if not said:
        card = CARDS.get(built_in)
        return (SamplingDefaults(), "") if card is None else (card, "its model card")
    try:
        return msgspec.convert(said, SamplingDefaults), GENERATION_FILE
    except msgspec.ValidationError as error:
        raise Refused(f"{directory / GENERATION_FILE}: {error}; {REMEDY}") from None


def suppressed(directory: Path, vocab_size: int) -> tuple[int, ...]:
    """Return the tokens that a model's `generation_config.json` bars from every text.

    Raises Refused for what are no tokens, and for barred sequences of several.
    """
    found = read_generation(directory)
    path = directory / GENERATION_FILE
    try:
        words = msgspec.convert(found.get("bad_words_ids") or [], list[list[int]])
        tokens = msgspec.convert(found.get("suppress_tokens") or [], list[int])
    except msgspec.ValidationError as error:
        raise Refused(f"{path}: bad_words_ids or suppress_tokens: {error}; {REMEDY}") from None
    if any(len(word) != 1 for word in words):
        raise Refused(f"{path}: bad_words_ids of several tokens are not supported; {REMEDY}")
    barred = sorted({*tokens, *(word[0] for word in words)})
    if barred and not 0 <= barred[0] <= barred[-1] < vocab_size:
        raise Refused(f"{path}: suppress_tokens {barred} are not all under {vocab_size}; {REMEDY}")
    if len(barred) > SUPPRESSED_MAX:
        raise Refused(f"{path}: more than {SUPPRESSED_MAX} suppress_tokens; {REMEDY}")
    return tuple(barred)


def _check(directory: Path, found: Json) -> None:
    try:
        GENERATION.check(found)
    except Refused as refused:
        raise Refused(f"{directory / GENERATION_FILE}: {refused}; {REMEDY}") from None
