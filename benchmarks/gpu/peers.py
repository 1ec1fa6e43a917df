"""The same model in Transformers on the same card, and one like it in nano-vllm if installed.

Transformers decodes one prompt at a time with a static cache, with prompt lookup, and assisted by
the small model that the large one was widened from; then all prompts side by side with continuous
batching. nano-vllm serves Qwen3 alone and never greedily, so it gets random weights in the shape of
Qwen3-8B and prompts of random tokens: its speed does not depend on them.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import torch

from benchmarks.gpu.text import PROMPTS, TOKENS, write_random_qwen3, write_small

Rows = list[dict[str, Any]]
WAYS: dict[str, dict[str, Any]] = {
    "static cache": {"cache_implementation": "static"},
    "prompt lookup": {"prompt_lookup_num_tokens": 8},
}
PROMPT_TOKENS = 32


def peer_rows(directory: Path, device: torch.device) -> Rows:
    """Measure every peer that can be had."""
    return tried(
        {
            "transformers": lambda: transformers_rows(directory, device),
            "nano-vllm": lambda: nano_vllm_rows(directory / "qwen3"),
        }
    )


def tried(runs: Mapping[str, Callable[[], Rows]]) -> Rows:
    """Return the rows of all runs; one that fails is reported and stops no other."""
    rows: Rows = []
    for name, run in runs.items():
        try:
            rows += run()
        except Exception as error:
            rows.append({"engine": name, "failed": f"{type(error).__name__}: {error}"})
        torch.cuda.empty_cache()
    return rows


def transformers_rows(directory: Path, device: torch.device) -> Rows:
    """Decode the prompts greedily, one at a time and then together; a warm-up first."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    small = write_small(directory / "small", device)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)

    def loaded(path: Path) -> Any:
        found: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
        return found.to(device).eval()

    model = loaded(directory)
    prompts = [_inputs(tokenizer, prompt, device) for prompt in PROMPTS]
    ways = {**WAYS, "assisted": {"assistant_model": loaded(small)}}
    runs: dict[str, Callable[[], Rows]] = {
        f"transformers, {name}": lambda n=name, o=options: [_one_by_one(n, model, prompts, o)]
        for name, options in ways.items()
    }
    return tried(runs | {"transformers, continuous batching": lambda: [_batched(model, prompts)]})


def _inputs(tokenizer: Any, prompt: str, device: torch.device) -> Any:
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(device)


def _one_by_one(
    name: str, model: Any, prompts: list[Any], options: dict[str, Any]
) -> dict[str, Any]:
    def generate(inputs: Any) -> int:
        out = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False, **options)
        return out.shape[1] - inputs["input_ids"].shape[1]

    generate(prompts[0])  # compiles
    counts, seconds = _timed(lambda: [generate(inputs) for inputs in prompts])
    return {"engine": f"transformers, {name}", "tok_s": sum(counts) / seconds}


def _batched(model: Any, prompts: list[Any]) -> dict[str, Any]:
    """Return tokens a second of all prompts together."""
    from transformers import GenerationConfig

    asked = [inputs["input_ids"][0].tolist() for inputs in prompts]
    ends = model.generation_config.eos_token_id
    sampling = GenerationConfig(max_new_tokens=TOKENS, do_sample=False, eos_token_id=ends)

    def generate() -> list[int]:
        out = model.generate_batch(inputs=asked, generation_config=sampling)
        return [len(one.generated_tokens) for one in out.values()]

    generate()  # compiles
    counts, seconds = _timed(generate)
    name = f"transformers, continuous batching of {len(asked)}"
    return {"engine": name, "tok_s": sum(counts) / seconds}


def nano_vllm_rows(directory: Path) -> Rows:
    """Decode random prompts one at a time; nothing where it is not installed."""
    if find_spec("nanovllm") is None:
        return [{"engine": "nano-vllm", "failed": "not installed"}]
    from nanovllm import LLM, SamplingParams  # pyright: ignore[reportMissingImports]

    write_random_qwen3(directory)
    engine: Any = LLM(str(directory), enforce_eager=False, max_model_len=1024)
    sampling: Any = SamplingParams(temperature=1.0, ignore_eos=True, max_tokens=TOKENS)
    rng = Random(1)
    prompts = [[rng.randrange(1000) for _ in range(PROMPT_TOKENS)] for _ in PROMPTS]

    def generate(some: list[list[int]]) -> list[int]:
        return [len(one["token_ids"]) for one in engine.generate(some, sampling)]

    generate(prompts[:1])
    counts, seconds = _timed(lambda: [generate([prompt])[0] for prompt in prompts])
    return [{"engine": "nano-vllm, Qwen3-8B's shape", "tok_s": sum(counts) / seconds}]


def _timed(work: Callable[[], list[int]]) -> tuple[list[int], float]:
    """Return what came, and in how many seconds; prompts are included."""
    _settle()
    begun = perf_counter()
    found = work()
    _settle()
    return found, perf_counter() - begun


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
