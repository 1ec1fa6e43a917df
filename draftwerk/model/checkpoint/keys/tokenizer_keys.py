"""The keys of a `tokenizer_config.json`, and of a GGUF under `tokenizer.` and `general.`."""

import re
from collections.abc import Mapping
from typing import Any

from draftwerk.model.checkpoint.keys.known_keys import KnownKeys, because
from draftwerk.model.checkpoint.unsupported import Refused

_OFF = (False, 0, [], {}, "")
_IN_FILE = "`tokenizer.json`, or the vocabulary's own file, says it"
TOKENIZER = KnownKeys(
    frozenset(
        {
            *("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"),
            *("model_specific_special_tokens", "chat_template", "tokenizer_class"),
            *("add_prefix_space", "add_bos_token", "add_eos_token", "legacy"),
            "fix_mistral_regex",
        }
    ),
    because(
        "requests say how long a text may be",
        *("model_max_length", "max_len", "max_length", "truncation", "truncation_side", "stride"),
        *("truncation_strategy", "tokenizer_truncation", "max_target_length"),
    )
    | because(
        "prompts are not padded",
        *("padding", "padding_side", "pad_to_multiple_of", "pad_token_type_id", "padding_strategy"),
        *("tokenizer_padding", "pad_token_id", "token_type_ids_pattern"),
    )
    | because(
        "the template says which turns there are",
        *("use_default_system_prompt", "default_chat_template", "system_prompt"),
    )
    | because(
        "a text is the bytes of its tokens",
        *("clean_up_tokenization_spaces", "spaces_between_special_tokens", "trim_offsets"),
        *("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", "errors"),
    )
    | because(
        _IN_FILE,
        *("do_lower_case", "strip_accents", "remove_space", "keep_accents", "fuse_unk", "dropout"),
        *("tokenize_chinese_chars", "byte_fallback", "do_basic_tokenize", "never_split", "unk_id"),
        *("sp_model_kwargs", "clean_text", "vocab_size", "vocab_type", "model_type", "encoder"),
        *("bos_token_id", "eos_token_id", "unk_token_id", "extra_ids", "offset", "type_vocab_size"),
        *("suffix_first", "add_dummy_prefix", "num_reserved_special_tokens", "wordpieces_prefix"),
        *("post_processor", "pat_str", "num_vocab", "ignore_merges"),
    )
    | because(
        "what another program makes of a reply",
        *("response_schema", "response_template", "model_input_names", "return_tensors"),
        *("processor_class", "image_processor_type", "feature_extractor_type", "processor_kwargs"),
        *("chat_control_tokens", "sanitize_control_tokens", "return_token_type_ids", "verbose"),
    )
    | because(
        "how another program reads the files",
        *("use_fast", "backend", "from_slow", "auto_map", "name_or_path", "tokenizer_file"),
        *("special_tokens_map_file", "vocab_file", "merges_file", "is_local", "tokenizer_type"),
        *(
            "_commit_hash",
            "_from_auto",
            "_name_or_path",
            "transformers_version",
            "local_files_only",
        ),
        *("revision", "trust_remote_code", "token", "cache_dir", "files_loaded", "init_inputs"),
        *("slow_tokenizer_class", "tiktoken_file", "tokenizer_version", "license", "max_model_len"),
        *("unsloth_fixed", "peft_version", "added_tokens_file", "save_jinja_files", "trl_version"),
    )
    | because(
        "images and sound are not read",
        *("image_seq_length", "image_size", "patch_size", "num_image_tokens", "vision_config"),
        *("num_additional_image_tokens", "vision_feature_select_strategy", "max_tiles", "do_pad"),
        *("do_image_splitting", "min_tiles", "use_thumbnail", "tile_size", "max_num_patches"),
        *("min_image_tokens", "max_image_tokens", "encoder_patch_size", "downsample_factor"),
        *("max_pixels_tolerance", "use_image_special_tokens", "do_resize", "images_kwargs"),
        *("image_grid_pinpoints", "audio_config", "language", "task", "predict_timestamps"),
    ),
    {
        **dict.fromkeys(("split_special_tokens", "src_lang", "tgt_lang", "lang_codes"), _OFF),
        **dict.fromkeys(("normalization", "normalize", "cls_token_at_end", "add_blank"), _OFF),
    },
)
"""Keys of Transformers' classes. One that ends with `_token` names a special token."""
SPACING_CLASSES = frozenset(
    f"{name}Tokenizer"
    for name in (
        *("Albert", "Bart", "Barthez", "BigBird", "Blenderbot", "Camembert", "Canine", "Clvp"),
        *("CodeLlama", "Cohere", "Deberta", "DebertaV2", "FNet", "GPT2", "GPTNeoX", "LED"),
        *("LayoutLMv3", "LayoutXLM", "Llama", "Luke", "MarkupLM", "Mvp", "Qwen2", "Qwen3_5"),
        *("RemBert", "Roberta", "Whisper", "XGLM", "XLMRoberta"),
    )
)
"""Classes of Transformers that read `add_prefix_space` beside a `tokenizer.json`."""
_NAMES = re.compile(r"_token(_?box|_label)?$")

_TOKEN_IDS = (
    *("bos", "eos", "eot", "eom", "unknown", "padding", "fim_pre", "fim_suf", "fim_mid"),
    *("fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle", "seperator", "mask", "cls"),
)
GGUF_TOKENIZER = KnownKeys(
    frozenset(
        {
            *("ggml.model", "ggml.pre", "ggml.tokens", "ggml.token_type", "ggml.scores"),
            *("ggml.merges", "ggml.add_bos_token", "ggml.add_eos_token", "ggml.add_space_prefix"),
            *("huggingface.json", "chat_template", "ggml.suppress_tokens"),
            *(f"ggml.{name}_token_id" for name in _TOKEN_IDS),
        }
    ),
    because("its templates have keys of their own", "chat_templates")
    | because("texts are of one type", "ggml.token_type_count")
    | because(
        "pieces keep the white space that they are given",
        *("ggml.remove_extra_whitespaces", "ggml.precompiled_charsmap_size"),
    ),
    {
        **dict.fromkeys(("ggml.add_sep_token", "ggml.precompiled_charsmap", "rwkv.world"), _OFF),
        **dict.fromkeys(("ggml.normalizer.lowercase", "ggml.normalizer.strip_accents"), _OFF),
    },
)
_GENERAL = re.compile(
    r"(architecture|type|alignment|file_type|quantization_version|quantized_by|name|author|version"
    r"|organization|finetune|basename|description|size_label|license|license\.(name|link)|url|doi"
    r"|uuid|repo_url|tags|languages|datasets|parameter_count|hash|source\.\w+(\.\w+)*"
    r"|(base_model|dataset)\.(count|\d+\.\w+)|sampling\.\w+)"
)
"""Descriptions of a file; sampling that it recommends is checked where it is read."""


def check_tokenizer_config(config: Mapping[str, Any], path: object) -> None:
    """Raise Refused, naming the file, for a key of a tokenizer's config that is not known."""
    named = {key: value for key, value in config.items() if not _NAMES.search(key)}
    TOKENIZER.check(named, f"{path}: ")


def check_general_keys(fields: Mapping[str, Any]) -> None:
    """Raise Refused for a key of a GGUF beside its architecture's that is not known."""
    for key, value in fields.items():
        prefix, _, name = key.partition(".")
        if prefix == "general" and not _GENERAL.fullmatch(name):
            raise Refused(f"{key} is not supported")
        if prefix == "tokenizer" and not name.startswith("chat_template."):
            GGUF_TOKENIZER.check({name: value}, "tokenizer.")
