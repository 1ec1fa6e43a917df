"""Where the library cannot be built, the caller gets one kind of exception."""

import threading
from pathlib import Path

import pytest
import torch

from draftwerk.model.native import build
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.speculative.sampling.params import Sampling


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NativeUnavailable, match="compiler"):
        build.library_path.__wrapped__()


def test_a_failing_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NativeUnavailable, match="failed"):
        build.library_path.__wrapped__()
    assert not list((tmp_path / "draftwerk").iterdir())


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
