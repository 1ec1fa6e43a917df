"""The keys of a `quantization_config`, by method."""

from draftwerk.model.checkpoint.keys.known_keys import KnownKeys, because

_HOW_ROUNDED = "how the weights were rounded, which are read as they are"
_KERNELS = "which kernels another program takes"
_BY_TENSORS = "the tensors themselves say which matrices are quantised"
_ACTIVATIONS = "activations have the format of --dtype"
_PROVENANCE = "where the file comes from"
_NAMED = frozenset({"quant_method"})
_CALIBRATION = because(
    _HOW_ROUNDED,
    *("dataset", "tokenizer", "damp_percent", "damp_auto_increment", "static_groups"),
    *("true_sequential", "model_seqlen", "batch_size", "pad_token_id", "mse", "act_group_aware"),
    *("cache_block_outputs", "max_input_length", "iters", "nsamples", "seqlen", "lr", "minmax_lr"),
    *("enable_minmax_tuning", "enable_quanted_input", "low_gpu_mem_usage", "scale_dtype"),
    *("gradient_accumulate_steps", "not_use_best_mse", "train_bs", "offload_to_disk", "hyb_act"),
)
_PLACES = because(
    _BY_TENSORS,
    *("block_name_to_quantize", "module_name_preceding_first_block", "to_quant_block_names"),
    *("modules_in_block_to_quantize", "modules_to_not_convert", "modules_to_convert", "lm_head"),
    *("ignore", "ignored_layers", "ignored_modules"),
)
_BACKENDS = because(
    _KERNELS,
    *("use_cuda_fp16", "use_exllama", "disable_exllama", "exllama_config", "backend"),
    *("run_compressed", "dequantize", "use_optimized_inference", "kernel", "use_triton"),
)
_ORIGIN = because(
    _PROVENANCE,
    *("model_name_or_path", "model_file_base_name", "quantizer", "meta", "version"),
    *("autoround_version", "provider", "uri"),
)
GPTQ = KnownKeys(
    _NAMED | {"bits", "group_size", "sym", "checkpoint_format", "format", "desc_act"},
    _CALIBRATION | _PLACES | _BACKENDS | _ORIGIN,
    {
        **{"rotation": ("",), "dynamic": ({},), "adapter": ({},), "is_marlin_format": (False,)},
        **{"pack_dtype": ("int32",), "data_type": ("int",), "packing_format": ("auto_gptq",)},
    },
)
AWQ = KnownKeys(
    _NAMED | {"bits", "group_size", "version"},
    {**_CALIBRATION, **_PLACES, **_BACKENDS, **_ORIGIN}
    | because(_KERNELS, "do_fuse", "fuse_max_seq_len", "modules_to_fuse"),
    {"zero_point": (True,), "data_type": ("int",), "desc_act": (False,)},
)
FP8 = KnownKeys(
    _NAMED | {"fmt", "weight_block_size"},
    _PLACES | _BACKENDS | because(_ACTIVATIONS, "activation_scheme", "scale_fmt"),
    {"expert_dtype": ("fp8",), "kv_cache_scheme": ({},)},
)
MXFP4 = KnownKeys(_NAMED, _PLACES | _BACKENDS)
COMPRESSED = KnownKeys(
    _NAMED | {"config_groups", "format", "sparsity_config"},
    {**_PLACES, **_BACKENDS, **_ORIGIN}
    | because("the share of memory that is saved", "global_compression_ratio")
    | because("keys and values have the format of --kv-dtype", "kv_cache_scheme"),
    {
        "quantization_status": ("compressed", "frozen"),
        "transform_config": ({}, {"config_groups": {}}),
        "moe_sparsity_config": ({},),
    },
)
SPARSITY = KnownKeys(
    frozenset(),
    because(
        "how many weights are 0",
        *("global_sparsity", "ignore", "targets", "sparsity_structure"),
        "registry_requires_subclass",
    ),
    {"format": ("dense",)},
)
COMPRESSED_GROUP = KnownKeys(
    frozenset({"targets", "weights", "format"}),
    because(_ACTIVATIONS, "input_activations", "output_activations"),
)
COMPRESSED_WEIGHTS = KnownKeys(
    frozenset(
        {"num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "actorder"}
        | {"format"}
    ),
    because(_HOW_ROUNDED, "observer", "observer_kwargs")
    | because("its tensors have the type that they are stored in", "scale_dtype", "zp_dtype"),
    {"dynamic": (False,)},
)
BY_METHOD = {
    **{"gptq": GPTQ, "awq": AWQ, "fp8": FP8, "mxfp4": MXFP4},
    "compressed-tensors": COMPRESSED,
}
