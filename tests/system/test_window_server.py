"""A served model whose windows have blocks of their own: long texts, turns, kills."""

from collections.abc import Generator
from pathlib import Path

import pytest
from msgspec.structs import replace

from draftwerk import LLM, SamplingParams
from tests.support.killed_target import check_kills, tokens_of
from tests.support.tiny_models import save_tiny_with_text

PARAMS = SamplingParams(max_tokens=80, temperature=0.0, ignore_eos=True)
LONG = replace(PARAMS, max_tokens=400)
PROMPTS = [[17 * n + 3 * i + 100 for i in range(20 + 60 * n)] for n in range(6)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("windows")
    sizes = {"sliding_window": 100, "max_position_embeddings": 8192}
    save_tiny_with_text(path, 3, "gemma3_text", **sizes)
    return path


@pytest.fixture(scope="module")
def llm(checkpoint: Path) -> Generator[LLM]:
    with LLM(str(checkpoint), dtype="bf16", kv_memory="8MiB") as made:
        yield made


def test_the_texts_are_those_of_a_server_whose_layers_share_their_blocks(
    llm: LLM, checkpoint: Path, tmp_path: Path
) -> None:
    own = llm.snapshot().load.blocks_total
    found = tokens_of(llm.batch(PROMPTS, PARAMS))
    with LLM(str(checkpoint), dtype="bf16", kv_memory="8MiB", kv_store=str(tmp_path)) as other:
        assert own > 1.3 * other.snapshot().load.blocks_total
        assert tokens_of(other.batch(PROMPTS, PARAMS)) == found


def test_each_turn_of_a_conversation_reads_what_is_new(llm: LLM) -> None:
    conversation = list(range(300, 340))
    for turn in range(6):
        found = llm.generate(conversation, PARAMS)
        details = found.usage.prompt_tokens_details
        assert details
        if turn:  # all but what is new, and the last block of before, which was not full
            assert len(conversation) - details.cached_tokens <= 30 + 2 * 16
        salted = replace(PARAMS, cache_salt=str(turn))
        assert tokens_of([llm.generate(conversation, salted)]) == tokens_of([found])
        conversation += [*tokens_of([found])[0], *range(400 + turn, 430 + turn)]


@pytest.mark.grid
def test_a_killed_model_process_changes_no_text(llm: LLM) -> None:
    """In the gate the simulation kills processes under windows, and test_kills real ones."""
    plain = tokens_of([llm.generate(prompt, LONG) for prompt in PROMPTS])
    check_kills(llm, lambda: llm.batch(PROMPTS, LONG), plain)
