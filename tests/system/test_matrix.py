"""The matrix of validation/matrix.py on a tiny model, in every weight format that is exact.

Each parameter meets each way of drafting; every distribution of its own is left to
`validation.matrix`.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint import hub
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.speculative.sampling import Sampling
from tests.support.draft_heads import idle_head
from tests.support.runners import cache_with_kernels, require_kernels
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import TinyWords, save_tiny
from training.saved_head import save
from validation.matrix import check, totals
from validation.matrix_engines import BLOCK_SIZE, Matrix
from validation.samplings import PAIRWISE, SAMPLINGS


def options(directory: Path, dtype: str) -> ModelOptions:
    """Return how the model in a directory is run: with a draft head, made up."""
    weights = load(str(directory), None).weights
    path = directory / "head" / "head.safetensors"
    path.parent.mkdir()
    save(idle_head(weights), weights, path)
    return ModelOptions(
        source=str(directory),
        dtype=dtype,
        exact=True,
        draft_head=str(path),
        block_count=256,
        block_size=BLOCK_SIZE,
        threads=1,
    )


def settings(distributions: Mapping[str, Sampling]) -> set[tuple[str, bool]]:
    """Return which parameters some distribution sets, at temperature 0 and above it."""
    return {
        (name, distribution.temperature > 0)
        for distribution in distributions.values()
        for name in distribution.__struct_fields__
        if getattr(distribution, name) != getattr(Sampling(), name)
    }


def test_the_distributions_of_the_gate_set_every_parameter() -> None:
    assert settings(PAIRWISE) >= settings(SAMPLINGS)


async def test_every_parameter_gives_one_text_in_every_way_of_drafting(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama", seed=3)
    totals(await check(Matrix(options(tmp_path, "fp32"), TinyWords(), (2,)), PAIRWISE))


@pytest.mark.parametrize("dtype", [pytest.param("bf16", marks=pytest.mark.grid), "int8"])
async def test_the_fast_formats_are_exact_too(tmp_path: Path, dtype: str) -> None:
    if dtype == "int8":
        require_kernels()
    save_tiny(tmp_path, "qwen3", seed=5)
    matrix = Matrix(options(tmp_path, dtype), TinyWords(), (2,))
    totals(await check(matrix, {name: SAMPLINGS[name] for name in ("greedy", "everything")}))


async def test_a_gguf_as_it_is_stored_is_exact_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_kernels()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_with_kernels(tmp_path / "cache")))
    monkeypatch.setattr(gguf_file, "write_tokenizer", lambda *given: None)
    path = save_gguf(
        tmp_path / "m.gguf", "llama", "Q4_0", {"attn_v": "Q8_0", "ffn_down": "Q5_1"}, seed=2
    )
    matrix = Matrix(options(hub.locate(str(path)).directory, "stored"), TinyWords(), (2,))
    totals(await check(matrix, {name: SAMPLINGS[name] for name in ("greedy", "everything")}))
