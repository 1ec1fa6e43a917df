"""Every family served computes what Transformers computes."""

from pathlib import Path
from random import Random

import pytest
import torch

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.speculative.protocol.rounds import NO_DRAFT
from draftwerk.speculative.sampling.params import Sampling
from tests.support.model_driver import Driver, Live, random_tree
from tests.support.runners import make_runner
from tests.support.tiny_models import FAMILIES, VOCAB, oracle_greedy, oracle_logits, save_tiny

GREEDY = Sampling(temperature=0.0)
CASES = {
    "llama, grouped queries": ("llama", {}),
    "llama, one KV head": ("llama", {"num_key_value_heads": 1}),
    "llama, one KV head each": ("llama", {"num_key_value_heads": 4}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, wide heads": ("llama", {"head_dim": 16}),
    "llama, linear rope": ("llama", {"rope": "linear"}),
    "llama, llama3 rope": ("llama", {"rope": "llama3"}),
    "llama, yarn rope": ("llama", {"rope": "yarn"}),
    "mistral": ("mistral", {}),
    "qwen2, biases": ("qwen2", {}),
    "qwen2, tied, one KV head": ("qwen2", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qwen3, query and key norms": ("qwen3", {}),
    "qwen3, biases, yarn": ("qwen3", {"attention_bias": True, "rope": "yarn"}),
}
CASES |= {family: (family, {}) for family in FAMILIES.keys() - {of for of, _ in CASES.values()}}
cases = pytest.mark.parametrize(("family", "changes"), CASES.values(), ids=CASES)


@cases
def test_logits_equal_those_of_transformers(family, changes, tmp_path: Path):
    oracle = save_tiny(tmp_path, family, **changes)
    runner = make_runner(tmp_path)
    tokens = [Random(1).randrange(VOCAB) for _ in range(150)]
    layout = BatchBuilder(runner.pages.block_size)
    layout.add(tokens, 0, tuple(range(38)), NO_DRAFT, samples=False)
    layout.outputs = list(range(len(tokens)))
    ours = runner.parts.run(layout)
    assert (ours - oracle_logits(oracle, tokens)).abs().max() < 1e-4


@cases
def test_greedy_text_equals_transformers_for_any_schedule_and_drafts(
    family, changes, tmp_path: Path
):
    oracle = save_tiny(tmp_path, family, **changes)
    rng = Random(2)
    prompts = [[rng.randrange(VOCAB) for _ in range(rng.randint(1, 40))] for _ in range(3)]
    truths = [oracle_greedy(oracle, prompt, 24) for prompt in prompts]

    def guess(live: Live, room: int):
        return random_tree(rng, truths[live.sequence_id][len(live.output) :], VOCAB, room)

    driver = Driver(make_runner(tmp_path), rng, guess, chunk_max=9)
    lives = [driver.add(index, prompt, GREEDY, 24) for index, prompt in enumerate(prompts)]
    driver.run()
    assert [live.output for live in lives] == truths
    assert sum(len(d.path) for live in lives for d in live.decisions) > 10


def test_a_sharded_checkpoint_is_read_by_its_index(tmp_path: Path):
    oracle = save_tiny(tmp_path, "llama")
    (tmp_path / "model.safetensors").unlink()
    oracle.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    runner = make_runner(tmp_path)
    driver = Driver(runner)
    live = driver.add(0, [5, 6, 7], GREEDY, 8)
    driver.run()
    assert live.output == oracle_greedy(oracle, [5, 6, 7], 8)


def test_a_bf16_checkpoint_is_upcast_for_fp32(tmp_path: Path):
    oracle = save_tiny(tmp_path, "llama").to(torch.bfloat16)
    oracle.save_pretrained(tmp_path)
    driver = Driver(make_runner(tmp_path))
    live = driver.add(0, [5, 6, 7], GREEDY, 8)
    driver.run()
    assert live.output == oracle_greedy(oracle.float(), [5, 6, 7], 8)
