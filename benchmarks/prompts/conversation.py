"""A conversation with a hybrid model: `python -m benchmarks.prompts.conversation`.

A model of Qwen3.5's or LFM2's layers with random weights, or the one that `--model` names, is asked
turn after turn, each prompt the whole conversation so far. Beside each turn the same prompt is
asked under a salt of its own: a server that recomputes it. Both texts must be the same. Where the
cache holds snapshots of the recurrent states, a turn reads what is new, and the first token does
not come later with each turn; *share* is its time over that of recomputing.

With `--peer`, llama.cpp's libraries (see `benchmarks.files`) hold the same conversation over the
same GGUF: it keeps its sequence and reads what is new, or forgets it and reads all.
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
from benchmarks.support.llama_library import LlamaModel
from benchmarks.support.mixed_gguf import SHAPES as FILE_SHAPES
from benchmarks.support.mixed_gguf import write
from draftwerk import LLM, SamplingParams
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.native.isa import chosen

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
"""Of Qwen3.5, as safetensors."""
GGUF_SHAPES = ("LFM2-350M",)
"""As a GGUF, in Q8_0."""


class TimedTurn(NamedTuple):
    """One turn, and what it took."""

    prompt: list[int]
    answer: list[int]
    cached: int
    first_s: float
    recomputed_s: float


class Answered(NamedTuple):
    """What one prompt came to."""

    tokens: list[int]
    cached: int
    first_s: float


def made(folder: Path, shape: str) -> str:
    """Write a model of random weights over the default model's tokens; returns its path."""
    if shape in GGUF_SHAPES:
        return str(write(folder / "model.gguf", FILE_SHAPES[shape], "Q8_0"))
    source = locate(None)
    families: Any = transformers  # whose classes are found as they are asked for
    config = families.AutoConfig.for_model(
        "qwen3_5_text",
        vocab_size=read_info(source).vocab_size,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        **SHAPES[shape],
    )
    torch.manual_seed(0)
    model = families.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder / "model")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source.directory / name, folder / "model")
    return str(folder / "model")


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


def converse(llm: LLM, given: argparse.Namespace) -> list[TimedTurn]:
    """Return what each turn took."""
    turns: list[TimedTurn] = []
    rng, conversation = Random(given.seed), list[int]()
    for turn in range(1, given.turns + 1):
        conversation += [rng.randrange(5, 20_000) for _ in range(given.question)]
        kept = ask(llm, conversation, given.tokens, "session")
        fresh = ask(llm, conversation, given.tokens, f"turn {turn}")
        assert kept.tokens == fresh.tokens, f"turn {turn}: another text than without a cache"
        times = kept.first_s, fresh.first_s
        turns.append(TimedTurn(list(conversation), kept.tokens, kept.cached, *times))
        conversation += kept.tokens
    return turns


def converse_with_peer(peer: LlamaModel, turns: list[TimedTurn]) -> list[tuple[float, float]]:
    """Return the seconds to llama.cpp's first token of each turn: what is new read, and all."""
    found: list[tuple[float, float]] = []
    known = 0
    for turn in turns:
        begun = perf_counter()
        peer.prefill(turn.prompt[known:], start=known)
        first_s, begun = perf_counter() - begun, perf_counter()
        peer.clear()
        peer.prefill(turn.prompt)
        found.append((first_s, perf_counter() - begun))
        for place, token in enumerate(turn.answer, len(turn.prompt)):
            peer.step([token], place)
        known = len(turn.prompt) + len(turn.answer)
    return found


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Make the model, and talk to it; returns a row for each turn that is shown."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", help="a directory or GGUF, in place of random weights")
    options.add_argument("--shape", choices=(*SHAPES, *GGUF_SHAPES), default="0.8B")
    options.add_argument("--turns", type=int, default=20)
    options.add_argument("--question", type=int, default=60, help="new tokens of a prompt")
    options.add_argument("--tokens", type=int, default=40, help="of each answer")
    options.add_argument("--dtype", help="int8 by default, and of a GGUF its own types")
    options.add_argument("--kv-memory", default="2GiB")
    options.add_argument("--peer", type=Path, help="llama.cpp's libraries; needs a GGUF")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or made(Path(folder), given.shape)
        is_gguf = model.endswith(".gguf")
        if given.peer and not is_gguf:
            options.error("--peer: llama.cpp reads a GGUF: give one, or --shape LFM2-350M")
        dtype = given.dtype or ("auto" if is_gguf else "int8")
        with LLM(model, dtype=dtype, kv_memory=given.kv_memory) as llm:
            turns = converse(llm, given)
        if not given.peer:
            return rows(turns, given.turns)
        length = len(turns[-1].prompt) + given.tokens
        peer = LlamaModel(given.peer, Path(model), 1, length, chosen().name)
        times = converse_with_peer(peer, turns)
        peer.close()
        return rows(turns, given.turns, times)


def rows(
    turns: list[TimedTurn], last: int, peer: Sequence[tuple[float, float]] | None = None
) -> ResultTable:
    """Return the first turns, each fifth and the last, llama.cpp's times beside ours."""
    columns = ["turn", "prompt", "cached", "read", "first token, ms", "recomputed, ms", "share"]
    theirs = [f"llama.cpp: {each}" for each in columns[-3:]] if peer else []
    found = ResultTable([*columns, *theirs])
    for number, turn in enumerate(turns, start=1):
        if number not in (1, 2, last) and number % 5:
            continue
        count = len(turn.prompt)
        cells = [number, count, turn.cached, count - turn.cached]
        for kept_s, fresh_s in (
            (turn.first_s, turn.recomputed_s),
            *(peer or ())[number - 1 : number],
        ):
            cells += [1e3 * kept_s, 1e3 * fresh_s, kept_s / fresh_s]
        found.add(*cells)
    return found


if __name__ == "__main__":
    show(table)
