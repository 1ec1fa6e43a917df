"""A GGUF's blocks on their way to the kernels: rows in order, no other bytes, nothing on disk."""

import os
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from torch import Tensor

from draftwerk.model.checkpoint import hub
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.files.listing import LISTING
from draftwerk.model.checkpoint.footprint import gguf_loading_bytes, what_fits
from draftwerk.model.checkpoint.gguf_tensors import plain_values
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.loader import Checkpoint, load, load_vocabulary
from draftwerk.model.checkpoint.shard import Grid, shard_of
from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import LayerWeights, WeightMatrix
from tests.support.tiny_gguf import save_gguf

FAMILIES = ("llama", "qwen2", "qwen3")
KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")
MATRICES = ("qkv", "output", "gate_up", "down")


pytestmark = pytest.mark.usefixtures("no_tokenizer", "own_cache")


def values(matrix: WeightMatrix) -> Tensor:
    """Return what parts stand for, in float32."""
    assert isinstance(matrix, tuple)
    assert all(isinstance(part, StoredMatrix) for part in matrix)
    return torch.cat([plain_values(part) for part in matrix])


def blocks_of(path: Path, **options: object) -> Checkpoint:
    return load(str(path), None, keeps_blocks=True, **options)  # type: ignore[arg-type]


def matrices(layer: LayerWeights) -> list[WeightMatrix]:
    return [getattr(layer, name) for name in MATRICES]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_stand_for_the_weights_that_are_dequantised(family: str, kind: str, tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", family, kind, {"ffn_up": "Q8_0", "attn_v": "Q5_1"})
    stored, plain = blocks_of(path).weights, load(str(path), None).weights
    for blocks, tensors in zip(stored.layers, plain.layers, strict=True):
        for parts, tensor in zip(matrices(blocks), matrices(tensors), strict=True):
            assert torch.equal(values(parts).to(torch.bfloat16), tensor)
        assert torch.equal(blocks.attention_norm.to(torch.bfloat16), tensors.attention_norm)
    assert stored.lm_head is stored.embedding
    assert torch.equal(values(stored.embedding).to(torch.bfloat16), plain.embedding)
    assert [part.kind for part in stored.layers[0].qkv] == [kind, kind, "Q5_1"]


@pytest.mark.parametrize("kind", ["F16", "Q4_0", "Q8_0"])
def test_in_float32_numbers_are_those_of_the_file(kind: str, tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "qwen3", kind)
    stored, exact = blocks_of(path).weights, load(str(path), None, is_exact=True).weights
    for blocks, tensors in zip(stored.layers, exact.layers, strict=True):
        for parts, tensor in zip(matrices(blocks), matrices(tensors), strict=True):
            assert torch.equal(values(parts), tensor)
        assert torch.equal(blocks.attention_norm, tensors.attention_norm)
    assert torch.equal(values(stored.embedding), exact.embedding)


def test_a_head_of_its_own_is_not_the_embedding(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0", tie_word_embeddings=False)
    weights = blocks_of(path).weights
    assert weights.lm_head is not weights.embedding
    assert not torch.equal(values(weights.lm_head), values(weights.embedding))


def test_blocks_are_views_of_the_mapped_file(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0")
    for part in blocks_of(path).weights.layers[0].gate_up:
        assert not part.data.flags.owndata and not part.data.flags.writeable


def test_ranks_have_rows_of_the_whole(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0")
    whole = blocks_of(path)
    grid = Grid(tensor=2)
    shards = [shard_of(whole.config, grid, rank) for rank in range(2)]
    ranks = [blocks_of(path, shard=shard).weights for shard in shards]
    for name in ("output", "down"):
        expected = values(getattr(whole.weights.layers[1], name))
        found = torch.cat([values(getattr(rank.layers[1], name)) for rank in ranks])
        assert torch.equal(found, expected)
    query, _, _ = split(whole.config, values(whole.weights.layers[0].qkv))
    found = torch.cat([values(rank.layers[0].qkv)[: len(query) // 2] for rank in ranks])
    assert torch.equal(found, query)


def split(config: ModelConfig, qkv: Tensor) -> tuple[Tensor, ...]:
    key = config.num_kv_heads * config.head_size
    return qkv.split([config.num_heads * config.head_size, key, key])


def test_only_kilobytes_are_written(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q8_0")
    load(str(path), None)
    blocks_of(path)
    (folder,) = (tmp_path / "cache" / "draftwerk").iterdir()
    assert {each.name for each in folder.iterdir()} == {"config.json", "gguf.json", LISTING}
    assert sum(each.stat().st_size for each in folder.iterdir()) < 10_000


def test_layers_are_read_as_they_are_asked_for_where_something_dequantises(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0")
    asked: list[StoredMatrix] = []

    def dequantise(matrix: StoredMatrix) -> Tensor:
        asked.append(matrix)
        return plain_values(matrix)

    weights = load(str(path), None, dequantise=dequantise).weights
    before = len(asked)
    expected = load(str(path), None).weights.layers
    assert torch.equal(weights.layers[1].qkv, expected[1].qkv)
    assert len(asked) == before + 7
    assert torch.equal(weights.layers[:1][0].down, expected[0].down)


def test_progress_is_told_in_bytes_of_the_file(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0")
    lines: list[str] = []
    model = load(str(path), None, progress=lines.append, keeps_blocks=True)
    with model.being_read():
        for index in range(2):
            model.layer_done(index)
    assert lines[-1].startswith("loading m: 0.0 of 0.0 MB") or "0.1 MB" in lines[-1]


@pytest.mark.parametrize("how", ["before", "meanwhile"])
def test_a_file_that_was_written_meanwhile_is_refused(how: str, tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0")
    directory = hub.locate(str(path)).directory
    model = load(str(directory), None, keeps_blocks=True)
    os.utime(path, (1, 1))
    with pytest.raises(Refused, match=rf"{path}: it was written while it was read; start again"):
        if how == "before":
            load(str(directory), None)
        with model.being_read():
            pass


def test_pages_are_given_back_while_they_are_read(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0")
    model = load(str(path), None, keeps_blocks=True)
    assert model.files is not None
    files, dropped = model.files, Event()
    drop = files._drop

    def note() -> None:
        drop()
        dropped.set()

    files._drop = note
    with model.being_read():
        assert dropped.wait(10)
        (first, *_) = blocks_of(path).weights.layers
        assert torch.equal(
            plain_values(model.weights.layers[0].down[0]), plain_values(first.down[0])
        )


def test_a_file_that_is_cut_between_layers_is_refused_before_it_is_read(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0")
    files = blocks_of(path).files
    assert files is not None
    last = max(files.card.tensors.values(), key=lambda tensor: tensor.begin)
    os.truncate(path, last.begin)
    with pytest.raises(Refused, match=rf"{path}: it was written while it was read"):
        files.rows(last)


def test_a_file_that_is_gone_is_named(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0")
    directory = hub.locate(str(path)).directory
    path.unlink()
    with pytest.raises(Refused, match=rf"{path}: No such file"):
        load(str(directory), None)


def test_its_info_says_what_is_in_the_file(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "qwen3", "Q4_0", {"ffn_down": "Q8_0"})
    info = read_info(hub.locate(str(path)))
    assert info.stored_format == "stored" and info.file_format == "Q4_K_M"
    assert list(info.stored_kinds) == ["Q4_0", "Q8_0"]
    assert info.stored_text == "Q4_K_M: Q4_0 0 MB, Q8_0 0 MB, as in the file"
    assert info.loading_bytes("bf16") > info.loading_bytes("stored") > info.stored_bytes
    whole = save_gguf(tmp_path / "w.gguf", "qwen3", "F16")
    assert read_info(hub.locate(str(whole))).stored_format == "bf16"


def test_the_vocabulary_alone_is_dequantised_for_a_draft_head(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q8_0")
    found, whole = load_vocabulary(str(path), None), load(str(path), None).weights
    assert torch.equal(found.embedding, whole.embedding) and not list(found.layers)


def test_what_fits_is_a_type_of_fewer_bits():
    elements = 8_000_000_000
    assert gguf_loading_bytes(5 * 10**9, elements, "stored") < 1.1 * 5 * 10**9
    assert gguf_loading_bytes(5 * 10**9, elements, "bf16") > 16 * 10**9
    assert what_fits(elements, 20 * 10**9) == "a GGUF of Q8_0 would fit or of fewer bits"
    assert what_fits(elements, 4 * 10**9) == "a GGUF of Q2_K would fit"
    assert what_fits(elements, 10**9) == "no GGUF type of it would fit"


def test_blocks_that_were_not_quantised_by_the_file_are_named_as_they_are(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "llama", "Q4_0", {"token_embd": "F16"})
    info = read_info(hub.locate(str(path)))
    assert "F16" in info.stored_kinds and info.stored_format == "stored"
    embedding = load(str(path), None).weights.embedding
    assert embedding.dtype == torch.bfloat16 and np.isfinite(embedding.float().numpy()).all()
