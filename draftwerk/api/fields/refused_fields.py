"""Fields that are known and not served: a request that asks anything of one is refused by name.

Those of other servers that only tune one of them (`mirostat_tau`, `dry_base`) say nothing alone and
are ignored.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from draftwerk.speculative.sampling.fields import SamplingFields
from draftwerk.speculative.sampling.params import Sampling

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
NEUTRAL: dict[str, Values] = {
    name: ONE if getattr(Sampling(), name) else ZERO
    for name in SamplingFields.__struct_fields__
    if name != "temperature"
}
"""Values of sampling fields that leave the distribution as it is."""


def refuses(
    harmless: Mapping[str, Values] | None = None, /, **instead: str
) -> Callable[[type[Body]], type[Body]]:
    """Return a decorator that adds refused fields to a body.

    Each is named with what to use in its place, empty where there is nothing. The `harmless` values
    change nothing, beside null, false and what is empty. Its subclasses inherit all of it.
    """

    def decorated(body: type[Body]) -> type[Body]:
        found = {name: (RefusedField, NOTHING) for name in instead}
        used = {name: words for name, words in instead.items() if words}
        return extended(
            body,
            found,
            harmless={**getattr(body, "harmless", {}), **(harmless or {})},
            instead={**getattr(body, "instead", {}), **used},
        )

    return decorated


def obeys(*names: str) -> Callable[[type[Body]], type[Body]]:
    """Return a decorator that adds these sampling fields to a body and refuses the others."""
    others = {name: CHAT for name in NEUTRAL if name not in names}

    def decorated(body: type[Body]) -> type[Body]:
        found = {each.name: (each.type, None) for each in fields(SamplingFields)}
        taken = extended(body, {name: found[name] for name in names})
        return refuses({name: NEUTRAL[name] for name in others}, **others)(taken)

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


@cache
def instead_in(body: type[Struct]) -> dict[str, str]:
    """Return what to use in place of a body's refused fields: chat, where it lacks the other."""
    taken = {each.encode_name for each in fields(body) if each.type is not RefusedField}
    instead: dict[str, str] = getattr(body, "instead", {})
    found = {name: FIELD.match(words) for name, words in instead.items()}
    lacking = {name for name, named in found.items() if named and named[1] not in taken}
    return {name: CHAT if name in lacking else words for name, words in instead.items()}


OTHERS: dict[str, str] = {
    **dict.fromkeys(
        ("mirostat", "mirostat_mode", "tfs_z", "tfs", "typical_p", "top_a", "top_n_sigma"),
        "`min_p` or `top_p`",
    ),
    **dict.fromkeys(("return_token_ids", "return_tokens"), "/tokenize"),
    "random_seed": "`seed`",
    "do_sample": "`temperature` 0",
    "num_beams": "`beam_width`",
    "min_new_tokens": "`min_tokens`",
    "max_new_tokens": "`max_tokens`",
    "ebnf": "`grammar`",
    "reasoning_budget": "`thinking_budget`",
    "thinking_token_budget": "`thinking_budget`",
    **dict.fromkeys(
        (
            *("dry_multiplier", "xtc_probability", "dynatemp_range", "dynamic_temperature"),
            *("smoothing_factor", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size"),
            *("encoder_repetition_penalty", "penalty_alpha", "guidance_scale", "negative_prompt"),
            *("samplers", "sampler_priority", "sampling_params", "n_indent", "t_max_predict_ms"),
            *("structural_tag", "guided_whitespace_pattern", "custom_logit_processor"),
            *("lora", "lora_path", "lora_request", "adapter_id", "return_tokens_as_token_ids"),
            "safe_prompt",
        ),
        "",
    ),
}
"""Of llama.cpp, vLLM, SGLang, TGI, Ollama, OpenRouter and others: what would change a text and is
not obeyed here, and what to use in its place."""
OTHERS_HARMLESS: dict[str, Values] = {
    **dict.fromkeys(
        (
            *("mirostat", "mirostat_mode", "dry_multiplier", "xtc_probability", "top_a"),
            *("dynatemp_range", "smoothing_factor", "epsilon_cutoff", "eta_cutoff"),
            *("no_repeat_ngram_size", "penalty_alpha", "min_new_tokens", "n_indent"),
        ),
        ZERO,
    ),
    **dict.fromkeys(
        ("tfs_z", "tfs", "typical_p", "encoder_repetition_penalty", "guidance_scale", "num_beams"),
        ONE,
    ),
    "top_n_sigma": (*ZERO, b"-1", b"-1.0"),
    "t_max_predict_ms": (*ZERO, b"-1"),
    "reasoning_budget": (b"-1",),
    "do_sample": (b"true",),
    "negative_prompt": (b'""',),
}
"""Values of them that change nothing, beside null, false and what is empty."""
