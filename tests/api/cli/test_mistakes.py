"""Whatever a user gets wrong ends in one line that names it, without a traceback, and in code 2."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copytree
from threading import Thread
from typing import Any

import pytest
import torch

from draftwerk.__main__ import main
from draftwerk.api.shared.config import Settings
from draftwerk.assembly.doctor import findings
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import save_tiny_with_text

SERVE = ["serve", "--port", "0"]
MODEL = "MODEL"
"""Stands for a model that can be served."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with all its files, of which every mistake breaks a copy."""
    directory = tmp_path_factory.mktemp("models") / "whole"
    save_tiny_with_text(directory)
    return directory


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to make mistakes in, and a cache and a hub that are not the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a wrong command line; return its message, after checking that it is one line."""
    capsys.readouterr()
    try:
        code = main(arguments)
    except SystemExit as exit:  # of argparse
        code = exit.code
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if "Writing model" not in line]
    assert code == 2, error
    assert len(lines) == 1, error
    assert lines[0].startswith("draftwerk"), error
    assert "Traceback" not in error
    return lines[0]


# --- words on the command line --------------------------------------------------------------------

LINES: dict[str, tuple[list[str], str]] = {
    "no command": ([], "command"),
    "a command that is none": (["sevre"], "sevre"),
    "a flag that is none": ([*SERVE, "--kv-memroy", "1GiB"], "--kv-memroy"),
    "a flag without its value": (["serve", "--dtype"], "--dtype"),
    "a choice that is none": ([*SERVE, "--dtype", "fp99"], "fp99"),
    "a file of models beside one": ([*SERVE, "one", "--models", "two"], "models"),
    "a port too high": (["serve", "--port", "99999"], "port"),
    "a port below": (["serve", "--port", "-1"], "port"),
    "a size of letters": ([*SERVE, "--kv-memory", "lots"], "`kv_memory` must be a size such as"),
    "a size below": ([*SERVE, "--kv-memory=-1GiB"], "kv_memory"),
    "an odd unit": ([*SERVE, "--body-max", "3 bananas"], "body_max"),
    "Transformers and quantised weights": (
        [*SERVE, MODEL, "--backend", "transformers", "--dtype", "int4"],
        "dtype 'int4': backend transformers takes auto or bf16 or fp32 alone",
    ),
    "Transformers and ranks": (
        [*SERVE, MODEL, "--backend", "transformers", "--tensor-parallel", "2"],
        "tensor_parallel 2: backend transformers takes 1 alone",
    ),
    "Transformers and adapters": (
        [*SERVE, MODEL, "--backend", "transformers", "--lora", "one=two"],
        "lora ('one=two',): backend transformers takes none alone",
    ),
    "Transformers and a GPU": (
        [*SERVE, MODEL, "--backend", "transformers", "--device", "cuda"],
        "device 'cuda': backend transformers takes auto or cpu alone",
    ),
    "Transformers and the built-in GGUF": (
        [*SERVE, "--backend", "transformers"],
        "backend transformers reads directories of safetensors, not GGUF files",
    ),
    "no memory": ([*SERVE, MODEL, "--kv-memory", "0"], "kv_memory"),
    "memory beyond all": (
        [*SERVE, MODEL, "--kv-memory", "900TiB"],
        "kv_memory 900TiB is more than",
    ),
    "digits beyond all": ([*SERVE, MODEL, "--kv-memory", "9" * 400], "kv_memory"),
    "seconds of letters": ([*SERVE, "--drain-s", "soon"], "drain_s"),
    "seconds that are none": ([*SERVE, "--drain-s", "nan"], "drain_s"),
    "a share above one": ([*SERVE, "--audit", "1.5"], "audit"),
    "a draft source that is none": ([*SERVE, MODEL, "--speculate", "ngram,magic"], "magic"),
    "a rule of earlier versions": ([*SERVE, "--verify", "ratio"], "--verify"),
    "a public address": (["serve", "--host", "0.0.0.0"], "--api-key"),
    "an address that is none": ([*SERVE, "--host", "no such host", "--insecure"], "no such host"),
    "an address too long": ([*SERVE, "--host", "a" * 300, "--insecure"], "cannot listen on"),
    "another's address": ([*SERVE, "--host", "192.0.2.1", "--insecure"], "192.0.2.1"),
    "an empty key": ([*SERVE, "--api-key", "alice:"], "api_key"),
    "an origin that is none": ([*SERVE, "--cors-origin", "example"], "cors_origin"),
    "a draft head that is none": ([*SERVE, "--draft-head", "no.safetensors"], "no.safetensors"),
    "a draft model that is none": ([*SERVE, MODEL, "--draft", "./nowhere"], "./nowhere"),
    "a model that is none": ([*SERVE, "./nowhere"], "./nowhere"),
    "a user that is none": ([*SERVE, "~nobody-here/model"], "~nobody-here"),
    "a hub name without a hub": ([*SERVE, "nobody/nothing"], "nobody/nothing"),
    "a config file that is none": (["serve", "--config", "no.toml"], "no.toml"),
    "doctor, a wrong setting": (["doctor", "--port", "many"], "port"),
    "chat, no address": (["chat", "--url", "localhost:8000", "hi"], "localhost:8000"),
    "chat, an odd port": (["chat", "--url", "http://localhost:x", "hi"], "localhost:x"),
    "chat, half an address": (["chat", "--url", "http://[::1", "hi"], "[::1"),
    **{
        f"verify, at {url!r}": (["verify", "reply.json", "--url", url], repr(url))
        for url in ("", "localhost:8000", "http://[::1", "http://localhost:x")
    },
    "chat, a temperature that is none": (["chat", "--temperature", "nan", "hi"], "--temperature"),
    "chat, a hot temperature": (["chat", "--temperature", "hot", "hi"], "--temperature"),
}


@pytest.mark.parametrize(("arguments", "name"), LINES.values(), ids=LINES)
def test_a_wrong_command_line_is_refused_in_one_line(
    arguments: list[str], name: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(model) if each == MODEL else each for each in arguments]
    assert name in printed(arguments, capsys)


def test_another_server_that_answers_verify_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, format: str, *args: Any) -> None:
            """Keep standard error for the command."""

    (folder / "reply.json").write_text('{"receipt": {"type": "draftwerk.receipt"}}')
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.handle_request)
        thread.start()
        said = printed(["verify", "reply.json", "--url", url], capsys)
        thread.join()
    assert f"{url}/v1/verify answers, and not as draftwerk does" in said


# --- files ----------------------------------------------------------------------------------------

CONFIGS = {
    "no TOML": ("port = [", "TOML"),
    "an unknown key": ("prot = 1", "prot"),
    "a table": ("[server]\nport = 1", "server"),
    "a wrong value": ('port = "x"', "port"),
    "a size that is a number": ("kv_memory = 1", "kv_memory"),
    "no text": (b"\xff\xfe", "TOML"),
}


@pytest.mark.parametrize(("content", "name"), CONFIGS.values(), ids=CONFIGS)
def test_a_wrong_config_file_is_refused_in_one_line(
    content: str | bytes, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = content.encode() if isinstance(content, str) else content
    (folder / "draftwerk.toml").write_bytes(raw)
    assert name in printed(["serve", "--config", "draftwerk.toml"], capsys)


def edited(name: str, **changes: object) -> Callable[[Path], None]:
    """Return what changes fields of a JSON file."""

    def edit(directory: Path) -> None:
        path = directory / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return edit


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda directory: (directory / name).write_bytes(content) and None


def cut(name: str) -> Callable[[Path], None]:
    """Return what cuts a file in half."""

    def halve(directory: Path) -> None:
        path = directory / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return halve


def removed(name: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).unlink()


INDEX = "model.safetensors.index.json"
LOST_SHARD = b'{"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}'
FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (removed("config.json"), "config.json"),
    "a config that is no JSON": (written("config.json", b"{"), "config.json"),
    "a config that is no text": (written("config.json", b"\xff"), "config.json"),
    "a config that is a list": (written("config.json", b"[]"), "config.json"),
    "another architecture": (edited("config.json", architectures=["T5"]), "T5"),
    "a size that is a word": (edited("config.json", hidden_size="big"), "hidden_size"),
    "heads that do not divide": (
        edited("config.json", num_attention_heads=3, num_key_value_heads=2),
        "num_key_value_heads",
    ),
    "a layer more": (edited("config.json", num_hidden_layers=3), "model.layers.2"),
    "a window": (edited("config.json", sliding_window=16), "sliding_window"),
    "an end outside": (edited("generation_config.json", eos_token_id=10**6), "eos_token_id"),
    "no weights": (removed("model.safetensors"), "model.safetensors"),
    "weights cut short": (cut("model.safetensors"), "model.safetensors"),
    "weights that are none": (written("model.safetensors", b"<html>" * 9), "model.safetensors"),
    "weights that are empty": (written("model.safetensors", b""), "model.safetensors"),
    "a pointer to weights": (
        written("model.safetensors", b"version https://git-lfs.github.com/spec/v1"),
        "model.safetensors",
    ),
    "a lost shard": (written(INDEX, LOST_SHARD), INDEX),
    "an index that is no JSON": (written(INDEX, b"{"), INDEX),
    "no tokenizer": (removed("tokenizer.json"), "tokenizer.json"),
    "a tokenizer cut short": (cut("tokenizer.json"), "tokenizer.json"),
    "a tokenizer too large": (edited("config.json", vocab_size=49_000), "vocab_size"),
    "a broken template": (written("chat_template.jinja", b"{% if"), "chat_template.jinja"),
    "odd special tokens": (edited("tokenizer_config.json", eos_token=7), "tokenizer_config.json"),
}


@pytest.mark.parametrize(("spoil", "name"), FILES.values(), ids=FILES)
def test_a_model_with_a_wrong_file_is_refused_in_one_line(
    spoil: Callable[[Path], None],
    name: str,
    model: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    directory = folder / "broken"
    copytree(model, directory)
    spoil(directory)
    if name == "vocab_size":  # so that nothing but the tokenizer contradicts it
        embedding = {"model.embed_tokens.weight", "lm_head.weight"}
        shorten(directory / "model.safetensors", embedding, 49_000)
    assert name in printed([*SERVE, str(directory)], capsys)


def shorten(path: Path, names: set[str], rows: int) -> None:
    """Keep the first rows of some tensors of a file."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    kept = {name: each[:rows] if name in names else each for name, each in tensors.items()}
    save_file({name: torch.clone(each) for name, each in kept.items()}, path)


GGUFS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut short": (lambda whole: whole[: len(whole) // 2], "the file is cut short"),
    "empty": (lambda whole: b"", "not a GGUF file: it is empty"),
    "foreign": (lambda whole: b"PK\x03\x04" + whole[4:], "not a GGUF file: it begins with"),
}


@pytest.mark.parametrize(("spoil", "name"), GGUFS.values(), ids=GGUFS)
def test_a_wrong_gguf_is_refused_in_one_line(
    spoil: Callable[[bytes], bytes],
    name: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_gguf(folder / "m.gguf", "llama", "F32")
    (folder / "m.gguf").write_bytes(spoil((folder / "m.gguf").read_bytes()))
    line = printed([*SERVE, "m.gguf"], capsys)
    assert "m.gguf" in line and name in line


def test_a_file_that_is_no_model_is_refused_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "notes.txt").touch()
    assert "notes.txt" in printed([*SERVE, "notes.txt"], capsys)


def test_a_cache_that_cannot_be_written_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "occupied").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "occupied"))
    assert "occupied/draftwerk" in printed(SERVE, capsys)


def test_a_cache_that_cannot_be_written_is_a_finding_of_the_doctor(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "occupied").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "occupied"))
    assert main(["doctor", "--port", "0"]) == 1
    found = capsys.readouterr()
    assert not found.err
    assert any("FAIL" in line and "occupied" in line for line in found.out.splitlines())


def test_a_home_that_does_not_exist_is_no_mistake(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(folder / "nowhere"))
    (found,) = [each for each in findings(Settings(port=0), str) if each.subject == "cache"]
    assert found.state == "good"
    assert str(folder / "nowhere") in found.words


def test_a_model_process_names_what_it_refuses(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "fp8" in printed([*SERVE, str(model), "--device", "cpu", "--dtype", "fp8"], capsys)
