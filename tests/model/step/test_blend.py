"""Blended prompts: the pages and logits of the definition, whatever was cached or computed when."""

from collections.abc import Sequence
from random import Random

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.reference import attend
from draftwerk.model.attention.tiled import TiledAttention
from draftwerk.model.batch.batch import Pages
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.kv_pages import NativeTurn
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.speculative.options.blend.rules import (
    BEGINNING,
    CHECK_LAYER,
    canonical_parts,
    choose_positions,
)
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.rounds import NO_DRAFT
from draftwerk.speculative.row_parts.row_blend import RowBlend
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sequence import Sequence as Request
from draftwerk_tools.trials.blend_trial import BlendTrial
from tests.model.native.models import random_pages, random_tokens, random_weights, tiny_config
from tests.support.rounds import asked, make_row, proposed
from tests.support.torch_turn import TorchTurn

CONFIG = tiny_config(head_size=32, layer_count=4)
SIZE, BLOCKS = 16, 96
PASSAGES = [random_tokens(count, seed=count) for count in (36, 19, 52)]
RULES = [
    ("none", 0.0),
    ("head", 0.15),
    ("head", 1.0),
    ("hkvd", 0.15),
    ("hkvd", 0.5),
    ("hkvd", 1.0),
]


def prompt_of(order: Sequence[int], question: int) -> tuple[list[int], tuple[tuple[int, int], ...]]:
    """Return a prompt of passages in an order with a few words between them, and their spans."""
    prompt, spans = random_tokens(21, seed=100), []
    for number in order:
        spans.append((len(prompt), len(prompt) + len(PASSAGES[number])))
        prompt += PASSAGES[number] + random_tokens(3, seed=200)
    return prompt + random_tokens(12, seed=question), tuple(spans)


FORMATS = ["fp32", "bf16", "int4", "torch", "torch tiled"]
CASES = [
    *(("bf16", *rule) for rule in RULES),
    ("fp32", "hkvd", 0.15),
    ("int4", "hkvd", 0.15),
    ("torch", "hkvd", 0.15),
    ("torch tiled", "head", 0.15),
]


@pytest.fixture(scope="module", params=FORMATS)
def parts(request: pytest.FixtureRequest, pool: Pool) -> LoadedModel:
    weights = random_weights(CONFIG)
    frequencies = CONFIG.rope_inverse_frequencies
    if request.param.startswith("torch"):
        attention = TiledAttention() if "tiled" in request.param else attend
        forward, turn = TorchForward(CONFIG, weights, attention), TorchTurn(frequencies)
        dtype = torch.float32
    else:
        forward = NativeForward(CONFIG, weights, request.param, pool)
        turn, dtype = NativeTurn(pool, frequencies), forward.page_dtype
    pages = random_pages(CONFIG, dtype, BLOCKS, SIZE)
    return LoadedModel(forward=forward, pages=pages, vocab_size=CONFIG.vocab_size, turn_slots=turn)


class Oracle:
    """The definition, a token at a time over pages of its own: no scheduler, no cache, no reuse."""

    def __init__(self, parts: LoadedModel) -> None:
        self.parts = parts
        self.pages = random_pages(CONFIG, parts.pages.keys.dtype, BLOCKS, SIZE)
        self.own, self.other = tuple(range(40)), tuple(range(40, 80))

    def compute(
        self,
        tokens: Sequence[int],
        at: int,
        blocks: tuple[int, ...],
        layers: int | None = None,
    ) -> Tensor:
        builder = BatchBuilder(SIZE)
        builder.add(list(tokens), at, blocks, NO_DRAFT, samples=layers is None)
        batch = builder.batch(torch.device("cpu"))
        batch.layers = layers
        return self.parts.forward(batch, self.pages)

    def slots(self, tensor: Tensor, blocks: tuple[int, ...], start: int, stop: int) -> Tensor:
        return tensor[:, list(blocks)].flatten(1, 2)[:, start:stop]

    def read(self, prompt: list[int], blend: Blend) -> tuple[Tensor, Pages, frozenset[int]]:
        """Return the last token's logits, keys and values of the prompt, and what was chosen."""
        kept = canonical_parts(blend, len(prompt), SIZE)
        keys, values = {}, {}
        turn = self.parts.turn_slots
        assert turn is not None
        for part in kept:
            self.compute(part.text(prompt), 0, self.other)
            targets = list(range(part.length))
            sources = [40 * SIZE + part.beginning + at for at in targets]
            turn(self.pages, sources, targets, part.turn)
            for at in targets:
                one = (
                    self.slots(tensor, self.own, at, at + 1).clone()
                    for tensor in (self.pages.keys, self.pages.values)
                )
                keys[part.start + at], values[part.start + at] = one
        deviations: list[float] = []
        if blend.probes:
            self.compute(prompt, 0, self.own, CHECK_LAYER + 1)
            for at in keys:
                total = 0.0
                for tensor, old in ((self.pages.keys, keys), (self.pages.values, values)):
                    new = self.slots(tensor, self.own, at, at + 1)
                    total += float((new.float() - old[at].float())[CHECK_LAYER].square().sum())
                    old[at][: CHECK_LAYER + 1] = new[: CHECK_LAYER + 1]
                deviations.append(total)
        chosen = choose_positions(blend, kept, deviations)
        logits = torch.empty(0)
        for at, token in enumerate(prompt):
            if at in keys and at not in chosen:
                for tensor, old in ((self.pages.keys, keys), (self.pages.values, values)):
                    tensor[:, self.own[at // SIZE], at % SIZE] = old[at][:, 0]
            else:
                logits = self.compute([token], at, self.own)
        return logits[0], self.pages, chosen


def both(pages: Pages) -> tuple[Tensor, Tensor]:
    return pages.keys, pages.values


def assert_same(parts: LoadedModel, one: Tensor, other: Tensor) -> None:
    """Assert equal bits of the kernels, and equal numbers of their twin: it promises no more."""
    if isinstance(parts.forward, NativeForward):
        assert torch.equal(one, other)
    else:
        assert torch.allclose(one, other, atol=2e-3)


def own_slots(pages: Pages, request: Request, stop: int) -> tuple[Tensor, Tensor]:
    blocks = list(request.memory.table.blocks)
    keys, values = (part[:, blocks].flatten(1, 2)[:, :stop] for part in (pages.keys, pages.values))
    return keys, values


@pytest.mark.parametrize(("parts", "rule", "ratio"), CASES, indirect=["parts"])
def test_a_blended_prompt_is_its_definition(parts: LoadedModel, rule: str, ratio: float) -> None:
    """Found or not, in whatever rounds: the same bits as token by token."""
    trial = BlendTrial(target_runner(parts), tokens_max=37)
    for order, question in (((0, 1, 2), 1), ((2, 0), 2)):
        prompt, spans = prompt_of(order, question)
        blend = Blend(spans, rule, ratio)
        logits, pages, _ = Oracle(parts).read(prompt, blend)
        for tokens_max in (37, 256):
            trial.tokens_max = tokens_max
            request = trial.read(prompt, blend).sequence
            theirs = (part[:, :40].flatten(1, 2)[:, : len(prompt)] for part in both(pages))
            for ours, want in zip(
                own_slots(parts.pages, request, len(prompt)), theirs, strict=True
            ):
                assert_same(parts, ours, want)
            assert_same(parts, trial.logits(request, [])[0], logits)
            trial.close(request)
            trial.scheduler.check()


@pytest.mark.parametrize("rule", ["hkvd", "head"])
def test_ratio_1_is_the_exact_prefill(parts: LoadedModel, rule: str) -> None:
    trial = BlendTrial(target_runner(parts))
    prompt, spans = prompt_of((0, 2, 1), 5)
    exact = trial.read(prompt).sequence
    ours = trial.read(prompt, Blend(spans, rule, 1.0)).sequence
    pairs = zip(
        own_slots(parts.pages, exact, len(prompt)),
        own_slots(parts.pages, ours, len(prompt)),
        strict=True,
    )
    for one, other in pairs:
        assert_same(parts, one, other)
    assert_same(parts, trial.logits(exact, [1, 2]), trial.logits(ours, [1, 2]))


@pytest.mark.parametrize("parts", ["fp32", "bf16", "torch"], indirect=True)
def test_the_first_segment_right_behind_the_beginning_is_exact(parts: LoadedModel) -> None:
    trial = BlendTrial(target_runner(parts))
    prompt, _ = prompt_of((2,), 7)
    beginning, passage = prompt[:BEGINNING], PASSAGES[2]
    prompt = [*beginning, *passage, *random_tokens(9, seed=3)]
    blend = Blend(((BEGINNING, BEGINNING + len(passage)),), "none")
    exact = trial.logits(trial.read(prompt).sequence, [])
    assert_same(parts, trial.logits(trial.read(prompt, blend).sequence, []), exact)


def test_the_choice_is_that_of_whole_layers_in_torch(pool: Pool) -> None:
    """HKVD against an oracle that reads segments and prompt in one go, by Transformers' formula."""
    weights, frequencies = random_weights(CONFIG), CONFIG.rope_inverse_frequencies
    prompt, spans = prompt_of((2, 0, 1), 9)
    blend = Blend(spans, "hkvd", 0.15)
    forward = TorchForward(CONFIG, weights, attend)

    def keys_values(tokens: Sequence[int], offset: int = 0) -> Tensor:
        pages = random_pages(CONFIG, torch.float32, BLOCKS, SIZE)
        builder = BatchBuilder(SIZE)
        builder.add(list(tokens), 0, tuple(range(40)), NO_DRAFT, samples=True)
        batch = builder.batch(torch.device("cpu"))
        batch.positions += offset
        forward(batch, pages)
        both = torch.cat([pages.keys[CHECK_LAYER], pages.values[CHECK_LAYER]], -1)
        return both[:40].flatten(0, 1)[: len(tokens)].flatten(1)

    whole = keys_values(prompt)
    kept = canonical_parts(blend, len(prompt), SIZE)
    places = [at for part in kept for at in range(part.start, part.stop)]
    alone = torch.cat([keys_values(p.text(prompt), p.turn)[p.beginning :] for p in kept])
    distances = (whole[places] - alone).square().sum(1)
    count = -(-len(places) * 15 // 100)
    wanted = {places[at] for at in distances.topk(count).indices.tolist()}
    native = NativeForward(CONFIG, weights, "fp32", pool)
    for parts in (
        LoadedModel(
            forward=native,
            pages=random_pages(CONFIG, torch.float32, BLOCKS, SIZE),
            vocab_size=CONFIG.vocab_size,
            turn_slots=NativeTurn(pool, frequencies),
        ),
        LoadedModel(
            forward=forward,
            pages=random_pages(CONFIG, torch.float32, BLOCKS, SIZE),
            vocab_size=CONFIG.vocab_size,
            turn_slots=TorchTurn(frequencies),
        ),
    ):
        trial = BlendTrial(target_runner(parts))
        request = trial.sequence(prompt, blend, 2)
        trial.scheduler.submit(request)
        assert request.blending is not None
        while request.blending.chosen is None:
            trial.step()
        assert request.blending.chosen == wanted


@pytest.mark.parametrize("parts", ["fp32", "bf16"], indirect=True)
def test_prompts_in_a_crowd_have_the_same_bits(parts: LoadedModel) -> None:
    """Several at once over a pool too small for them, preempted and found again."""
    rng, alone = Random(0), {}
    asked = [(*prompt_of(rng.sample(range(3), 3), 20 + n), *rng.choice(RULES)) for n in range(4)]
    trial = BlendTrial(target_runner(parts))
    for number, (prompt, spans, rule, ratio) in enumerate(asked):
        trial.forget()
        request = trial.read(prompt, Blend(spans, rule, ratio), 6).sequence
        alone[number] = list(request.tokens[:-1])
        trial.close(request)
        trial.scheduler.plan()
    trial.forget()
    requests = [
        trial.sequence(prompt, Blend(spans, rule, ratio), 6) for prompt, spans, rule, ratio in asked
    ]
    for request in requests:
        trial.scheduler.submit(request)
    while not trial.scheduler.idle:
        trial.step()
        if rng.random() < 0.2:
            for request in trial.scheduler.running_set.running.values():
                trial.scheduler.running_set.preempt(request)
                break
        trial.scheduler.check()
    for number, request in enumerate(requests):
        assert request.tokens[: len(alone[number])] == alone[number]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slots_are_turned_as_in_torch(dtype: torch.dtype, pool: Pool) -> None:
    ours, theirs = (random_pages(CONFIG, dtype, 8, SIZE) for _ in range(2))
    sources, targets = [1, 5, 100, 17], [40, 2, 3, 90]
    for turn in (0, 1, 700):
        NativeTurn(pool, CONFIG.rope_inverse_frequencies)(ours, sources, targets, turn)
        TorchTurn(CONFIG.rope_inverse_frequencies)(theirs, sources, targets, turn)
        tolerance = 1e-3 if dtype == torch.float32 else 1.0
        assert torch.allclose(ours.keys.float(), theirs.keys.float(), atol=tolerance)
        assert torch.equal(ours.values, theirs.values)


def test_keys_turned_to_a_place_are_those_computed_there(pool: Pool) -> None:
    weights = random_weights(CONFIG)
    native = NativeForward(CONFIG, weights, "fp32", pool)
    pages = random_pages(CONFIG, torch.float32, BLOCKS, SIZE)
    for blocks, offset in ((tuple(range(8)), 0), (tuple(range(8, 16)), 333)):
        builder = BatchBuilder(SIZE)
        builder.add(PASSAGES[0], 0, blocks, NO_DRAFT, samples=False)
        batch = builder.batch(torch.device("cpu"))
        batch.positions += offset
        native(batch, pages)
    count = len(PASSAGES[0])
    targets = list(range(16 * SIZE, 16 * SIZE + count))
    NativeTurn(pool, CONFIG.rope_inverse_frequencies)(pages, list(range(count)), targets, 333)
    flat = pages.keys.flatten(1, 2)
    there, rotated = flat[:, 8 * SIZE : 8 * SIZE + count], flat[:, targets]
    assert torch.allclose(there, rotated, atol=2e-4)


BAD = {
    "outside": {"places": (999,)},
    "out of order": {"places": (3, 2)},
}


@pytest.mark.parametrize("name", BAD)
def test_rows_out_of_range_fail_alone(parts: LoadedModel, name: str) -> None:
    begun, blend = asked((1, 2, 3, 4, 5, 6), Sampling()), RowBlend(**BAD[name])
    row = make_row(0, 5, samples=False, blocks=(0,), new_sequence=begun, blend=blend)
    (decision,) = target_runner(parts).step(proposed(row)).decisions
    assert "places" in decision.error
