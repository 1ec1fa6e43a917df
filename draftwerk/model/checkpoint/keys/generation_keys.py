"""The keys of a `generation_config.json`."""

from draftwerk.model.checkpoint.keys.known_keys import KnownKeys, because

_OF_GGUF = "general.sampling."
_OFF = (False, 0, [], {}, "")
GENERATION = KnownKeys(
    frozenset(
        {
            *("eos_token_id", "temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
            *("do_sample", "suppress_tokens", "bad_words_ids"),
        }
    ),
    because(
        "requests say how long a text may be",
        *("max_length", "max_new_tokens", "max_time"),
    )
    | because(
        "prompts say how a text begins",
        *("bos_token_id", "decoder_start_token_id", "pad_token_id"),
    )
    | because(
        "how another program computes or reports a text",
        *("use_cache", "cache_implementation", "cache_config", "return_legacy_cache"),
        *("return_dict_in_generate", "output_attentions", "output_hidden_states"),
        *("output_scores", "output_logits", "compile_config", "disable_compile", "low_memory"),
        *("continuous_batching_config", "remove_invalid_values", "renormalize_logits"),
        *("max_cache_len", "prefill_chunk_size"),
    )
    | because(
        "drafts change no text",
        *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule"),
        *("assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size"),
        *("assistant_early_exit", "assistant_lookbehind", "target_lookbehind"),
        *("assistant_ensemble_weight", "speculation_type", "use_mtp"),
    )
    | because("requests ask for beams", "length_penalty", "early_stopping", "num_return_sequences")
    | because(
        "where the file comes from",
        *("transformers_version", "_from_model_config", "generation_kwargs", "trust_remote_code"),
    )
    | because("the prompt is the chat template's", "chat_format", "max_window_size")
    | because(
        "it is of a way to sample that is off",
        *(f"{_OF_GGUF}{name}" for name in ("xtc_threshold", "mirostat_tau", "mirostat_eta")),
    ),
    {
        **dict.fromkeys(("num_beams", "num_beam_groups", "typical_p", "guidance_scale"), (1,)),
        **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), _OFF),
        **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "diversity_penalty"), _OFF),
        **dict.fromkeys(("min_length", "min_new_tokens", "penalty_alpha", "top_h"), _OFF),
        **dict.fromkeys(("forced_bos_token_id", "forced_eos_token_id", "sequence_bias"), _OFF),
        **dict.fromkeys(("begin_suppress_tokens", "forced_decoder_ids"), _OFF),
        **dict.fromkeys(("exponential_decay_length_penalty", "force_words_ids"), _OFF),
        **dict.fromkeys(("constraints", "watermarking_config", "dola_layers"), _OFF),
        **dict.fromkeys(("token_healing", "stop_strings", "transformers_weights"), _OFF),
        "encoder_repetition_penalty": (1,),
        **dict.fromkeys((f"{_OF_GGUF}xtc_probability", f"{_OF_GGUF}mirostat"), (0,)),
        f"{_OF_GGUF}penalty_last_n": (-1, 64),
    },
)
"""The keys of Transformers; what changes a text otherwise is served where it is off."""
