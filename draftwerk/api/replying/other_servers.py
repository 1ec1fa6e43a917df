"""Fields of other servers that would change a text and are not obeyed here, for every protocol.

Those that only tune one of them (`mirostat_tau`, `dry_base`) say nothing alone and are ignored.
"""

from msgspec import Struct

from draftwerk.api.replying.field_types import NOTHING, RefusedField

ZERO, ONE = (b"0", b"0.0"), (b"1", b"1.0")


class OtherServersFields(Struct, frozen=True, kw_only=True):
    """Of llama.cpp, vLLM, SGLang, TGI, Ollama, OpenRouter and others."""

    mirostat: RefusedField = NOTHING
    mirostat_mode: RefusedField = NOTHING
    dry_multiplier: RefusedField = NOTHING
    xtc_probability: RefusedField = NOTHING
    tfs_z: RefusedField = NOTHING
    tfs: RefusedField = NOTHING
    typical_p: RefusedField = NOTHING
    top_a: RefusedField = NOTHING
    top_n_sigma: RefusedField = NOTHING
    dynatemp_range: RefusedField = NOTHING
    dynamic_temperature: RefusedField = NOTHING
    smoothing_factor: RefusedField = NOTHING
    epsilon_cutoff: RefusedField = NOTHING
    eta_cutoff: RefusedField = NOTHING
    no_repeat_ngram_size: RefusedField = NOTHING
    encoder_repetition_penalty: RefusedField = NOTHING
    penalty_alpha: RefusedField = NOTHING
    guidance_scale: RefusedField = NOTHING
    negative_prompt: RefusedField = NOTHING
    samplers: RefusedField = NOTHING
    sampler_priority: RefusedField = NOTHING
    sampling_params: RefusedField = NOTHING
    random_seed: RefusedField = NOTHING
    do_sample: RefusedField = NOTHING
    num_beams: RefusedField = NOTHING
    min_new_tokens: RefusedField = NOTHING
    max_new_tokens: RefusedField = NOTHING
    n_indent: RefusedField = NOTHING
    t_max_predict_ms: RefusedField = NOTHING
    ebnf: RefusedField = NOTHING
    structural_tag: RefusedField = NOTHING
    guided_whitespace_pattern: RefusedField = NOTHING
    custom_logit_processor: RefusedField = NOTHING
    lora: RefusedField = NOTHING
    lora_path: RefusedField = NOTHING
    lora_request: RefusedField = NOTHING
    adapter_id: RefusedField = NOTHING
    return_token_ids: RefusedField = NOTHING
    return_tokens: RefusedField = NOTHING
    return_tokens_as_token_ids: RefusedField = NOTHING
    reasoning_budget: RefusedField = NOTHING
    thinking_token_budget: RefusedField = NOTHING
    safe_prompt: RefusedField = NOTHING


OTHERS_HARMLESS: dict[str, tuple[bytes, ...]] = {
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
OTHERS_INSTEAD: dict[str, str] = {
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
}
"""What to use in their place."""
