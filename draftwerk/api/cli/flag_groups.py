"""Groups of the flags of `serve`, in which `--help` shows them."""

FLAG_GROUPS = {
    "model": (
        *("model", "served_model_name", "lora", "lora_merge", "tool_format", "generation_config"),
        *("control_tokens", "pooling", "rerank", "images", "image_hosts"),
    ),
    "drafts": ("draft", "draft_head", "speculate", "audit"),
    "precision": ("dtype", "kv_dtype", "approximate", "exact"),
    "memory": ("kv_memory", "kv_store", "kv_store_size", "weight_store", "memory_max"),
    "several models": ("also", "models", "keep_alive"),
    "network": ("host", "port", "metrics_port", "cors_origin", "tls_cert", "tls_key"),
    "security and records": (
        *("api_key", "insecure", "receipts", "signing_key", "record", "log_prompts", "log_format"),
        *("debug", "files"),
    ),
    "limits": (
        *("requests_max", "rows_max", "queue_max", "queue_wait_s", "responses_max", "body_max"),
        *("bodies_max", "connections_max", "header_deadline_s", "body_deadline_s"),
        *("write_deadline_s", "keep_alive_s", "idle_s", "resume_s", "socket_idle_s"),
        *("stall_s", "drain_s"),
    ),
    "scheduling": ("prefer", "slo", "slo_policy"),
    "several servers": ("replicas", "kv_listen", "kv_peers", "kv_key"),
    "experts": (
        *("backend", "device", "attention", "block_size", "round_tokens", "run_ahead"),
        *("silence_s", "spare", "pipeline_parallel", "tensor_parallel"),
    ),
}
"""The settings of each group, by title."""
