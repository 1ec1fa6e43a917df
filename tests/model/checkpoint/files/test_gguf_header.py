"""A GGUF's header and its shards: what is read, and the sentence for every way to be broken."""

import os
import struct
from pathlib import Path
from random import Random
from shutil import copy

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from draftwerk.model.checkpoint.files.gguf_header import read_gguf_header, tensor_bytes
from draftwerk.model.checkpoint.files.gguf_shards import read_gguf
from draftwerk.model.checkpoint.files.shard_names import model_name
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.gguf_files import finish

pytestmark = pytest.mark.fast


def write(path: Path, parts: int = 0, seed: int = 0, architecture: str = "llama") -> Path:
    """Write a file of three tensors, or several files of at most so many tensors each."""
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=parts)
    writer.add_context_length(512)
    writer.add_token_list(["a", "ü", ""])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_float32("tenth", 0.1)
    writer.add_bool("yes", True)
    random = np.random.default_rng(seed)
    for name, shape in (("one.weight", (3, 64)), ("two.weight", (5,)), ("six.weight", (2, 32))):
        writer.add_tensor(name, random.standard_normal(shape).astype(np.float32))
    quantised = gguf.quants.quantize(np.ones((4, 64), np.float32), GGMLQuantizationType.Q4_0)
    writer.add_tensor("ten.weight", quantised, raw_dtype=GGMLQuantizationType.Q4_0)
    finish(writer)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(Refused) as found:
        read_gguf(path)
    return str(found.value)


def test_what_the_library_writes_is_read_as_the_library_reads_it(tmp_path: Path):
    path = write(tmp_path / "m.gguf")
    header, reader = read_gguf_header(path), gguf.GGUFReader(path)
    expected = {key: field.contents() for key, field in reader.fields.items()}
    assert header.fields == {k: v for k, v in expected.items() if not k.startswith("GGUF.")}
    assert list(header.tensors) == [tensor.name for tensor in reader.tensors]
    data = np.fromfile(path, np.uint8)
    for tensor in reader.tensors:
        mine = header.tensors[tensor.name]
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert (mine.kind, mine.size) == (tensor.tensor_type.name, tensor.n_bytes)
        assert tensor_bytes(data, mine).tobytes() == tensor.data.tobytes()
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType[mine.kind]]
        assert tensor_bytes(data, mine).shape[-1] == mine.shape[-1] // block * size


def test_a_file_cut_anywhere_is_named_with_its_bytes(tmp_path: Path):
    path = write(tmp_path / "m.gguf")
    header = read_gguf_header(path)
    last = header.tensors["ten.weight"]
    end, data = last.begin + last.size, header.tensors["one.weight"].begin
    for size in reversed(range(end)):
        os.truncate(path, size)  # written anew, it would be waited for
        said = refusal(path)
        assert said.startswith(f"{path}: ")
        if size < 4:
            assert "not a GGUF file" in said
        elif size >= data:
            assert f"the file is cut short: {size} of {end} bytes; tensor '" in said
            assert "bytes from byte" in said
        else:
            assert "byte" in said
            assert any(each in said for each in ("cut short", "past the end", "do not fit"))


def test_a_flipped_bit_in_the_header_is_refused_or_changes_a_value_alone(tmp_path: Path):
    """Whatever bit flips: a sentence, or tensors of the same bytes; never another error."""
    path = write(tmp_path / "m.gguf")
    whole = path.read_bytes()
    header = read_gguf_header(path)
    begin = header.tensors["one.weight"].begin
    with path.open("r+b", buffering=0) as file:
        for bit in Random(1).sample(range(8 * begin), 1500):
            byte = whole[bit // 8]
            os.pwrite(file.fileno(), bytes([byte ^ 1 << bit % 8]), bit // 8)
            try:
                found = read_gguf(path).tensors.values()
            except Refused as refused:
                assert str(refused).startswith(f"{path}: ")
                found = ()
            assert all(tensor.begin + tensor.size <= len(whole) for tensor in found)
            os.pwrite(file.fileno(), bytes([byte]), bit // 8)


def patched(path: Path, before: bytes, after: bytes) -> int:
    """Replace bytes that are there once; returns where they were."""
    whole = path.read_bytes()
    assert whole.count(before) == 1 and len(before) == len(after)
    path.write_bytes(whole.replace(before, after))
    return whole.index(before)


def entry(name: str, *numbers: int) -> bytes:
    """Return a tensor's entry from its name to its type."""
    *sizes, kind = numbers
    packed = struct.pack("<Q", len(name)) + name.encode()
    return packed + struct.pack(f"<I{len(sizes)}QI", len(sizes), *sizes, kind)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (entry("ten.weight", 64, 4, 99), "its type 99 is unknown"),
        (entry("ten.weight", 64, 4, 4), "its type 4 is unknown"),
        (entry("ten.weight", 63, 4, 2), "rows of 63 are no whole blocks of 32 (Q4_0)"),
        (entry("ten.weight", 64, 0, 2), "no whole blocks"),
    ],
)
def test_a_tensors_entry_that_is_damaged_is_named_with_its_byte(
    after: bytes, said: str, tmp_path: Path
):
    path = write(tmp_path / "m.gguf")
    at = patched(path, entry("ten.weight", 64, 4, 2), after)
    assert refusal(path).startswith(f"{path}: tensor 'ten.weight' at byte {at}: ")
    assert said in refusal(path)


def test_a_size_that_moves_what_follows_is_refused(tmp_path: Path):
    path = write(tmp_path / "m.gguf")
    patched(path, entry("one.weight", 64, 3, 0), entry("one.weight", 64, 2, 0))
    assert "tensor 'two.weight'" in refusal(path)
    assert "its data are at 768, those before it end at 512: damaged" in refusal(path)


def test_a_length_beyond_the_file_costs_no_memory(tmp_path: Path):
    path = write(tmp_path / "m.gguf")
    before = struct.pack("<IIQ", 9, 8, 3)
    at = patched(path, before, struct.pack("<IIQ", 9, 8, 1 << 60))
    said = refusal(path)
    assert "metadata field 'tokenizer.ggml.tokens'" in said and f"at byte {at + 16}" in said


def test_versions_are_named(tmp_path: Path):
    path = write(tmp_path / "m.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + struct.pack("<I", 1) + whole[8:])
    assert "GGUF version 1 is not supported" in refusal(path)
    path.write_bytes(whole[:4] + struct.pack(">I", 3) + whole[8:])
    assert "big-endian" in refusal(path)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    write(tmp_path / "m.gguf", parts=2)
    return sorted(tmp_path.iterdir())


def test_shards_are_one_model_by_any_of_their_names(shards: list[Path], tmp_path: Path):
    assert [path.name for path in shards] == [f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    whole = read_gguf(write(tmp_path / "whole.gguf"))
    for path in shards:
        found = read_gguf(path)
        assert model_name(path) == "m"
        assert found.paths == tuple(shards)
        assert found.fields.items() >= whole.fields.items()
        assert {n: (t.kind, t.shape) for n, t in found.tensors.items()} == {
            n: (t.kind, t.shape) for n, t in whole.tensors.items()
        }


def test_a_shard_that_is_missing_is_named(shards: list[Path]):
    shards[1].unlink()
    assert refusal(shards[0]) == f"{shards[1]}: it is missing, part 2 of 2"


def test_a_shard_under_anothers_name_is_named(shards: list[Path]):
    copy(shards[0], shards[1])
    assert "its name says part 2, its split.no 0" in refusal(shards[0])
    assert refusal(shards[0]).startswith(f"{shards[1]}: ")


def test_a_shard_without_its_name_is_named(shards: list[Path], tmp_path: Path):
    alone = tmp_path / "alone.gguf"
    copy(shards[0], alone)
    assert "its name says that the model has 1 files, its split.count 2" in refusal(alone)
    copy(write(tmp_path / "w.gguf"), shards[1])
    assert "has 2 files, its split.count 1" in refusal(shards[0])


def test_shards_of_two_models_are_refused(shards: list[Path], tmp_path: Path):
    folder = tmp_path / "other"
    folder.mkdir()
    write(folder / "m.gguf", parts=2)
    key = b"split.tensors.count" + struct.pack("<I", 5)
    patched(folder / shards[1].name, key + struct.pack("<i", 4), key + struct.pack("<i", 5))
    copy(folder / shards[1].name, shards[1])
    assert refusal(shards[0]).startswith(f"{shards[1]}: its split.tensors.count is 5")
    assert "parts of two models" in refusal(shards[0])


def test_a_tensor_in_two_shards_is_named(shards: list[Path], tmp_path: Path):
    patched(shards[1], b"ten.weight", b"two.weight")
    said = refusal(shards[0])
    assert said.startswith(f"{shards[1]}: tensor 'two.weight' is in {shards[0].name} too")


def test_a_tensor_that_comes_twice_is_named(tmp_path: Path):
    path = write(tmp_path / "m.gguf")
    patched(path, b"ten.weight", b"two.weight")
    assert "tensor 'two.weight' at byte" in refusal(path) and "twice" in refusal(path)
