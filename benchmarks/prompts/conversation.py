"""A conversation with a recurrent model: `python -m benchmarks.prompts.conversation`.

A model of Qwen3.5's layers with random weights is asked turn after turn, each prompt the whole
conversation so far. Beside each turn the same prompt is asked under a salt of its own: a server
that recomputes it. Both texts must be the same. Where the cache holds snapshots of the recurrent
states, a turn reads what is new, and the first token does not come later with each turn.
"""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, NamedTuple

import torch
import transformers

from benchmarks.support.bench import ResultTable, show
from draftwerk import LLM, SamplingParams
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
        **{"linear_num_key_heads": 2, "linear_num_value_heads": 4},
        **{"linear_key_head_dim": 16, "linear_value_head_dim": 16},
    },
    "0.8B": {
        **{"hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24},
        **{"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256},
        **{"linear_num_key_heads": 16, "linear_num_value_heads": 16},
    },
}


class Answered(NamedTuple):
    """What one prompt came to."""

    tokens: list[int]
    cached: int
    first_s: float


def save(folder: Path, shape: str) -> None:
    """Write a model of random weights over the default model's tokens."""
    source = locate(None)
    made: Any = transformers  # whose classes are found as they are asked for
    config = made.AutoConfig.for_model(
        "qwen3_5_text",
        vocab_size=read_info(source).vocab_size,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        **SHAPES[shape],
    )
    torch.manual_seed(0)
    made.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source.directory / name, folder)


def ask(llm: LLM, prompt: list[int], count: int, salt: str) -> Answered:
    """Ask for so many tokens, and time the first."""
    params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True, cache_salt=salt)
    begun, first_s = perf_counter(), 0.0
    with llm.stream(prompt, params) as stream:
        for _ in stream:
            first_s = first_s or perf_counter() - begun
        assert stream.output is not None
        found = stream.output
    details = found.usage.prompt_tokens_details
    assert details, "the usage tells what was cached"
    return Answered(list(found.choices[0].token_ids), details.cached_tokens, first_s)


def converse(llm: LLM, given: argparse.Namespace) -> ResultTable:
    """Return a row for each turn that is shown."""
    found = ResultTable(
        ["turn", "prompt", "cached", "read", "first token, ms", "recomputed, ms", "share"]
    )
    rng, conversation = Random(given.seed), list[int]()
    for turn in range(1, given.turns + 1):
        said = [rng.randrange(5, 20_000) for _ in range(given.question)]
        conversation += said
        kept = ask(llm, conversation, given.tokens, "session")
        fresh = ask(llm, conversation, given.tokens, f"turn {turn}")
        assert kept.tokens == fresh.tokens, f"turn {turn}: another text than without a cache"
        count = len(conversation)
        if turn in (1, 2, given.turns) or turn % 5 == 0:
            times = 1e3 * kept.first_s, 1e3 * fresh.first_s
            share = kept.first_s / fresh.first_s
            found.add(turn, count, kept.cached, count - kept.cached, *times, share)
        conversation += kept.tokens
    return found


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Make the model, and talk to it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--shape", choices=SHAPES, default="0.8B")
    options.add_argument("--turns", type=int, default=20)
    options.add_argument("--question", type=int, default=60, help="new tokens of a prompt")
    options.add_argument("--tokens", type=int, default=40, help="of each answer")
    options.add_argument("--dtype", default="int8")
    options.add_argument("--kv-memory", default="2GiB")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "model", given.shape)
        model = str(Path(folder) / "model")
        with LLM(model, dtype=given.dtype, kv_memory=given.kv_memory) as llm:
            return converse(llm, given)


if __name__ == "__main__":
    show(table)
