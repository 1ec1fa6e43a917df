"""Every family served computes what Transformers computes."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import torch
from msgspec.structs import replace
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.config import Graph, ModelConfig
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.loader import load
from draftwerk.speculative.sampling import Sampling
from tests.support.model_driver import Driver, generate, trees_along
from tests.support.runners import make_runner, plain_logits
from tests.support.tiny_models import (
    CASES,
    FAMILIES,
    VOCAB,
    oracle_greedy,
    oracle_logits,
    save_tiny,
)

GREEDY = Sampling(temperature=0.0)
cases = pytest.mark.parametrize(("family", "changes"), CASES.values(), ids=CASES)
families = pytest.mark.parametrize(
    ("family", "changes"),
    [pytest.param(*case, marks=pytest.mark.grid if case[1] else ()) for case in CASES.values()],
    ids=CASES,
)
"""Variants of a family are compared by their logits; their texts by `make test-grid`."""


@cases
def test_logits_equal_those_of_transformers(family, changes, tmp_path: Path):
    oracle = save_tiny(tmp_path, family, **changes)
    model = load(str(tmp_path), torch.float32)
    tokens = Random(1).choices(range(VOCAB), k=150)
    ours = plain_logits(model.config, model.weights, tokens)
    assert (ours - oracle_logits(oracle, tokens)).abs().max() < 1e-4


@families
def test_greedy_text_equals_transformers_for_any_schedule_and_drafts(
    family, changes, tmp_path: Path
):
    oracle = save_tiny(tmp_path, family, **changes)
    rng = Random(2)
    prompts = [[rng.randrange(VOCAB) for _ in range(rng.randint(1, 40))] for _ in range(2)]
    truths = [oracle_greedy(oracle, prompt, 20) for prompt in prompts]
    guess = trees_along(rng, dict(enumerate(truths)), VOCAB)
    driver = Driver(make_runner(tmp_path), rng, guess, chunk_max=9, preempts=0.05)
    lives = [driver.add(index, prompt, GREEDY, 20) for index, prompt in enumerate(prompts)]
    driver.run()
    assert [live.output for live in lives] == truths
    assert sum(len(d.path) for live in lives for d in live.decisions) > 6


def test_a_sharded_checkpoint_is_read_by_its_index(tmp_path: Path):
    oracle = save_tiny(tmp_path, "llama")
    (tmp_path / "model.safetensors").unlink()
    oracle.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    text = generate(make_runner(tmp_path), [5, 6, 7], GREEDY, 8)
    assert text == oracle_greedy(oracle, [5, 6, 7], 8)


def test_a_bf16_checkpoint_is_upcast_for_fp32(tmp_path: Path):
    oracle = save_tiny(tmp_path, "llama").to(torch.bfloat16)
    oracle.save_pretrained(tmp_path)
    text = generate(make_runner(tmp_path), [5, 6, 7], GREEDY, 8)
    assert text == oracle_greedy(oracle.float(), [5, 6, 7], 8)


@pytest.mark.parametrize("family", [row.model_type for row in ARCHITECTURES if row.experts])
def test_experts_are_read_as_transformers_has_them_in_memory(family: str, tmp_path: Path):
    save_tiny(tmp_path / "own", family).save_pretrained(
        tmp_path / "stacked", save_original_format=False
    )
    own, stacked = (load(str(tmp_path / each), torch.float32) for each in ("own", "stacked"))
    for ours, theirs in zip(own.weights.layers, stacked.weights.layers, strict=True):
        if ours.experts is None or theirs.experts is None:
            assert ours.experts is theirs.experts
            continue
        assert torch.equal(ours.experts.router, theirs.experts.router)
        pairs = zip(ours.experts.gate_up, theirs.experts.gate_up, strict=True)
        assert all(torch.equal(*pair) for pair in pairs)
        assert all(map(torch.equal, ours.experts.down, theirs.experts.down))
    assert read_info(locate(str(tmp_path / "stacked"))).elements > 0


def test_the_text_part_of_a_model_with_images_is_served(tmp_path: Path):
    text = {
        **{"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
        **{"head_dim": 8, "max_position_embeddings": 512, "sliding_window": 17},
    }
    images = {
        **{"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "image_size": 28, "patch_size": 14},
    }
    config = Gemma3Config(text_config=text, vision_config=images, image_token_index=VOCAB - 1)
    model = Gemma3ForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text())
    (tmp_path / "generation_config.json").unlink()
    # As Google's: what the class says is not said again.
    for field in ("rope_parameters", "layer_types", "hidden_activation", "query_pre_attn_scalar"):
        del saved["text_config"][field]
    path.write_text(json.dumps(saved | {"eos_token_id": [1, 2]}))
    text = generate(make_runner(tmp_path), [5, 6, 7], GREEDY, 24)
    assert text == oracle_greedy(model, [5, 6, 7], 24)
    assert read_config(tmp_path).eos_token_ids == (1, 2)


def switches_of(config: ModelConfig) -> Iterator[ModelConfig]:
    """Yield a config without one of its switches, for each that it has."""
    plain = Graph()
    for name in Graph.__struct_fields__:
        default = getattr(plain, name)
        # In float32 nothing is rounded; norms of other sizes cannot be computed at all.
        if "round" in name or name in (
            *("norm", "head_norm", "is_gated", "temperature_length"),
            "has_output_gate",
        ):
            continue
        if getattr(config.graph, name) != default:
            yield replace(config, graph=replace(config.graph, **{name: default}))
    if config.graph.gate_limit:
        yield replace(config, graph=replace(config.graph, gate_limit=1e9))
    if config.experts and config.experts.shared_is_gated:
        yield replace(config, experts=replace(config.experts, shared_is_gated=False))
    if config.layers:
        # Heads of another size do not turn by the other rotary.
        flipped = [
            replace(kind, rotary=0 if kind.rotary and not kind.head_size else -1)
            for kind in config.layers
        ]
        yield replace(config, layers=tuple(flipped))
    if any(kind.window for kind in config.layers):
        for more in (-1, 1):
            wider = [replace(k, window=k.window and k.window + more) for k in config.layers]
            yield replace(config, layers=tuple(wider))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_switch_of_a_family_could_be_missed(family: str, tmp_path: Path):
    """Each of them, left out, is a difference that the comparison above would find."""
    oracle = save_tiny(tmp_path, family)
    model = load(str(tmp_path), torch.float32)
    tokens = Random(1).choices(range(VOCAB), k=60)
    truth = oracle_logits(oracle, tokens)
    for config in switches_of(model.config):
        ours = plain_logits(config, model.weights, tokens)
        assert (ours - truth).abs().max() > 1e-3, config


@pytest.mark.parametrize("row", ARCHITECTURES, ids=lambda row: row.model_type)
def test_a_row_without_a_summary_is_llamas_graph_but_for_windows(row, tmp_path: Path):
    """So the table tells what GPUs and ranks refuse, and they do it by the switch's name."""
    save_tiny(tmp_path, row.model_type)
    unlike = read_config(tmp_path).unlike_llama()
    assert row.summary or unlike in ("", "sliding_window")
    if row.model_type not in ("phi3",):  # whose smallest config is plain
        assert bool(row.summary) <= bool(unlike)
