"""The same model in Transformers on the same card: static cache, and prompt lookup."""

from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.gpu.text import PROMPTS, TOKENS

WAYS: dict[str, dict[str, Any]] = {
    "static cache": {"cache_implementation": "static"},
    "prompt lookup": {"prompt_lookup_num_tokens": 8},
}


def transformers_rows(directory: Path, device: torch.device) -> list[dict[str, Any]]:
    """Decode the prompts greedily, one at a time; a warm-up first."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    loaded: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    model = loaded.to(device).eval()
    rows: list[dict[str, Any]] = []
    for name, options in WAYS.items():
        _generate(tokenizer, model, PROMPTS[0], device, options)  # compiles
        told = [_generate(tokenizer, model, prompt, device, options) for prompt in PROMPTS]
        tokens, seconds = (sum(column) for column in zip(*told, strict=True))
        rows.append({"engine": f"transformers, {name}", "tok_s": tokens / seconds})
    return rows


def _generate(
    tokenizer: Any, model: Any, prompt: str, device: torch.device, options: dict[str, Any]
) -> tuple[int, float]:
    """Return how many tokens came, and in how many seconds, the prompt's included."""
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(device)
    torch.cuda.synchronize(device)
    begun = perf_counter()
    out = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False, **options)
    torch.cuda.synchronize(device)
    return out.shape[1] - inputs["input_ids"].shape[1], perf_counter() - begun
