"""What tells whether two machines compute the same bits: digests of logits and of noise.

The expected ones are in fingerprints.json; `draftwerk doctor --fingerprint` compares with them, and
writes them anew with `--write` after a change that is meant to change bits.
"""

import hashlib
from collections.abc import Iterator

import msgspec
import torch
from torch import Tensor

from draftwerk.cache.pages.kv_formats import NATIVE_KV_FORMATS, refusal_of
from draftwerk.model.batch.batch import Batch
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.fingerprint.identity import EXPECTED
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.gumbel import gumbels
from draftwerk.model.native.native_shape import FORMATS, paged_heads
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.speculative.rounds import NO_DRAFT, Draft, chain
from draftwerk.speculative.sampling import Sampling
from draftwerk_tools.trials.stored_blocks import stored_fingerprints
from draftwerk_tools.trials.tiny_model import tiny_config, tiny_weights

BLOCK_SIZE = 16
BLOCKS = 12
"""The blocks of each of the two sequences."""
KINDS = (
    *((dtype, "auto") for dtype in FORMATS),
    *(("bf16", kv_dtype) for kv_dtype in NATIVE_KV_FORMATS),
)
"""Formats of weights, and of keys and values."""
TINY = {"tiny llama": False, "tiny qwen": True}
TREE = (-1, -1, 0, 0, 1, 2, 4)
"""Parents of a tree's nodes; with the token before them it has eight."""
NOISE_TOKENS = 4096
DRAWS, DRAW_VOCAB = 64, 3001
DRAWN = (
    Sampling(),
    Sampling(temperature=0.7, top_k=40),
    Sampling(temperature=1.5, top_p=0.9),
    Sampling(temperature=0.9, min_p=0.05),
    Sampling(temperature=1.2, top_k=60, top_p=0.8, min_p=0.01),
)
"""Ways to sample whose draws are part of what a seed means."""
CHUNK, LONG_CHUNK, CHAIN = 37, 64, 15

Fingerprints = dict[str, str]


def tiny_fingerprints(pool: Pool) -> Fingerprints:
    """Return the digests of made-up models in every format, of stored blocks, and of the noise."""
    found = {"noise": noise_digest(), "draws": draws_digest(pool)} | stored_fingerprints(pool)
    for name, qwen in TINY.items():
        config = tiny_config(qwen=qwen)
        found |= fingerprints(name, config, tiny_weights(config), pool)
    return found


def model_fingerprints(source: str | None, pool: Pool) -> Fingerprints:
    """Return the digests of a model in every format."""
    model = load(source, None)
    return fingerprints(model.name, model.config, model.weights, pool)


def fingerprints(name: str, config: ModelConfig, weights: Weights, pool: Pool) -> Fingerprints:
    """Return a digest for each format that can hold the model, under its name."""
    heads = paged_heads(config)
    return {
        f"{name} {dtype}" + ("" if kv_dtype == "auto" else f", keys and values {kv_dtype}"): digest(
            NativeForward(config, weights, dtype, pool, kv_dtype), config
        )
        for dtype, kv_dtype in KINDS
        if not refusal_of(kv_dtype, heads)
    }


def digest(forward: NativeForward, config: ModelConfig) -> str:
    """Return a digest of the logits of all probing rounds."""
    pages = allocate(
        config, 2 * BLOCKS, BLOCK_SIZE, forward.page_dtype, torch.device("cpu"), forward.page_width
    )
    hashed = hashlib.sha256()
    for batch in probes(config.vocab_size):
        hashed.update(_bytes(forward(batch, pages)))
    return hashed.hexdigest()[:32]


def probes(vocab_size: int) -> Iterator[Batch]:
    """Yield rounds of two sequences: chunks, steps of 1, 2, 8 and 16 tokens, a tree, a chunk of 64.

    Every token's logits are wanted.
    """
    one = [(7919 * index + 13) % vocab_size for index in range(BLOCKS * BLOCK_SIZE)]
    other = [(6151 * index + 5) % vocab_size for index in range(BLOCKS * BLOCK_SIZE)]
    tree = Draft(tuple(one[60 : 60 + len(TREE)]), TREE, ("probe",) * len(TREE))
    guesses = chain(tuple(other[6 : 6 + CHAIN]), "probe")
    first, second = tuple(range(BLOCKS)), tuple(range(BLOCKS, 2 * BLOCKS))
    yield _round((one[:CHUNK], 0, first, NO_DRAFT), (other[:5], 0, second, NO_DRAFT))
    yield _round((one[37:38], 37, first, NO_DRAFT))
    yield _round((one[38:39], 38, first, NO_DRAFT), (other[5:6], 5, second, NO_DRAFT))
    yield _round((one[39:40], 39, first, tree))
    yield _round((other[5:6], 5, second, guesses))
    yield _round((one[40:41], 40, first, tree), (other[5:6], 5, second, guesses))
    yield _round((one[40 : 40 + LONG_CHUNK], 40, first, NO_DRAFT))


def _round(*rows: tuple[list[int], int, tuple[int, ...], Draft]) -> Batch:
    layout = BatchBuilder(BLOCK_SIZE)
    for tokens, start, blocks, draft in rows:
        layout.add(tokens, start, blocks, draft, samples=True)
    layout.outputs = list(range(len(layout.tokens)))
    return layout.batch(torch.device("cpu"))


def noise_digest() -> str:
    """Return a digest of the noise of many tokens at one position."""
    values = gumbels(2**63 + 11, 3, 1000, range(NOISE_TOKENS))
    return hashlib.sha256(_bytes(torch.tensor(values, dtype=torch.float64))).hexdigest()[:32]


def draws_digest(pool: Pool) -> str:
    """Return a digest of the tokens that every kind of sampling draws from made-up logits."""
    rows = torch.arange(DRAWS)[:, None]
    logits = ((rows * 7919 + torch.arange(DRAW_VOCAB) * 104729) % 10007).float() / 700
    requests = [
        SamplingRequest(row, 50 + row, msgspec.structs.replace(each, seed=11, branch=row % 3))
        for each in DRAWN
        for row in range(DRAWS)
    ]
    tokens = NativeSampler(pool).choose_many(logits, requests)
    return hashlib.sha256(repr(tokens).encode()).hexdigest()[:32]


def _bytes(values: Tensor) -> bytes:
    return values.contiguous().numpy().tobytes()


def expected() -> Fingerprints:
    """Return the committed digests."""
    return msgspec.json.decode(EXPECTED.read_bytes(), type=Fingerprints)


def write(found: Fingerprints) -> None:
    """Put digests in place of the committed ones; others stay."""
    merged = expected() | found if EXPECTED.exists() else found
    EXPECTED.write_bytes(msgspec.json.format(msgspec.json.encode(merged), indent=2) + b"\n")
