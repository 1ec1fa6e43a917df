"""Every instruction set of this CPU computes the same bits; those it lacks are skipped by name."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.cache.pages.kv_formats import CODE_UNIT
from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.draft_head.tree import Start
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.draft_head import NativeStep
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.native_shape import FORMATS
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.speculative.rounds import Draft
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from tests.model.native.models import (
    part,
    random_pages,
    random_tokens,
    random_weights,
    round_of,
    tiny_config,
)
from tests.support.instruction_sets import each_isa
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import FAMILIES, GEMMA4_EXPERTS, VOCAB, save_tiny

UNLIKE = (
    *("llama", "phi3", "ministral3", "helium", "arcee", "hyperclovax", "granitemoeshared", "olmo3"),
    *("gemma2", "gemma4_text", "cohere2", "nemotron", "qwen2_moe", "gpt_oss", "lfm2_moe"),
    *("qwen3_5_text", "qwen3_next", "granitemoehybrid"),
)
"""Families that together have every operation of a layer."""
LEAST = "avx2"
OTHERS = ("avx2-vnni", "avx512", "avx512-vnni", "avx512-bf16")
KINDS = (*FORMATS, "fp32 int8", "bf16 int8", "int8 int8", "bf16 int4")
"""Formats of weights, and of keys and values where they are others."""
SHAPES = {
    "llama": {},
    "mqa": {"num_heads": 5, "num_kv_heads": 1, "head_size": 24},
    "qwen3": {"query_key_norm": True, "head_size": 32},
    "mha": {"num_heads": 3, "num_kv_heads": 3, "head_size": 48},
    "wide": {"hidden_size": 200, "ffn_size": 333, "vocab_size": 259, "head_size": 128},
    "yarn": {"rope_magnitude": 1.2, "head_size": 64},
}
OF_256: dict[str, Any] = {
    **{"hidden_size": 256, "intermediate_size": 256, "head_dim": 64},
    **{"global_head_dim": 128, "hidden_size_per_layer_input": 256},
}
EXPERTS_OF_256 = OF_256 | {"moe_intermediate_size": 256, "hidden_size_per_layer_input": 0}
"""Every width a whole block of 256."""
TREE = Draft(tokens=(5, 6, 7, 8, 9, 10), parents=(-1, -1, 0, 2, 1, 0), sources=("",) * 6)


@cache
def pool_of(isa: str) -> Pool:
    try:
        return Pool(2, isa)
    except (NativeUnavailable, Refused) as error:
        pytest.skip(str(error))


@pytest.fixture(params=each_isa(OTHERS))
def isas(request: pytest.FixtureRequest) -> tuple[str, str]:
    for isa in (LEAST, request.param):
        pool_of(isa)
    return LEAST, request.param


@pytest.fixture
def pools(isas: tuple[str, str]) -> list[Pool]:
    return [pool_of(isa) for isa in isas]


def same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def rounds() -> Iterator:
    """Chunks, then 1, 2, 8, 16 and 64 tokens, a tree, and searched branches over one prefix."""
    tokens = random_tokens(300)
    for begin, end in pairwise((0, 129, 150, 151, 153, 161, 177, 241)):
        yield round_of([part(tokens[begin:end], begin)])
    yield round_of(
        [
            part([3], 241, draft=TREE),
            part(random_tokens(20, seed=1), 0, blocks=(40, 39)),
            part([7, 8, 9], 0, blocks=(50,)),
        ]
    )
    prefix = tuple(range(1, 9))
    yield round_of([part([row], 128, blocks=(*prefix, 40 + row)) for row in range(5)])


@cache
def logits(isa: str, kind: str, shape: str, scale: float = 1.0) -> list[Tensor]:
    dtype, kv_dtype = (*kind.split(), "auto")[:2]
    config = tiny_config(**SHAPES[shape])
    weights = random_weights(config, biases=True)
    for layer in weights.layers:
        layer.qkv *= scale
        layer.ffn_norm *= scale
    model = NativeForward(config, weights, dtype, pool_of(isa), kv_dtype)
    pages = random_pages(config, model.page_dtype, width=model.page_width)
    found: list[Tensor] = []
    for batch in rounds():
        found.append(model(batch, pages))
        assert model.states is not None
        found.append(model.states)
        assert all(torch.isfinite(one).all() for one in found[-2:])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_logits(isas: tuple[str, str], kind: str) -> None:
    for shape in SHAPES:
        if kind.endswith("int4") and SHAPES[shape].get("head_size", 16) % CODE_UNIT:
            continue  # refused
        for one, other in zip(*(logits(isa, kind, shape) for isa in isas), strict=True):
            assert same_bits(one, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-12, 1e-25, 1e-38])
def test_logits_where_values_are_tiny(isas: tuple[str, str], kind: str, scale: float) -> None:
    """Some instruction sets flush denormal numbers, others do not: it must not matter."""
    for one, other in zip(*(logits(isa, kind, "llama", scale) for isa in isas), strict=True):
        assert same_bits(one, other)


@cache
def logits_of_families(isa: str, kind: str, families: tuple[str, ...]) -> list[Tensor]:
    """Return the logits of each family's tiny model, past its window."""
    dtype, kv_dtype = (*kind.split(), "auto")[:2]
    found: list[Tensor] = []
    for family in families:
        with TemporaryDirectory() as directory:
            save_tiny(Path(directory), family)
            loaded = load(directory, None)
            kept = "auto" if loaded.config.kernel_size else kv_dtype  # int8 is refused
            model = NativeForward(loaded.config, loaded.weights, dtype, pool_of(isa), kept)
        pages = random_pages(loaded.config, model.page_dtype, width=model.page_width)
        tokens = random_tokens(150, vocab_size=VOCAB)
        for batch in (
            round_of([part(tokens[:140])]),
            round_of([part(tokens[140:], 140, state=RowState(1, 0))]),
            round_of([part([3], 150, draft=TREE, state=RowState(0, 2, ((152, 3),)))]),
        ):
            found.append(model(batch, pages))
        if pages.states is not None:
            model.advance([(batch.states[0], (0, 2))], pages)
            found.append(pages.states[:4, 16:].clone())
    return found


@pytest.mark.parametrize("kind", ["bf16", "int8 int8"])
@pytest.mark.parametrize(
    "families",
    [
        pytest.param(UNLIKE, id="unlike"),
        pytest.param(tuple(FAMILIES), id="all", marks=pytest.mark.grid),
    ],
)
def test_logits_of_every_family(
    isas: tuple[str, str], families: tuple[str, ...], kind: str
) -> None:
    ours = [logits_of_families(isa, kind, families) for isa in isas]
    assert all(same_bits(one, other) for one, other in zip(*ours, strict=True))


@cache
def logits_of_file(isa: str, has_experts: bool) -> list[Tensor]:
    """Return the logits of a file of blocks whose layers differ in heads and FFNs."""
    kinds = {"per_layer_token_embd": "Q6_K", "ffn_down": "Q8_0", "attn_q": "Q4_0"}
    sizes = GEMMA4_EXPERTS | EXPERTS_OF_256 if has_experts else OF_256
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", directory)
        patch.setattr(gguf_file, "write_tokenizer", lambda *given: None)
        path = save_gguf(Path(directory) / "m.gguf", "gemma4_text", "Q4_K", kinds, **sizes)
        loaded = load(str(path), None, keeps_blocks=True)
        model = NativeForward(loaded.config, loaded.weights, STORED, pool_of(isa))
    pages = random_pages(loaded.config, model.page_dtype, width=model.page_width)
    tokens = random_tokens(150, vocab_size=VOCAB)
    rows = (part(tokens[:140]), part(tokens[140:], 140), part([3], 150, draft=TREE))
    return [model(round_of([row]), pages) for row in rows]


@pytest.mark.parametrize("has_experts", [False, True])
def test_logits_of_a_file_of_blocks(isas: tuple[str, str], has_experts: bool) -> None:
    ours = [logits_of_file(isa, has_experts) for isa in isas]
    assert all(same_bits(one, other) for one, other in zip(*ours, strict=True))


def test_tokens_and_their_logprobs(pools: list[Pool]) -> None:
    rows = torch.randn(4, 5003, generator=torch.Generator().manual_seed(0)) * 3
    rows[1::2, ::97] += 9.0
    distributions = [
        Sampling(temperature=0.0),
        Sampling(),
        Sampling(temperature=0.8, top_p=0.95),
        Sampling(temperature=1.5, top_p=0.999, min_p=1e-4),
        Sampling(temperature=0.7, top_k=50, top_p=0.9),
        Sampling(temperature=5.0, min_p=0.05),
    ]
    mask = np.random.default_rng(0).integers(-(2**31), 2**31, 157, dtype=np.int32)
    requests = [
        SamplingRequest(row, 100 + row, sampling, allowed=allowed)
        for row in range(len(rows))
        for sampling in distributions
        for allowed in (None, mask)
    ]
    chosen = [NativeSampler(pool).choose_many(rows, requests) for pool in pools]
    assert chosen[0] == chosen[1]
    asked = [(0, 7, 0), (2, 4999, 5), (1, 0, 20), (3, 1, 5003)]
    reported = [NativeSampler(pool).logprobs(rows, asked) for pool in pools]
    assert reported[0] == reported[1]


def test_draft_heads(pools: list[Pool]) -> None:
    random = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random) * 0.3

    head = DraftHead(
        vocabulary=torch.arange(0, 300, 2, dtype=torch.int32),
        gate_up=normal(2 * 40, 2 * 56),
        down=normal(56, 40),
        keep=normal(56),
        state_norm=1 + normal(56),
        token_norm=1 + normal(56),
        norm=1 + normal(56),
    )
    embedding, lm_head = normal(300, 56), normal(300, 56)
    steps = [NativeStep(head, embedding, lm_head, pool) for pool in pools]
    states, tokens = normal(7, 56), [0, 5, 299, 7, 8, 9, 10]
    first, second = (step(states, tokens, 9) for step in steps)
    assert same_bits(first.states, second.states)
    assert first[1:] == second[1:]
    starts = [
        Start(
            states, row, token, 40 + token, SequenceNoise(Sampling(seed=token, temperature=row % 2))
        )
        for row, token in enumerate(tokens)
    ]
    assert steps[0].propose(starts, 3) == steps[1].propose(starts, 3)
