"""Models whose tokens see all of their text: Transformers' states, and equal bits in company."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from draftwerk.model.attention.padded import PaddedAttention
from draftwerk.model.attention.reference import attend
from draftwerk.model.attention.tiled import TiledAttention
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.gguf_card import write_card
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.native.pool import Pool
from draftwerk.model.step.around_steps import attached
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.whole_prompts import NO_TEXT, Step, all_seen, one_by_one, seeing
from draftwerk.speculative.options.pooled_prompt import PooledPrompt
from draftwerk.speculative.requests.pooling import Pooling, PoolingParams
from draftwerk.speculative.rounds import Row
from draftwerk.speculative.row_parts.state_sums import summed
from draftwerk.speculative.sampling import Sampling
from tests.support.changed_files import say
from tests.support.rounds import asked, first_row, make_row, proposed
from tests.support.runners import kernel_parts
from tests.support.tiny_gguf import as_in_file, described, said_by_files, save_gguf
from tests.support.tiny_models import FAMILIES, VOCAB, save_tiny, tiny_model

LENGTHS = (50, 1, 17, 40, 63)
TEXTS = [tuple(Random(5 + n).choices(range(VOCAB), k=n)) for n in LENGTHS]
BLOCKS = 4
"""Of 16 slots, for each text."""
WINDOWS: dict[str, Json] = {
    "qwen2": {"use_sliding_window": False},
    "mistral": {"sliding_window": 7},
    "gemma2": {"sliding_window": 7},
    "gpt_oss": {"sliding_window": 7},
    "gemma3_text": {"use_bidirectional_attention": True, "sliding_window": 13},
}
"""Fields beside those of tiny models; windows are shorter than texts."""
SERVED = (
    *("llama", "qwen2", "qwen3", "gemma", "cohere", "olmo2", "qwen3_moe", "stablelm"),
    *("mistral", "gemma2", "gpt_oss", "gemma3_text"),
)


def save_both_ways(directory: Path, family: str, **fields: Any) -> None:
    fields = {**WINDOWS.get(family, {}), **fields}
    save_tiny(directory, family, **fields)
    if "use_bidirectional_attention" not in fields:
        say(directory, is_causal=False)


def make_step(directory: Path, pool: Pool | None, dtype: str = "fp32", kind: str = "") -> Step:
    """Return the step of a model process; of torch without a pool."""
    attention = {"tiled": TiledAttention(), "padded": PaddedAttention()}.get(kind, attend)
    causal = kernel_parts(directory, len(TEXTS) * BLOCKS, pool, dtype, attention)
    view = all_seen if pool is None else one_by_one
    whole = seeing(causal.forward, read_config(directory).graph.sees_all, view)
    parts = replace(causal, forward=whole)
    return attached(parts, target_runner(parts).step)


def rows_of(number: int, cuts: list[int], pooling: Pooling) -> list[Row]:
    """Return the rows of a text, as the scheduler plans them."""
    tokens = TEXTS[number]
    reading = PoolingParams(pooling, whole=True)
    found: list[Row] = []
    for start, stop in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
        scored = span(reading, len(tokens), start, stop)
        found.append(
            make_row(
                start,
                stop,
                sequence_id=number,
                samples=False,
                blocks=tuple(range(number * BLOCKS, (number + 1) * BLOCKS)),
                new_sequence=asked(tokens, Sampling()) if not start else None,
                scored=scored,
                pools=scored[0] < scored[1],
            )
        )
    return found


def span(pooling: PoolingParams, count: int, start: int, stop: int) -> tuple[int, int]:
    sequence = object.__new__(PooledPrompt)
    sequence.pooling = pooling
    sequence.request = type("Asked", (), {"prompt_count": count})()
    return sequence.scored_span(start, stop)


def sums(step: Step, *rounds: list[Row]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for number, rows in enumerate(rounds):
        verdict = step(proposed(*rows, round_id=number))
        for row, decision in zip(rows, verdict.decisions, strict=True):
            assert not decision.error
            assert bool(decision.options.state_sum) == row.options.pools
            if row.options.pools:
                found[row.sequence_id] = decision.options.state_sum
    return found


@pytest.fixture(scope="module", params=SERVED)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, PreTrainedModel]:
    """Return a family's folder, and Transformers' model of it."""
    path: Path = tmp_path_factory.mktemp(request.param)
    save_both_ways(path, request.param)
    return path, FAMILIES[request.param].from_pretrained(path, attn_implementation="eager")


def pooled(model: Any, number: int, pooling: Pooling) -> list[float]:
    with torch.no_grad():
        states = model.eval().base_model(torch.tensor([TEXTS[number]])).last_hidden_state[0]
    return (states.sum(0) if pooling == "mean" else states[-1]).tolist()


@pytest.mark.parametrize("backend", ["torch", "tiled", "padded", "native"])
def test_vectors_are_transformers(
    served: tuple[Path, PreTrainedModel], backend: str, pool: Pool
) -> None:
    directory, model = served
    for pooling in ("mean", "last"):
        step = make_step(directory, pool if backend == "native" else None, kind=backend)
        found = sums(step, [*rows_of(0, [], pooling), *rows_of(2, [], pooling)])
        for number, state_sum in found.items():
            expected = pooled(model, number, pooling)
            assert summed(state_sum) == pytest.approx(expected, abs=1e-4 * LENGTHS[number])


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize(
    ("pooling", "family"), [("mean", "llama"), ("last", "llama"), ("mean", "gemma3_text")]
)
def test_chunks_and_company_change_no_bit(
    pooling: Pooling, family: str, dtype: str, tmp_path: Path, pool: Pool
) -> None:
    save_both_ways(tmp_path, family)
    alone = {
        number: sums(make_step(tmp_path, pool, dtype), rows_of(number, [], pooling))[number]
        for number in range(len(TEXTS))
    }
    together = [row for number in range(len(TEXTS)) for row in rows_of(number, [], pooling)]
    assert sums(make_step(tmp_path, pool, dtype), together) == alone
    first, then, last = rows_of(0, [7, 30], pooling)
    (one,), (other, rest) = rows_of(1, [], pooling), rows_of(3, [16], pooling)
    found = sums(make_step(tmp_path, pool, dtype), [first, other], [then, one], [rest, last])
    assert found == {number: alone[number] for number in found} and len(found) == 3


def test_what_stands_behind_a_token_moves_it(tmp_path: Path, pool: Pool) -> None:
    save_both_ways(tmp_path, "llama")
    both = sums(make_step(tmp_path, pool), rows_of(0, [], "mean"))
    say(tmp_path, is_causal=True)
    assert sums(make_step(tmp_path, pool), rows_of(0, [], "mean")) != both


def test_no_text_is_generated(tmp_path: Path, pool: Pool) -> None:
    save_both_ways(tmp_path, "llama")
    row = first_row(TEXTS[0], Sampling(seed=1), blocks=tuple(range(BLOCKS)))
    (decision,) = make_step(tmp_path, pool)(proposed(row)).decisions
    assert decision.error == NO_TEXT and not decision.tokens


@pytest.mark.usefixtures("no_tokenizer")
def test_a_gguf_of_vectors_has_transformers_vectors(tmp_path: Path, pool: Pool) -> None:
    """llama.cpp's converter gives Gemma 3's class another name then, and says no more."""
    sizes = {**said_by_files("gemma3_text", {}), "sliding_window": 13}
    path, directory = tmp_path / "m.gguf", tmp_path / "out"
    save_gguf(path, "gemma3_text", "F32", architecture="gemma-embedding", **sizes)
    write_card(described(path, directory), directory)
    assert read_config(directory).graph.sees_all
    both_ways = tiny_model("gemma3_text", **sizes, use_bidirectional_attention=True)
    model = as_in_file(both_ways, "gemma3_text")
    found = sums(make_step(directory, pool), [*rows_of(0, [], "mean"), *rows_of(2, [], "mean")])
    for number, state_sum in found.items():
        assert summed(state_sum) == pytest.approx(pooled(model, number, "mean"), abs=5e-3)
