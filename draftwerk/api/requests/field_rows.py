"""Rows: what becomes of each known field of a request, in one table a body.

A field of a Struct is obeyed. A field with a row beside it changes nothing, or is refused by name
once a request asks anything of it. What only describes has no effect; what would change the text,
or carries state, is obeyed or refused. Requests are checked, and `/v1/capabilities` and the
reference are made, from the same rows. `kinds` are rows of values of `type`, in a Struct of
several kinds of objects.

Fields of other servers that only tune a refused one (`mirostat_tau`, `dry_base`) say nothing alone
and are ignored.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import fields, replace

from draftwerk.settings.field_faults import ErrorDetails
from draftwerk.speculative.parameters.fields import SamplingFields
from draftwerk.speculative.sampling import Sampling

Body = TypeVar("Body", bound=Struct)
Values = tuple[bytes, ...]

CHAT = "/v1/chat/completions"
FIELD = re.compile(r"`(\w+)")
RefusedField = msgspec.Raw
UNSENT = msgspec.Raw()
"""The one value of every refused field that a body did not have; `is` distinguishes it from the
rest."""
NOTHING = msgspec.field(default_factory=lambda: UNSENT)
ZERO, ONE = (b"0", b"0.0"), (b"1", b"1.0")


class FieldRow(Struct, frozen=True):
    """What becomes of one field that is not obeyed, or not in every case."""

    words: str
    """Why it has no effect; or what to use in place of a refused one, empty for nothing."""
    is_refused: bool = False
    harmless: Values = ()
    """Values of a refused one that ask for nothing, beside null, false and what is empty."""
    details: ErrorDetails | UnsetType = UNSET
    """The details of a refusal, for clients that go by it."""


FieldRows = dict[str, FieldRow]


def no_effect(*names: str, why: str) -> FieldRows:
    """Return rows of fields that change nothing; what a Struct has of them is checked."""
    return dict.fromkeys(names, FieldRow(why))


def unsupported(
    *names: str, use: str = "", unless: Values = (), details: ErrorDetails | UnsetType = UNSET
) -> FieldRows:
    """Return rows of fields that are refused by name, unless they have one of some values."""
    return dict.fromkeys(names, FieldRow(use, is_refused=True, harmless=unless, details=details))


def knows(*tables: FieldRows) -> Callable[[type[Body]], type[Body]]:
    """Return a decorator that adds rows to a body; its subclasses inherit them."""
    added = {name: row for table in tables for name, row in table.items()}

    def decorated(body: type[Body]) -> type[Body]:
        refused: dict[str, tuple[object, object]] = {
            name: (RefusedField, NOTHING) for name, row in added.items() if row.is_refused
        }
        return extended(body, refused, rows={**_own_rows(body), **added})

    return decorated


def obeys(*names: str) -> Callable[[type[Body]], type[Body]]:
    """Return a decorator that adds these sampling fields to a body and refuses the others."""
    others = {name: row for name, row in NEUTRAL.items() if name not in names}

    def decorated(body: type[Body]) -> type[Body]:
        found: dict[str, tuple[object, object]] = {
            each.name: (each.type, None) for each in fields(SamplingFields) if each.name in names
        }
        return knows(others)(extended(body, found))

    return decorated


def extended(
    body: type[Body], found: Mapping[str, tuple[object, object]], **own: object
) -> type[Body]:
    """Return a body with more fields: their types and defaults by name; `own` is of the class."""
    space = {"__doc__": body.__doc__, "__qualname__": body.__qualname__, **own}
    listed = [(name, kind, default) for name, (kind, default) in found.items()]
    made = msgspec.defstruct(
        body.__name__,
        listed,
        bases=(body,),
        module=body.__module__,
        namespace=space,
        frozen=True,
        kw_only=True,
    )
    return cast("type[Body]", made)


def _own_rows(body: type[Struct]) -> FieldRows:
    return getattr(body, "rows", {})


@cache
def rows_of(body: type[Struct]) -> FieldRows:
    """Return a body's rows; to use chat, where it lacks the field named in place of another.

    Rows of refused fields that a subclass obeys are none of its own.
    """
    types = {each.encode_name: each.type for each in fields(body)}
    obeyed = {name for name, kind in types.items() if kind is not RefusedField}
    found: FieldRows = {}
    for name, row in _own_rows(body).items():
        named = FIELD.match(row.words) if row.is_refused else None
        if not row.is_refused or name not in obeyed:
            found[name] = replace(row, words=CHAT) if named and named[1] not in obeyed else row
    return found


NEUTRAL: FieldRows = {
    name: FieldRow(CHAT, is_refused=True, harmless=ONE if getattr(Sampling(), name) else ZERO)
    for name in SamplingFields.__struct_fields__
    if name != "temperature"
}
"""Sampling fields, and their values that leave the distribution as it is."""

OTHERS: FieldRows = {
    **unsupported("mirostat", "mirostat_mode", "top_a", use="`min_p` or `top_p`", unless=ZERO),
    **unsupported("tfs_z", "tfs", "typical_p", use="`min_p` or `top_p`", unless=ONE),
    **unsupported("top_n_sigma", use="`min_p` or `top_p`", unless=(*ZERO, b"-1", b"-1.0")),
    **unsupported("return_token_ids", "return_tokens", use="/tokenize"),
    **unsupported("logprob_token_ids", use=CHAT),
    **unsupported("random_seed", use="`seed`"),
    **unsupported("do_sample", use="`temperature` 0", unless=(b"true",)),
    **unsupported("num_beams", use="`beam_width`", unless=ONE),
    **unsupported("min_new_tokens", use="`min_tokens`", unless=ZERO),
    **unsupported("max_new_tokens", use="`max_tokens`"),
    **unsupported("ebnf", use="`grammar`"),
    **unsupported("reasoning_budget", use="`thinking_budget`", unless=(b"-1",)),
    **unsupported("thinking_token_budget", use="`thinking_budget`"),
    **unsupported(
        *("dry_multiplier", "xtc_probability", "dynatemp_range", "smoothing_factor", "n_indent"),
        *("epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "penalty_alpha"),
        unless=ZERO,
    ),
    **unsupported("encoder_repetition_penalty", "guidance_scale", unless=ONE),
    **unsupported("t_max_predict_ms", unless=(*ZERO, b"-1")),
    **unsupported("negative_prompt", unless=(b'""',)),
    **unsupported(
        *(
            "dynamic_temperature",
            "samplers",
            "sampler_priority",
            "sampling_params",
        ),
        *("structural_tag", "guided_whitespace_pattern", "custom_logit_processor"),
        *("lora", "lora_path", "lora_request", "adapter_id", "return_tokens_as_token_ids"),
        "safe_prompt",
    ),
}
"""Fields of llama.cpp, vLLM, SGLang, TGI, Ollama, OpenRouter and others that would change a text
and is not obeyed here."""
