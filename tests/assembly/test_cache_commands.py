"""`draftwerk cache`: what is kept on disk, by name, age and size, and what a server uses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from draftwerk.assembly.cache_commands import cache_files
from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint import hub
from draftwerk.model.checkpoint.cached import CachedEntry, beyond, cached_entries
from draftwerk.settings.setting_fields import ConfigError
from tests.support.tiny_gguf import save_gguf
from tests.support.waiting import DEADLINE_S, wait_until

HELD = "import sys; from draftwerk.model.checkpoint.hub import locate; locate(sys.argv[1]); input()"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(gguf_file, "write_tokenizer", lambda *given: None)
    folder = tmp_path / "draftwerk"
    for name, size in (("packed-ab.bin", 300), ("native-avx2-0-1.so", 20), ("blends/x.json", 5)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size)
    old = folder / f"m-3-{'0' * 16}"
    old.mkdir()
    (old / "model.safetensors").write_bytes(b"x" * 1000)
    (old / "config.json").write_bytes(b"{}")
    return folder


def described(folder: Path) -> str:
    path = save_gguf(folder / "mine.gguf", "llama", "Q4_0")
    return hub.locate(str(path)).directory.name


def names() -> set[str]:
    return {entry.name for entry in cached_entries(["0123"])}


def test_what_is_kept_is_listed_with_its_purpose(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    mine = described(tmp_path)
    found = {entry.name: (entry.purpose, entry.is_old) for entry in cached_entries(["0123"])}
    assert found == {
        "packed-ab.bin": ("packed weights", True),
        "native-avx2-0-1.so": ("kernels", True),
        f"m-3-{'0' * 16}": ("bf16 copy", True),
        mine: ("config and tokenizer", False),
    }
    assert cache_files("list", [], "", False) == 0
    said = capsys.readouterr().out
    assert f"config and tokenizer: {mine}" in said and str(cache) in said
    assert "bf16 copy, of an older version: m-3-" in said


def test_a_name_a_kind_and_what_is_old_are_cleared_alone(cache: Path, tmp_path: Path):
    before = names()
    cache_files("clear", ["packed weights"], "", False)
    assert before - names() == {"packed-ab.bin"}
    cache_files("clear", ["m"], "", False)
    assert not (cache / f"m-3-{'0' * 16}").exists()
    with pytest.raises(ConfigError, match="nothing: no such entry; `draftwerk cache` lists them"):
        cache_files("clear", ["nothing"], "", False)
    cache_files("clear", [], "", True)
    assert not (cache / "native-avx2-0-1.so").exists()
    assert (cache / "blends" / "x.json").exists()  # measured, not made again by itself


def test_a_bound_keeps_what_was_used_last():
    def entry(name: str, size: int, used: float, purpose: str = "packed weights") -> CachedEntry:
        return CachedEntry(name, purpose, size, used, Path(name), name == "old")

    entries = [
        entry("new", 10, 9.0),
        entry("middle", 10, 5.0),
        entry("old", 10, 8.0),
        entry("kernels", 10, 1.0, "kernels"),
    ]
    gone = [[each.name for each in beyond(entries, size)] for size in (40, 30, 20, 10, 0)]
    assert gone == [[], ["old"], ["old", "middle"], ["old", "middle", "new"],
                    ["old", "middle", "new", "kernels"]]  # fmt: skip


def test_what_a_process_uses_stays(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    mine = described(tmp_path)
    os.close(hub._HELD.pop(cache / mine))
    command = [sys.executable, "-c", HELD, str(tmp_path / "mine.gguf")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        wait_until(lambda: hub.in_use(cache / mine))
        cache_files("clear", [], "", False)
        assert f"{mine} stays: a server uses it" in capsys.readouterr().out
        server.stdin.write(b"\n")
        server.stdin.close()
        assert server.wait(DEADLINE_S) == 0
    cache_files("clear", [], "", False)
    assert names() == set()
