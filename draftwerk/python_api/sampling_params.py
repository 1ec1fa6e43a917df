"""How one request of the Python API is decoded: the fields of the HTTP API, under their names."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from draftwerk.api.openai.schema import OpenAIBody
from draftwerk.python_api.errors import RequestError
from draftwerk.speculative.parameters.fields import SamplingFields
from draftwerk.speculative.request import Speculation

GRAMMAR_FIELDS = ("json_schema", "json_object", "regex", "grammar")


class ParamsBody(OpenAIBody, frozen=True, kw_only=True):
    """The bounds of SamplingParams: the fields of `/v1/completions`, and the grammars flat."""

    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    json_schema: dict[str, Any] | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    json_object: bool | None = None


class SamplingParams(SamplingFields, frozen=True, kw_only=True):
    """How to decode one request; None stands for the default.

    Raises RequestError, with the field to blame, for a value that the engine would not obey.
    """

    logit_bias: Mapping[int, float] | None = None
    """Added to the logits, by token id."""
    max_tokens: int | None = None
    """Generated tokens; as many as the context holds if not given."""
    min_tokens: int | None = None
    stop: str | Sequence[str] | None = None
    ignore_eos: bool = False
    n: int | None = None
    """Texts for the prompt."""
    logprobs: int | None = None
    """Most likely tokens to report beside each token's log-probability; 0 reports that alone."""
    prompt_logprobs: int | None = None
    """The same of each prompt token."""
    json_schema: Mapping[str, Any] | None = None
    """The text is JSON of this schema."""
    json_object: bool = False
    """The text is a JSON object."""
    regex: str | None = None
    """The text matches this regular expression."""
    grammar: str | None = None
    """The text belongs to this grammar, in Lark's notation or GBNF."""
    beam_width: int | None = None
    """Above 1, the texts are the best `n` of a beam search."""
    length_penalty: float | None = None
    early_stopping: bool = False
    priority: int = 0
    """Lower is sooner."""
    slo: Mapping[str, str | float] | None = None
    """The promise to its reader: `ttft` and `tpot`, such as "500ms"; a number is of seconds."""
    deadline: str | float | None = None
    """From its arrival until it fails unless its text has begun."""
    lora: str | None = None
    """The name of an adapter that the LLM was made with."""
    cache_salt: str | None = None
    """Requests share cached prefixes with those of an equal salt only."""
    speculation: Literal["auto", "off"] | Speculation = "auto"
    """How to draft; with keyed verification, no text depends on it."""

    def __post_init__(self) -> None:
        self.checked()

    def checked(self) -> ParamsBody:
        """Return the checked fields; raises RequestError."""
        values = self._values()
        for name, value in values.items():
            if isinstance(value, float) and not isfinite(value):
                raise RequestError(f"`{name}` must be a finite number.", name)
        if self.max_tokens == 0:
            raise RequestError("`max_tokens` is at least 1, or -1 for no bound.", "max_tokens")
        given = [name for name in GRAMMAR_FIELDS if values.get(name) not in (None, False)]
        if len(given) > 1:
            raise RequestError(f"`{given[1]}` cannot go with `{given[0]}`.", given[1])
        try:
            return msgspec.convert(values, ParamsBody)
        except msgspec.ValidationError as error:
            from draftwerk.api.shared.errors import invalid

            found = invalid(str(error), ParamsBody)
            raise RequestError(found.message, found.param or "") from None

    def _values(self) -> dict[str, object]:
        """Return the fields as the HTTP API words them."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        given = values.pop("speculation")
        if isinstance(given, Speculation):
            values["speculation"] = {
                "enabled": given.enabled,
                "methods": given.methods,
                "draft_max": given.draft_max,
            }
            values["prediction"] = {"type": "content", "content": given.prediction}
        elif given in ("auto", "off"):
            values["speculation"] = {"enabled": given == "auto"}
        else:
            sentence = '`speculation` must be "auto", "off" or a Speculation.'
            raise RequestError(sentence, "speculation")
        return values
