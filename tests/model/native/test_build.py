"""How the library is made: where it cannot be built, the caller gets one kind of exception."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from draftwerk.model.native import build, library, ready
from draftwerk.model.native.build import NativeUnavailable, obtain
from draftwerk.model.native.isa import ISAS
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.speculative.sampling import Sampling

COMPILER = """#!/bin/sh
if [ "$1" = --version ]; then echo "fake ${VERSION:-1}"; exit; fi
echo "$@" >> "$LOG"
while [ "$1" != -o ]; do shift; done
echo object > "$2"
"""


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of its own and no ready-made library; the instruction set does not matter."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build, "READY", tmp_path / "ready")
    monkeypatch.setattr(build, "chosen", lambda: ISAS["avx2"])
    return tmp_path / "cache" / "draftwerk"


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A compiler whose work is a line in a log; the log's path."""
    (tmp_path / "g++").write_text(COMPILER)
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NativeUnavailable, match="no C\\+\\+ compiler: CXX=no-such-compiler"):
        obtain()


def test_a_failing_compiler(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(NativeUnavailable, match="the C\\+\\+ compiler failed"):
        obtain()
    assert not list(cache.iterdir())


def test_a_library_is_compiled_once(cache: Path, compiler: Path) -> None:
    lines: list[str] = []
    first = obtain(progress=lines.append)
    commands = compiler.read_text().splitlines()
    assert len(commands) == len(list(build.SOURCES.rglob("*.cpp"))) + 1
    assert all("-mavx2" in command and "-march=native" not in command for command in commands)
    subject, parts = "compiling the avx2 kernels with fake 1, once", len(commands)
    told = [f"{subject}: {done} of {parts} parts" for done in range(1, parts + 1)]
    assert lines == [subject, *told]
    lines.clear()
    assert obtain(progress=lines.append) == first
    assert [first.path] == list(cache.iterdir())
    assert not lines


@pytest.mark.parametrize("of", ["available", "compared"])
def test_set_up_compiles_the_sets_asked_for(
    monkeypatch: pytest.MonkeyPatch, cache: Path, compiler: Path, of: str
) -> None:
    some = [ISAS["avx2"], ISAS["avx512"]]
    monkeypatch.setattr(build, of, lambda: some)
    monkeypatch.setattr(build, "named", ISAS.get)
    monkeypatch.setattr(sys, "argv", ["build", "--all" if of == "available" else "--compared"])
    assert build.main() == 0
    assert {path.name.split("-")[1] for path in cache.glob("native-*.so")} == {"avx2", "avx512"}


def test_another_compiler_or_instruction_set_is_another_library(
    monkeypatch: pytest.MonkeyPatch, cache: Path, compiler: Path
) -> None:
    paths = {obtain().path}
    monkeypatch.setenv("VERSION", "2")
    paths.add(obtain().path)
    monkeypatch.setattr(build, "chosen", lambda: ISAS["avx512"])
    paths.add(obtain().path)
    assert paths == set(cache.iterdir())
    assert len(paths) == 3


def test_a_changed_source_is_another_library(
    monkeypatch: pytest.MonkeyPatch, cache: Path, compiler: Path, tmp_path: Path
) -> None:
    (tmp_path / "source" / "inner").mkdir(parents=True)
    (tmp_path / "source" / "inner" / "one.cpp").write_text("int one;")
    monkeypatch.setattr(build, "SOURCES", tmp_path / "source")
    keys: set[str] = set()
    for text in ("1", "2", "1"):
        (tmp_path / "source" / "inner" / "one.h").write_text(text)
        build.source_key.cache_clear()
        keys.add(build.source_key(ISAS["avx2"]))
    build.source_key.cache_clear()
    assert len(keys) == 2


def test_a_killed_compile_leaves_nothing_for_long(cache: Path, compiler: Path) -> None:
    left = cache / f"{build.WORKING}killed"
    left.mkdir(parents=True)
    (left / "1.o").write_text("half an object")
    made = obtain().path
    assert list(cache.iterdir()) == [made]


def test_a_compiler_that_has_gone_leaves_its_library(
    monkeypatch: pytest.MonkeyPatch, cache: Path, compiler: Path, tmp_path: Path
) -> None:
    path = obtain().path
    (tmp_path / "g++").unlink()
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    found = obtain()
    assert found.path == path
    assert "from the cache" in found.origin
    path.unlink()
    with pytest.raises(NativeUnavailable, match="pip install ziglang"):
        obtain()


def test_a_ready_made_library_needs_no_compiler(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    ready = build.ready_path(ISAS["avx2"])
    ready.parent.mkdir()
    ready.write_text("a library")
    build.seal(ready)
    assert obtain().path == ready
    assert "ready-made" in obtain().origin


def test_a_library_of_the_package_takes_the_place_of_what_older_sources_gave(
    monkeypatch: pytest.MonkeyPatch, cache: Path, compiler: Path
) -> None:
    monkeypatch.setattr(ready, "READY", build.READY)
    build.READY.mkdir()
    (build.READY / f"avx2-{'0' * 16}.so").write_text("of older sources")
    found = build.find_compiler()
    assert found is not None
    made = ready.make(found, ISAS["avx2"])
    assert [*build.READY.iterdir()] == [made] == [obtain().path]


@pytest.mark.parametrize("how", ["empty", "cut short", "one bit flipped", "not sealed"])
@pytest.mark.parametrize("is_ready_made", [False, True])
def test_a_damaged_library_is_compiled_anew(
    cache: Path, compiler: Path, caplog: pytest.LogCaptureFixture, how: str, is_ready_made: bool
) -> None:
    path = build.ready_path(ISAS["avx2"]) if is_ready_made else obtain().path
    if is_ready_made:
        path.parent.mkdir()
        path.write_text("a library")
        build.seal(path)
    whole = path.read_bytes()
    spoiled = {
        "empty": b"",
        "cut short": whole[: len(whole) - 1],
        "one bit flipped": bytes([whole[0] ^ 1]) + whole[1:],
        "not sealed": whole.rpartition(build.SEAL)[0],
    }
    path.write_bytes(spoiled[how])
    made = obtain().path
    assert build.is_whole(made) and made.parent == cache
    assert [*build.damaged_libraries(cache)] == [(made, False)]
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{path} is damaged: the kernels are compiled anew"]


def test_a_library_that_does_not_load_is_compiled_anew_once(
    cache: Path, compiler: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build.library_path.cache_clear()
    path = build.library_path()
    with pytest.raises(NativeUnavailable, match="does not load"):
        library._loaded(None)  # the fake compiler's object is no library, nor is the next
    assert len(compiler.read_text().splitlines()) == 2 * (
        len(list(build.SOURCES.rglob("*.cpp"))) + 1
    )
    (record,) = caplog.records
    assert f"{path} does not load" in record.getMessage()
    build.library_path.cache_clear()


def test_a_cache_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, cache: Path, compiler: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(NativeUnavailable, match=r"cannot be stored in .*file.*XDG_CACHE_HOME"):
        obtain()


def test_processes_that_start_together_compile_once(
    cache: Path, compiler: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "draftwerk.model.native.build"]
    together = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300)[0] for process in together]
    assert sum("compiling" in text for text in said) == 1, said
    assert len(list(cache.iterdir())) == 1


def test_two_threads_may_share_a_pool(pool: Pool) -> None:
    """Jobs queue up behind each other, also when there are more threads than cores."""
    logits = torch.randn(8, 2000)
    requests = [SamplingRequest(row, 1, Sampling(seed=row)) for row in range(8)]
    expected = NativeSampler(pool).choose_many(logits, requests)
    shared = NativeSampler(Pool(5))
    wrong: list[list[int]] = []

    def work() -> None:
        for _ in range(300):
            chosen = shared.choose_many(logits, requests)
            if chosen != expected:
                wrong.append(chosen)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
