"""The keys of a `config.json` beside the fields of its class.

A key is known if the class has a field of that name (`class_fields`), the row of its family reads
it, or a list below has it. A key of another class is taken where it is off.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from draftwerk.model.checkpoint.keys.class_fields import all_names, fields_of, generation_names
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys, because

READ = frozenset(
    {
        *("architectures", "model_type", "dtype", "torch_dtype", "text_config", "eos_token_id"),
        *("quantization_config", "compression_config", "pooling_type", "head_dim"),
        *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"),
        *("vision_config", "audio_config", "is_causal"),
    }
)
"""By the part that is common to all classes."""
OLD_ROPE = {"rope_theta", "rope_scaling", "partial_rotary_factor"}
"""Read but of classes that are younger than these."""
WITHOUT_EFFECT = {
    **because(
        "it concerns training",
        *(
            "initializer_range",
            "initializer_factor",
            "init_method",
            "init_std",
            "attention_dropout",
        ),
        *("attn_pdrop", "resid_pdrop", "embd_pdrop", "hidden_dropout", "residual_dropout"),
        *("embedding_dropout", "ffn_dropout", "hidden_dropout_prob", "classifier_dropout"),
        *("attention_probs_dropout_prob", "dropout", "activation_dropout", "pretraining_tp"),
        *("output_router_logits", "router_aux_loss_coef", "router_z_loss_coef", "aux_loss_alpha"),
        *("router_jitter_noise", "input_jitter_noise", "seq_aux", "gradient_checkpointing"),
        *("keys_to_ignore_at_inference", "use_gradient_checkpointing", "moe_z_loss_coeff"),
        *("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init"),
        *("conv_use_xavier_init", "z_loss_coefficient", "ep_size", "loss_type"),
    ),
    **because(
        "it is about how, not what, another program computes",
        *("use_cache", "mamba_chunk_size", "chunk_size_feed_forward", "attn_implementation"),
        *("_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal"),
        *("_experts_implementation", "experts_implementation", "_flash_attn_2_enabled"),
        *("use_flash_attention", "use_flash_attn", "use_flash_attn_2", "flash_attn"),
        *("use_mamba_kernels", "output_attentions", "output_hidden_states", "return_dict"),
        *(
            "use_return_dict",
            "torchscript",
            "use_bfloat16",
            "tf_legacy_loss",
            "cache_implementation",
        ),
        *("transformers.js_config", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"),
        *("use_parallel_embedding", "fuse_linear", "fuse_rope", "_moe_implementation"),
        *("is_decoder", "tie_last_hidden_states", "tensor_parallel_degree", "device_map"),
    ),
    **because(
        "it is the tokenizer's",
        *(
            "bos_token_id",
            "pad_token_id",
            "_pad_token_id",
            "pad_id",
            "eod_token_id",
            "sep_token_id",
            "cls_token_id",
        ),
        *("unk_token_id", "mask_token_id", "decoder_start_token_id", "tokenizer_class"),
        *("im_start_id", "im_end_id", "im_newline_id", "text_start_id", "text_end_id"),
        *("mask_init_id", "end_token_id", "org_vocab_size", "eod_id", "bos_id", "eos_id"),
        *("use_default_system_prompt", "model_max_length", "max_sequence_length", "seq_length"),
    ),
    **because(
        "it is for heads of other tasks",
        *("id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "class_num"),
        *("task_specific_params", "add_classification_head", "pool_type", "summary_type"),
    ),
    **because(
        "it says where the file comes from",
        *("_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "auto_map"),
        *("model_name", "base_model", "license", "unsloth_fixed", "unsloth_version", "_auto_class"),
        *("unsloth_training_args", "is_llama_config", "_diffusers_version", "custom_pipelines"),
        *("model_version", "quantization_version", "_from_model_config", "_pre_quantization_dtype"),
        *("peft_version", "axolotl_config", "sentence_transformers", "mlx_lm_version"),
    ),
    **because(
        "it says again what other fields do",
        *("attention_head_dim", "kv_channels", "n_ctx", "experts_per_token"),
        *("initial_context_length", "block_dim", "conv_dim", "conv_dim_out", "num_heads"),
        *("block_norm_eps", "dense_list", "cla_share_factor", "_sliding_window_pattern"),
        *("mm_tokens_per_image", "norm_reduction"),
    ),
    **because(
        "it concerns images or sound",
        *("image_token_id", "image_token_index", "video_token_id", "vision_start_token_id"),
        *("vision_end_token_id", "boi_token_id", "boi_token_index", "eoi_token_id"),
        *("eoi_token_index", "audio_token_id", "boa_token_id", "eoa_token_id", "eoa_token_index"),
        *("vision_feature_layer", "vision_token_id", "projector_hidden_act", "spatial_merge_size"),
        *(
            "multimodal_projector_bias",
            "vision_soft_tokens_per_image",
            "audio_soft_tokens_per_image",
        ),
        *("audio_ms_per_token", "vision_feature_select_strategy", "image_seq_length"),
    ),
    **because(
        "it is of layers that draft",
        *("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mtp_layer_types"),
        *("num_nextn_predict_layers", "mtp_loss_scaling_factor"),
    ),
}
"""By key, why it changes no text."""
ONLY: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("is_encoder_decoder", "add_cross_attention", "use_mrope"), (False,)),
    **dict.fromkeys(("tie_encoder_decoder", "rope_interleaved", "lm_head_bias"), (False,)),
    **dict.fromkeys(("use_mla", "use_cla", "use_mup", "use_moe"), (False,)),
    **dict.fromkeys(("pruned_heads", "per_layer_config"), ({},)),
}
"""Keys that no class of Transformers reads, and others do, at values that are as without them."""
OFF = (None, False, 0, [], {}, "")


def check_config_keys(
    class_name: str, hf: Mapping[str, Any], own: KnownKeys, aliases: Iterable[str] = ()
) -> None:
    """Raise Refused for a key that is not known of a class.

    `own` are those of its family's row, and `aliases` other names of fields.
    """
    names = fields_of(class_name).names
    own_rule = fields_of(class_name).defaults.get("rope_parameters") or {}
    read = READ - OLD_ROPE if "full_attention" in own_rule else READ
    known = KnownKeys(
        read | names | own.read | {*aliases},
        {**WITHOUT_EFFECT, **because("Transformers drops it", *generation_names())}
        | dict(own.without_effect),
        {**dict.fromkeys(all_names(), OFF), **ONLY, **own.only},
    )
    known.check(hf)
