"""Families that only Transformers knows are computed over pages as Transformers computes them."""

import json
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.files.shards import stored_tensors
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.generic.causal_lm import read_causal
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.options.beams.decisions import BeamRules
from draftwerk.speculative.rounds import NO_DRAFT
from draftwerk.speculative.sampling import Sampling
from tests.support.beams.beam_searching import Server, assert_same, found_by_transformers
from tests.support.changed_files import say
from tests.support.model_driver import Driver, generate, random_tree, trees_along
from tests.support.one_thread import one_torch_thread as one_torch_thread
from tests.support.sampled import in_gate
from tests.support.tiny_models import VOCAB, oracle_greedy, oracle_logits, save_tiny
from tests.support.undeclared_models import (
    UNDECLARED,
    generic_forward,
    generic_runner,
    save_undeclared,
    save_with_images,
)

GREEDY = Sampling(temperature=0.0)
GOAL = 24
families = pytest.mark.parametrize("family", UNDECLARED)
KINDS = ("gpt_neox", "opt", "qwen2_moe", "vaultgemma", "gemma4_text with experts")
"""One of each kind, whose texts the gate compares too; of all it compares logits."""


def test_at_least_ten_of_the_families_are_not_declared() -> None:
    assert len([name for name, _ in UNDECLARED.values() if name not in BY_CLASS]) >= 10


def random_text(seed: int, count: int) -> list[int]:
    return Random(seed).choices(range(VOCAB), k=count)


def logits_of(runner: TargetRunner, text: list[int], cuts: list[int]) -> Tensor:
    """Return the logits of a text that is computed in chunks."""
    found: list[Tensor] = []
    for start, stop in pairwise([0, *cuts, len(text)]):
        builder = BatchBuilder(runner.pages.block_size)
        scored = range(stop - start)
        builder.add(text[start:stop], start, tuple(range(38)), NO_DRAFT, False, scored)
        found.append(runner.parts.run(builder))
    return torch.cat(found)


@families
def test_logits_are_those_of_eager_attention_in_chunks_of_any_sizes(family, tmp_path: Path):
    oracle, runner = save_undeclared(tmp_path, family), generic_runner(tmp_path)
    text = random_text(1, 150)
    whole = logits_of(runner, text, [])
    assert (whole - oracle_logits(oracle, text)).abs().max() < 1e-4
    assert torch.equal(logits_of(runner, text, [1, 2, 5, 37, 69, 70, 134]), whole)


@pytest.mark.parametrize("family", in_gate(UNDECLARED, KINDS))
def test_greedy_texts_are_those_of_transformers_for_any_schedule_and_drafts(family, tmp_path):
    oracle, rng = save_undeclared(tmp_path, family), Random(2)
    prompts = [random_text(seed, count) for seed, count in ((3, 1), (4, 23), (5, 40))]
    truths = [oracle_greedy(oracle, prompt, GOAL) for prompt in prompts]
    guess = trees_along(rng, dict(enumerate(truths)), VOCAB)
    driver = Driver(generic_runner(tmp_path), rng, guess, chunk_max=9, preempts=0.05)
    lives = [driver.add(index, prompt, GREEDY, GOAL) for index, prompt in enumerate(prompts)]
    driver.run()
    assert [live.output for live in lives] == truths
    assert sum(len(d.path) for live in lives for d in live.decisions) > 10
    assert generate(generic_runner(tmp_path), prompts[1], GREEDY, GOAL) == truths[1]


@families
@pytest.mark.parametrize("dtype", ["bf16", pytest.param("fp32", marks=pytest.mark.grid)])
def test_a_row_has_the_same_bits_alone_and_among_others_and_their_trees(family, dtype, tmp_path):
    save_undeclared(tmp_path, family)
    runner, rng, text = generic_runner(tmp_path, dtype), Random(6), random_text(7, 90)
    whole = logits_of(runner, text, [])
    for start in (1, 31, 77):
        builder = BatchBuilder(4)
        for number, count in enumerate((3, 1, 50)):
            blocks = tuple(range(40 + 18 * number, 58 + 18 * number))
            tree = random_tree(rng, [], VOCAB, 12)
            builder.add(random_text(number, count), 0, blocks, tree, samples=True)
        tree = random_tree(rng, text[start + 1 :], VOCAB, 12)
        right, node = [0], -1
        while (node := tree.children().get((node, text[start + len(right)]), -1)) >= 0:
            right.append(node + 1)
        first = builder.add([text[start]], start, tuple(range(38)), tree, samples=True)
        logits = runner.parts.run(builder)[[first + node for node in right]]
        assert torch.equal(logits, whole[start : start + len(right)])
        logits_of(runner, text, [])  # what the tree has overwritten


@pytest.mark.parametrize("family", ["gemma4_text", "opt", "qwen2_moe"])
def test_beams_prefix_hits_and_preemptions_change_no_text(family, tmp_path: Path):
    oracle = save_undeclared(tmp_path, family)
    prompt = random_text(8, 33)
    rules = BeamRules(width=4, tokens_max=14, stop_token_ids=())
    expected = found_by_transformers(oracle, tuple(prompt), rules)
    plain = tuple(oracle_greedy(oracle, prompt, 14))
    for block_count, draft_max in ((256, 0), (256, 16), (24, 16)):
        server = Server(generic_runner(tmp_path, block_count=block_count), draft_max)
        names = [server.submit(prompt, None, GREEDY)]
        server.run()  # what comes next finds its prompt
        search = server.submit(prompt, rules, GREEDY)
        names += [server.submit(prompt, None, GREEDY) for _ in range(3)]
        server.run()
        assert_same(server.result(search), expected)
        assert [server.found[name] for name in names] == [[plain]] * 4
        stats = server.scheduler.stats
        assert stats.prefix_hits > 0
        assert (stats.preemptions > 0) == (block_count == 24)


def test_a_declared_family_is_the_same_through_transformers(tmp_path: Path):
    oracle = save_tiny(tmp_path, "gemma3_text")
    text = random_text(9, 60)
    logits = logits_of(generic_runner(tmp_path), text, [])
    assert (logits - oracle_logits(oracle, text)).abs().max() < 1e-4


def test_layers_of_unlike_sizes_share_planes(tmp_path: Path):
    save_undeclared(tmp_path, "gemma4_text")
    model = read_causal(tmp_path)
    assert [each.plane for each in model.layers] == [0, 1, 2, 3, 3, 2, 2]
    assert [each.head_size for each in model.layers] == [8, 8, 12, 8, 8, 12, 12]
    assert (model.plane_count, model.num_kv_heads, model.head_size) == (4, 1, 24)


@pytest.mark.parametrize("name", ["Gemma4", "Llava"])
def test_the_text_of_a_model_with_images_is_the_language_models(name: str, tmp_path: Path):
    oracle = save_with_images(tmp_path, name)
    assert any("vision_tower" in each for each in stored_tensors(tmp_path))
    text = random_text(11, 60)
    logits = logits_of(generic_runner(tmp_path), text, [])
    assert (logits - oracle_logits(oracle, text)).abs().max() < 1e-4


def test_experts_stored_one_by_one_and_shards_are_read(tmp_path: Path):
    oracle = save_undeclared(tmp_path, "dots1")
    (tmp_path / "model.safetensors").unlink()
    oracle.save_pretrained(tmp_path, max_shard_size="20KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert any(".experts.5." in name for name in index["weight_map"])
    text = random_text(10, 40)
    logits = logits_of(generic_runner(tmp_path), text, [])
    assert (logits - oracle_logits(oracle, text)).abs().max() < 1e-4


def test_weights_that_are_not_the_configs_are_refused_by_the_tensors_name(tmp_path: Path):
    save_undeclared(tmp_path, "phi", num_hidden_layers=1)
    say(tmp_path, num_hidden_layers=2)
    with pytest.raises(Refused, match=r"the weights lack model\.layers\.1\."):
        generic_forward(tmp_path)
    say(tmp_path, num_hidden_layers=1, qk_layernorm=False)
    with pytest.raises(Refused, match=r"the weights hold the unknown model\.layers\.0\..*norm"):
        generic_forward(tmp_path)
    say(tmp_path, qk_layernorm=True, intermediate_size=50)
    with pytest.raises(Refused, match="Transformers does not load it: "):
        generic_forward(tmp_path)


def test_pickles_are_not_read(tmp_path: Path):
    model = save_undeclared(tmp_path, "phi")
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(Refused, match="safetensors"):
        generic_forward(tmp_path)


def test_states_are_what_the_head_reads(tmp_path: Path):
    oracle, runner = save_undeclared(tmp_path, "phi"), generic_runner(tmp_path)
    text = random_text(11, 30)
    logits_of(runner, text, [])
    with torch.no_grad():
        truth = oracle.model(torch.tensor([text])).last_hidden_state[0]
    assert (runner.parts.states - truth).abs().max() < 1e-4
