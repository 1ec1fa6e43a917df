"""GGUF files become the safetensors directories they were once made from."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint import hub
from draftwerk.model.checkpoint.files import content, listing
from draftwerk.model.checkpoint.files.listing import LISTING
from draftwerk.model.checkpoint.gguf_card import GgufCard
from draftwerk.model.checkpoint.gguf_rope import LLAMA3_DEFAULTS
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.recommended import recommended
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.parameters.defaults import SamplingDefaults
from tests.support.gguf_files import add_fields, finish
from tests.support.tiny_gguf import NARROW, described, save_gguf
from tests.support.tiny_models import VOCAB, save_tiny, tiny_model
from training.bf16_copy import bf16_copy, write_copy

THETA = 500_000.0
own_cache = pytest.mark.usefixtures("own_cache")


pytestmark = pytest.mark.usefixtures("no_tokenizer")  # the default model's test has a real one


def write_gguf(path: Path, family: str = "llama", **given: Any) -> None:
    save_gguf(path, family, "F32", **{**NARROW, **given})


def padding(writer: gguf.GGUFWriter) -> None:
    writer.add_string("general.description", "x" * (1 << 20))


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_tensors_come_back_as_transformers_names_and_orders_them(family: str, tmp_path: Path):
    write_gguf(tmp_path / "m.gguf", family)
    out = tmp_path / "out"
    write_copy(described(tmp_path / "m.gguf", out), out, tmp_path / "copy")
    found = load_file(tmp_path / "copy" / "model.safetensors")
    model = tiny_model(family, tie_word_embeddings=True, **NARROW)
    expected = dict(model.named_parameters())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], each.bfloat16()) for name, each in expected.items())


@own_cache
def test_a_model_in_several_files_is_one_by_any_of_their_names(tmp_path: Path):
    write_gguf(tmp_path / "whole.gguf")
    write_gguf(tmp_path / "m.gguf", parts=8)
    shards = sorted(tmp_path.glob("m-*.gguf"))
    assert len(shards) == 3
    whole = weights_of(hub.locate(str(tmp_path / "whole.gguf")))
    found = [hub.locate(str(path)) for path in shards]
    assert len(set(found)) == 1 and found[0].name == "m"
    assert weights_of(found[0]) == whole
    shards[1].unlink()
    with pytest.raises(Refused, match=r"m-00002-of-00003.gguf: it is missing, part 2 of 3"):
        hub.locate(str(shards[0]))


def test_all_ends_are_found(tmp_path: Path):
    """Files name one of several; Gemma's name the text's, not the turn's."""
    path = tmp_path / "m.gguf"
    words = ["<eos>", "<end_of_turn>", "<|im_end|>", *(f"t{index}" for index in range(VOCAB - 3))]
    kinds = [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (VOCAB - 2)

    def more(writer: gguf.GGUFWriter) -> None:
        writer.add_token_list(words)
        writer.add_token_types(kinds)
        writer.add_eos_token_id(0)
        writer.add_eot_token_id(7)

    write_gguf(path, more=more)
    described(path, tmp_path)
    assert read_config(tmp_path).eos_token_ids == (0, 7, 1)


def rotated(writer: gguf.GGUFWriter, divisors: np.ndarray) -> None:
    writer.add_rope_freq_base(THETA)
    writer.add_tensor("rope_freqs.weight", divisors)


def test_llama3_rope_is_read_back_from_its_divisors(tmp_path: Path):
    rule = {"rope_type": "llama3", "factor": 32.0, **LLAMA3_DEFAULTS}
    plain, scaled = (rotary(8, THETA, scaling, 0)[0] for scaling in ({}, rule))
    divisors = np.divide(plain, scaled).astype(np.float32)
    write_gguf(tmp_path / "m.gguf", more=lambda writer: rotated(writer, divisors))
    described(tmp_path / "m.gguf", tmp_path)
    assert read_config(tmp_path).rope_inverse_frequencies == pytest.approx(scaled, rel=1e-6)
    write_gguf(tmp_path / "odd.gguf", more=lambda writer: rotated(writer, divisors[::-1].copy()))
    with pytest.raises(Refused, match="rule"):
        described(tmp_path / "odd.gguf", tmp_path)


@own_cache
def test_two_processes_may_describe_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_gguf(tmp_path / "m.gguf")
    barrier = threading.Barrier(2)
    describe = gguf_file.describe

    def together(*arguments) -> GgufCard:
        barrier.wait(10)
        return describe(*arguments)

    monkeypatch.setattr(gguf_file, "describe", together)
    found: list[hub.Location] = []
    threads = [
        threading.Thread(target=lambda: found.append(hub.locate(str(tmp_path / "m.gguf"))))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert [path.name for path in hub.cache_directory().iterdir()] == [found[0].directory.name]
    assert hub.locate(str(tmp_path / "m.gguf")) == found[0]  # no barrier: not described again


@own_cache
def test_a_model_that_is_refused_leaves_nothing(tmp_path: Path):
    write_gguf(tmp_path / "m.gguf", more=lambda writer: writer.add_expert_count(8))
    with pytest.raises(Refused, match="expert_used_count"):
        hub.locate(str(tmp_path / "m.gguf"))
    assert not list(hub.cache_directory().iterdir())


def weights_of(location: hub.Location) -> bytes:
    return (bf16_copy(location) / "model.safetensors").read_bytes()


@own_cache
def test_two_models_alike_in_name_size_and_first_mebibyte_are_two(tmp_path: Path):
    paths = [tmp_path / folder / "m.gguf" for folder in ("one", "two")]
    for seed, path in enumerate(paths):
        path.parent.mkdir()
        write_gguf(path, seed=seed, more=padding)
    one, two = (path.read_bytes() for path in paths)
    assert len(one) == len(two) and one[: 1 << 20] == two[: 1 << 20] and one != two
    first, second = (hub.locate(str(path)) for path in paths)
    assert weights_of(first) != weights_of(second)


@own_cache
def test_a_file_overwritten_in_place_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(content, "SETTLED_NS", 0)
    path = tmp_path / "m.gguf"
    write_gguf(path, more=padding)
    status = path.stat()
    first = hub.locate(str(path))
    write_gguf(tmp_path / "other.gguf", seed=1, more=padding)
    path.write_bytes((tmp_path / "other.gguf").read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_ino, path.stat().st_size) == (status.st_ino, status.st_size)
    with pytest.raises(Refused, match="it was written while it was read; start again"):
        read_info(first)
    assert hub.locate(str(path)).directory != first.directory


@own_cache
@pytest.mark.parametrize("name", ["gguf.json", "config.json", LISTING])
@pytest.mark.parametrize("how", ["zeroed", "cut", "gone"])
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_damaged_conversion_is_converted_anew(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    how: str,
    is_seen: bool,
):
    """A disk that loses what was written changes no status (`is_seen`): it has to be read."""
    if not is_seen:
        monkeypatch.setattr(listing, "SMALL", 0)
        monkeypatch.setattr(content.Hashed, "of", lambda path: content.Hashed(0, 0, 0, 0, 0, ""))
    path = tmp_path / "m.gguf"
    write_gguf(path)
    directory = hub.locate(str(path)).directory
    damaged = directory / name
    whole = damaged.read_bytes()
    assert hub.locate(str(path)).directory == directory
    assert [*hub.damaged_models(hub.cache_directory())] == [(directory, False)]
    assert not caplog.records
    _damage(damaged, how)
    assert hub.locate(str(path), reads=not is_seen).directory == directory
    assert damaged.read_bytes() == whole
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == f"{damaged} is damaged: m.gguf is read anew"
    assert not [*hub.cache_directory().glob(".m-*")]


@own_cache
def test_the_doctor_reads_conversions_whole(tmp_path: Path):
    write_gguf(tmp_path / "m.gguf")
    directory = hub.locate(str(tmp_path / "m.gguf")).directory
    _damage(directory / "config.json", "zeroed")
    assert [*hub.damaged_models(hub.cache_directory())] == [(directory, True)]


def _damage(path: Path, how: str) -> None:
    if how == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] + bytes(len(data) // 2 if how == "zeroed" else 0))


def test_a_file_is_hashed_once_while_it_stays_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(content, "SETTLED_NS", 0)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    hashed: list[object] = []
    digest = content.file_digest
    monkeypatch.setattr(content, "file_digest", lambda *a: hashed.append(a) or digest(*a))
    assert content.content_name(path, tmp_path) == content.content_name(path, tmp_path)
    assert len(hashed) == 1
    time.sleep(0.02)  # the system's clock ticks every few milliseconds
    path.write_bytes(b"y" * 1000)
    content.content_name(path, tmp_path)
    assert len(hashed) == 2


def test_a_file_written_just_now_is_not_remembered(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    content.content_name(path, tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_cache_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    write_gguf(tmp_path / "m.gguf")
    with pytest.raises(Refused, match=rf"m.gguf cannot .* {tmp_path}/file/draftwerk: Not a dir"):
        hub.locate(str(tmp_path / "m.gguf"))


def test_a_format_that_cannot_be_read_is_refused_before_anything_is_written(tmp_path: Path):
    def bias(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.ffn_up.bias", np.zeros(48, np.int32))

    write_gguf(tmp_path / "m.gguf", more=bias)
    with pytest.raises(Refused, match=r"'blk.0.ffn_up.bias' at byte \d+ is I32: not sup"):
        described(tmp_path / "m.gguf", tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "m.gguf"]


def test_other_architectures_are_refused(tmp_path: Path):
    write_gguf(tmp_path / "m.gguf", architecture="deepseek")
    with pytest.raises(Refused, match="'deepseek' is not supported"):
        described(tmp_path / "m.gguf", tmp_path)


def refusal(path: Path) -> str:
    with pytest.raises(Refused) as found:
        described(path, path.parent)
    assert str(found.value).startswith(f"{path}: ")
    return str(found.value)


@pytest.mark.parametrize("content", [b"GGUF", b"text " * 100, b"GGUF" + bytes(100), bytes(100)])
def test_a_foreign_file_is_refused_by_name(content: bytes, tmp_path: Path):
    (tmp_path / "m.gguf").write_bytes(content)
    assert "GGUF" in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"llama.attention.head_count": 0}, ["llama.attention.head_count 0 is not a count"]),
        ({"llama.block_count": 0}, ["llama.block_count 0 is not a count"]),
        ({"llama.block_count": 2**31}, ["llama.block_count 2147483648 is above 10000"]),
        ({"llama.block_count": 3}, ["tensor 'blk.2.attn_norm.weight' is missing"]),
        (
            {"llama.attention.key_length": 16},
            ["'blk.0.attn_q.weight' at byte ", "is [32, 32], the metadata call for [64, 32]"],
        ),
    ],
)
def test_metadata_that_no_tensors_have_are_refused(
    fields: dict[str, int], said: list[str], tmp_path: Path
):
    write_gguf(tmp_path / "m.gguf", more=lambda writer: add_fields(writer, fields))
    refused = refusal(tmp_path / "m.gguf")
    assert all(each in refused for each in said), refused


def test_words_that_the_embedding_does_not_have_are_refused(tmp_path: Path):
    words = [f"t{index}" for index in range(VOCAB + 1)]
    write_gguf(tmp_path / "m.gguf", more=lambda writer: writer.add_token_list(words))
    refused = refusal(tmp_path / "m.gguf")
    assert "'token_embd.weight' at byte " in refused
    assert "for [98, 32] (tokenizer.ggml.tokens)" in refused


def test_metadata_that_is_missing_is_named(tmp_path: Path):
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    finish(writer)
    assert "a GGUF without .attention.head_count, .embedding_length" in refusal(path)


def test_a_directory_of_safetensors_is_used_where_it_is(tmp_path: Path):
    save_tiny(tmp_path / "mine", "llama")
    assert hub.locate(str(tmp_path / "mine")) == ("mine", tmp_path / "mine")


@own_cache
def test_the_sampling_that_a_file_recommends_is_kept(tmp_path: Path) -> None:
    def sampling(writer: gguf.GGUFWriter) -> None:
        writer.add_float32("general.sampling.temp", 0.6)
        writer.add_float32("general.sampling.top_p", 0.95)
        writer.add_int32("general.sampling.top_k", 20)

    write_gguf(tmp_path / "plain.gguf")
    write_gguf(tmp_path / "says.gguf", more=sampling)
    plain, says = (hub.locate(str(tmp_path / name)) for name in ("plain.gguf", "says.gguf"))
    assert recommended(plain.directory)[0] == SamplingDefaults()
    found = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20)
    assert recommended(says.directory)[0] == found


@pytest.mark.parametrize("is_written", [True, False])
def test_where_a_home_cannot_be_written_files_are_kept_beside_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(hub.sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(
        hub.os, "access", lambda path, mode: is_written or path != tmp_path / "home"
    )
    (tmp_path / "home").mkdir()
    kept = tmp_path / ("home/.cache" if is_written else "venv/cache") / "draftwerk"
    assert hub.cache_directory() == kept
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert hub.cache_directory() == tmp_path / "other/draftwerk"
