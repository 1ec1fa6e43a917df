"""LoRA adapters as PEFT writes them: a folder of adapter_config.json and adapter_model.safetensors."""
