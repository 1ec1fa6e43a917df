"""Bounds and kinds of fields that several bodies share."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from draftwerk.speculative.parameters.bounds import BIAS_MAX as BIAS_MAX
from draftwerk.speculative.parameters.bounds import STOP_LENGTH_MAX as STOP_LENGTH_MAX
from draftwerk.speculative.parameters.bounds import STOP_TOKENS_MAX as STOP_TOKENS_MAX
from draftwerk.speculative.parameters.bounds import TOKENS_MAX, BiasValue, StopString, TokenId
from draftwerk.speculative.parameters.bounds import TokenIds as TokenIds
from draftwerk.speculative.requests.slo import TIME_MAX_S

BAD_WORDS_MAX = 64
CHOICE_WORDS_MAX = 1024
GRAMMAR_MAX = 64 * 2**10
"""Characters of a schema, regular expression or grammar."""
MESSAGES_MAX = 4096
PROMPTS_MAX = 256
RAW_HARMLESS_MAX = 64
SAYS_NOTHING = (b"", b"null", b"[]", b"{}", b"false")
TEXT_MAX = 2**25
"""Characters; `--body-max` bounds a text before this does, unless it was raised to more."""

BadWord = Annotated[str, Meta(min_length=1, max_length=64)]
BodyText = Annotated[str, Meta(max_length=TEXT_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Label = Annotated[str, Meta(max_length=1024)]
Salt = Annotated[str, Meta(max_length=256)]
TokenCount = Annotated[int, Meta(ge=1, le=TOKENS_MAX)]
TokenBound = Annotated[int, Meta(ge=-1, le=TOKENS_MAX)]
"""-1 is no bound but the context's."""
Stop = StopString | Annotated[list[StopString], Meta(max_length=4)]
Bias = Annotated[dict[TokenId, BiasValue], Meta(max_length=BIAS_MAX)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ThinkingType = Literal["enabled", "disabled", "adaptive"]
Verbosity = Literal["low", "medium", "high"]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
Include = Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=8)]
Time = (
    Annotated[str, Meta(min_length=1, max_length=32)] | Annotated[float, Meta(gt=0, le=TIME_MAX_S)]
)
"""Such as `500ms` or `2s`; a bare number is of seconds."""


class SloBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The promise to the request's reader, in place of the server's `--slo`."""

    ttft: Time | None = None
    """From the request's arrival to its first token."""
    tpot: Time | None = None
    """Between two tokens of a text, on average."""


class SpeculationBody(Struct, frozen=True):
    """How to draft for this request; the text does not depend on it."""

    enabled: bool | None = None
    methods: Annotated[list[Name], Meta(max_length=16)] | None = None
    draft_max: Annotated[int, Meta(ge=0, le=64)] | None = None
