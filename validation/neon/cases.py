"""What is computed by both processors: a script for the emulated one, results of this one."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.stored_matrix import KINDS as STORED_KINDS
from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.draft_head.tree import Start
from draftwerk.model.native.draft_head import NativeStep, arguments_of
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.native_shape import FORMATS, HEAD_KIND, QUANTISED
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.native.stored import PackedMatrix, quantised
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
from tests.support.stored_twin import random_blocks
from tests.support.tiny_models import CASES, FAMILIES, VOCAB, save_tiny
from validation.neon.script import RecordingPool, Script

KINDS = (*((dtype, "auto") for dtype in FORMATS), ("fp32", "int8"), ("bf16", "int8"))
WIDE = {"hidden_size": 200, "ffn_size": 333, "vocab_size": VOCAB, "head_size": 64, "num_heads": 9,
        "num_kv_heads": 3}  # fmt: skip
TREE = Draft(tokens=(5, 6, 7, 8, 9, 10), parents=(-1, -1, 0, 2, 1, 0), sources=("",) * 6)
SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(seed=1),
    Sampling(temperature=0.8, top_p=0.95, seed=2),
    Sampling(temperature=1.5, top_k=40, min_p=1e-3, seed=3),
)

CaseModel = tuple[str, ModelConfig, Weights]


def models() -> Iterator[CaseModel]:
    """Yield every family and every kind of rope, and larger ones, also with tiny values."""
    cases = {family: (family, {}) for family in FAMILIES}
    cases |= {name: case for name, case in CASES.items() if "rope" in case[1]}
    for name, (family, changes) in cases.items():
        with TemporaryDirectory() as folder:
            save_tiny(Path(folder), family, **changes)
            model = load(folder, torch.float32)
            yield name, model.config, model.weights
    config = tiny_config(**WIDE)
    yield "wide", config, random_weights(config, biases=True)
    for scale in (1e-12, 1e-25, 1e-38):
        weights = random_weights(config, biases=True)
        for layer in weights.layers:
            layer.qkv *= scale
            assert layer.ffn_norm is not None
            layer.ffn_norm *= scale
        yield f"wide, {scale:g}", config, weights


def rounds() -> Iterator:
    """Chunks, single tokens, a tree beside other rows, rows that share a prefix, a long context."""
    tokens = random_tokens(170, vocab_size=VOCAB)
    for begin, end in ((0, 150), (150, 151), (151, 153), (153, 161)):
        yield round_of([part(tokens[begin:end], begin)])
    yield round_of([part([3], 161, draft=TREE), part(tokens[:20], 0, blocks=(40, 39))])
    prefix = tuple(range(1, 9))
    yield round_of([part([row], 128, blocks=(*prefix, 40 + row)) for row in range(3)])
    long = tuple(range(1, 35))
    yield round_of([part(random_tokens(520, vocab_size=VOCAB), blocks=long)])
    yield round_of([part([3], 520, blocks=long)])


def forward(model: CaseModel, script: Script, pool: Pool) -> Iterator[tuple[str, bytes]]:
    """Write all formats' rounds of a model, and yield what each results in."""
    name, config, weights = model
    recording = RecordingPool(pool, script)
    for dtype, kv_dtype in KINDS:
        try:
            native = NativeForward(config, weights, dtype, recording, kv_dtype)
        except Refused:  # pages in one byte, of layers that convolve
            continue
        pages = random_pages(config, native.page_dtype, width=native.page_width)
        resolved = {torch.int8: "int8", torch.bfloat16: "bf16"}.get(native.page_dtype, "fp32")
        script.pages(pages)
        for number, batch in enumerate(rounds()):
            logits = native(batch, pages)
            assert native.states is not None
            label = f"{name}, {dtype}, KV {resolved}, round {number}"
            yield label, raw(logits) + raw(native.states)


def sampling(script: Script, pool: Pool) -> Iterator[tuple[str, bytes]]:
    """Write draws and log-probabilities, and yield their results."""
    generator, sampler = torch.Generator().manual_seed(0), NativeSampler(pool)
    for (number, params), spread in product(enumerate(SAMPLINGS), (0.3, 3.0)):
        logits = torch.randn(1, 1003, generator=generator) * spread
        logits[0, ::97] += 3 * spread
        for position in range(20):
            script.sample(logits, params, position)
            (token,) = sampler.choose_many(logits, [SamplingRequest(0, position, params)])
            (found,) = sampler.logprobs(logits, [(0, token, 10)])
            best, scores = zip(*found.top, strict=True)
            results = np.int32(token).tobytes() + np.float64(found.logprob).tobytes()
            results += np.array(best, np.int32).tobytes() + np.array(scores, np.float64).tobytes()
            yield f"sampling {number}, spread {spread}, position {position}", results


def stored(script: Script, pool: Pool) -> Iterator[tuple[str, bytes]]:
    """Write products with every type's blocks, and yield them and the blocks' values."""
    inputs = torch.randn(7, 768, generator=torch.Generator().manual_seed(4))
    inputs[-1] = inputs[-1].sign()
    for kind, fill in product(STORED_KINDS, (None, 0x00, 0x7F, 0x80, 0xFF)):
        data = random_blocks(kind, 40, 768, fill=fill)
        matrix = StoredMatrix(kind, (40, 768), data)
        script.stored(matrix, inputs)
        packed = PackedMatrix([matrix], pool)
        yield f"{kind}, bytes {fill}", raw(packed.products(inputs)) + raw(packed.values())
    weights = torch.randn(9, 100, generator=torch.Generator().manual_seed(5))
    for kind in {*QUANTISED.values(), HEAD_KIND}:
        script.quantise(weights, kind)
        yield f"weights as {kind}", quantised(weights, kind, pool).data.tobytes()


def drafting(script: Script, pool: Pool) -> Iterator[tuple[str, bytes]]:
    """Write draft trees, and yield their nodes."""
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 0.3

    vectors = {name: 1 + normal(56) for name in ("keep", "state_norm", "token_norm", "norm")}
    head = DraftHead(
        vocabulary=torch.arange(0, 300, 2, dtype=torch.int32),
        gate_up=normal(80, 112),
        down=normal(56, 40),
        **vectors,
    )
    embedding, lm_head, states = normal(300, 56), normal(300, 56), normal(9, 56)
    step = NativeStep(head, embedding, lm_head, pool)
    starts = [
        Start(
            states, row, 31 * row, 40 + row, SequenceNoise(Sampling(seed=row, temperature=row % 2))
        )
        for row in range(len(states))
    ]
    arguments = arguments_of(starts)
    script.draft(head, embedding, lm_head, states, list(arguments), pool)
    yield "draft trees", bytes(step.nodes(arguments))


def raw(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()
