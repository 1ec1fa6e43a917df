"""Served models that files bring drafters for: their drafts are accepted, and change no text."""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from draftwerk import LLM, SamplingParams
from tests.support.asking_process import asking_processes
from tests.support.assistant_models import HEAD as ASSISTANT
from tests.support.assistant_models import AssistantOracle
from tests.support.dflash_models import HEAD as DFLASH
from tests.support.dflash_models import DFlashOracle
from tests.support.eagle_models import HEAD, EagleOracle
from tests.support.killed_target import tokens_of
from tests.support.tiny_models import copy_text, have_tokens_follow, text_sizes, tiny_model
from tests.support.waiting import wait_until

PARAMS = SamplingParams(max_tokens=50, temperature=0.0, ignore_eos=True)
PROMPTS = [[17 * n + 3 * i + 100 for i in range(10 + 33 * n)] for n in range(4)]
SERVED: dict[str, Any] = {"dtype": "bf16", "kv_memory": "8MiB", "spare": "off"}
CASES = (
    pytest.param("llama with a draft model", marks=pytest.mark.grid),
    "gemma4_text with a draft model",
    pytest.param("llama with an EAGLE-3 head", marks=pytest.mark.grid),
    "llama with a DFlash drafter",
    "gemma4_text with its assistant as a head",
)
ACCEPTED = {"draft": 120, "head": 20}
"""Of the tokens of all texts, at least."""
WINDOWS = {"sliding_window": 100, "max_position_embeddings": 8192}


@pytest.fixture(scope="module", params=CASES)
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[LLM]:
    """A server in which every row is drafted for, whatever it costs."""
    folder = tmp_path_factory.mktemp("pair")
    how = save_pair(folder, request.param)
    with asking_processes(), LLM(str(folder), **how, **SERVED) as made:
        yield made


def save_pair(folder: Path, case: str) -> dict[str, str]:
    """Save a model and what drafts for it, right as a rule; return how it is to draft."""
    sizes = text_sizes()
    if case.endswith("assistant as a head"):
        of: dict[str, Any] = {**sizes, "sliding_window": WINDOWS["sliding_window"]}
        AssistantOracle(folder, **of).make_right(0.01)
        copy_text(folder)
        return {"speculate": "head", "draft_head": str(folder / ASSISTANT)}
    if case.endswith("DFlash drafter"):
        DFlashOracle(folder, sizes=sizes).make_right(0.0)
        copy_text(folder)
        return {"speculate": "head", "draft_head": str(folder / DFLASH)}
    if case.endswith("head"):
        EagleOracle(folder, guessed=sizes["vocab_size"], sizes=sizes).make_right(0.03)
        copy_text(folder)
        return {"speculate": "head", "draft_head": str(folder / HEAD)}
    family = case.split()[0]
    small = {"gemma4_text": "gemma3_text"}.get(family, family)
    for name, kind, hidden in (("", family, 32), ("small", small, 16)):
        changes: dict[str, Any] = {**sizes, "hidden_size": hidden}
        if family != small:
            changes |= WINDOWS
        if kind == "gemma4_text":
            changes["vocab_size_per_layer_input"] = sizes["vocab_size"]
            changes["final_logit_softcapping"] = None
        model = have_tokens_follow(tiny_model(kind, seed=len(name), **changes))
        model.save_pretrained(folder / name)
        copy_text(folder / name)
    return {"speculate": "draft", "draft": str(folder / "small")}


def source_of(llm: LLM) -> str:
    (source,) = llm.snapshot().counts.accepted_by_source
    return source


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_are_accepted_and_change_no_text(llm: LLM, temperature: float) -> None:
    params = replace(PARAMS, temperature=temperature, seed=5)
    off = replace(params, speculation="off", cache_salt="off")
    plain = tokens_of([llm.generate(prompt, off) for prompt in PROMPTS])
    before = llm.snapshot().counts
    found = llm.batch(PROMPTS, params)
    assert tokens_of(found) == plain
    counts, source = llm.snapshot().counts, source_of(llm)
    accepted = counts.accepted_tokens - before.accepted_tokens
    assert accepted > ACCEPTED[source]
    assert counts.accepted_by_source == {source: counts.accepted_tokens}
    assert sum(each.origins.count(source) for each in found) == accepted


def test_what_was_read_before_is_found_and_drafted_for(llm: LLM) -> None:
    conversation = PROMPTS[1]
    for turn in range(3):
        found = llm.generate(conversation, PARAMS)
        off = replace(PARAMS, speculation="off", cache_salt=str(turn))
        assert tokens_of([llm.generate(conversation, off)]) == tokens_of([found])
        assert found.origins.count(source_of(llm)) > 10
        details = found.usage.prompt_tokens_details
        if turn:
            assert details and details.cached_tokens >= len(conversation) - 2 * 16 - 9
        conversation = [*conversation, *tokens_of([found])[0], *range(400 + turn, 409 + turn)]


@pytest.mark.grid
def test_a_killed_process_changes_no_text(llm: LLM) -> None:
    """In the gate test_model_faults ends processes under drafters, and test_kills real ones."""
    off = replace(PARAMS, speculation="off", cache_salt="off")
    plain = tokens_of([llm.generate(prompt, off) for prompt in PROMPTS])
    victim = llm.snapshot().models.processes["target"]
    assert victim is not None
    streams = [llm.stream(prompt, PARAMS) for prompt in PROMPTS]
    texts = [[*next(stream).token_ids] for stream in streams]
    os.kill(victim, signal.SIGKILL)
    for text, stream in zip(texts, streams, strict=True):
        text += [token for delta in stream for token in delta.token_ids]
    assert texts == plain
    wait_until(lambda: llm.snapshot().models.processes["target"] not in (victim, None))
