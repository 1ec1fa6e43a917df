"""A served model whose windows have blocks of their own: long texts, turns, kills."""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from threading import Event, Thread

import pytest
from msgspec.structs import replace

from draftwerk import LLM, RequestOutput, SamplingParams
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


def tokens_of(outputs: list[RequestOutput]) -> list[list[int]]:
    return [list(each.choices[0].token_ids) for each in outputs]


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


def test_a_killed_model_process_changes_no_text(llm: LLM) -> None:
    plain = tokens_of([llm.generate(prompt, LONG) for prompt in PROMPTS])
    recoveries, over = llm.snapshot().models.recoveries, Event()

    def kill_while_it_works() -> None:
        while not over.wait(0.01):
            models = llm.snapshot()
            victim = models.models.processes.get("target")
            if models.load.running == len(PROMPTS) and victim:
                os.kill(victim, signal.SIGKILL)
                return

    for _ in range(2):
        killer = Thread(target=kill_while_it_works)
        killer.start()
        assert tokens_of(llm.batch(PROMPTS, LONG)) == plain
        over.set()
        killer.join()
        over.clear()
    assert llm.snapshot().models.recoveries > recoveries
