"""The keys of an adapter's `adapter_config.json`."""

from draftwerk.model.checkpoint.keys.known_keys import KnownKeys, because

_OFF = (False, "", 0, [], {})
ADAPTER = KnownKeys(
    frozenset(
        {
            *("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern"),
            *("bias", "init_lora_weights", "target_modules", "exclude_modules"),
            *("layers_to_transform", "layers_pattern"),
        }
    ),
    because(
        "where the adapter comes from",
        *("task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision"),
        *("inference_mode", "megatron_config", "megatron_core"),
    )
    | because(
        "how it was trained",
        *("lora_dropout", "eva_config", "corda_config", "lora_ga_config", "velora_config"),
        *("loftq_config", "qalora_group_size", "runtime_config", "ensure_weight_tying"),
    ),
    {
        **dict.fromkeys(
            (
                *("use_dora", "use_qalora", "modules_to_save", "enable_lora", "lora_bias"),
                *("trainable_token_indices", "alora_invocation_tokens", "target_parameters"),
                *("layer_replication", "fan_in_fan_out"),
            ),
            _OFF,
        ),
        **dict.fromkeys(
            ("arrow_config", "use_bdlora", "kasa_config", "monteclora_config"), (False,)
        ),
    },
)
"""The keys of PEFT; what changes what an adapter computes is served where it is off."""
LEAVES_BASE = ("true", "false", "gaussian", "eva", "orthogonal")
"""Ways to begin a training after which the model's own weights are as before."""
