"""`draftwerk doctor --fingerprint`: digests beside those expected, and the exit code."""

import pytest

from draftwerk.settings.engine_settings import EngineSettings
from draftwerk_tools.trials import digests
from draftwerk_tools.trials.fingerprint_doctor import compare_fingerprints

EXPECTED = {"a fp32": "1"}


@pytest.mark.parametrize(
    ("found", "words", "code"),
    [
        ({"a fp32": "1"}, "[  ok  ] a fp32: 1 as on every machine", 0),
        ({"a fp32": "1", "new": "2"}, "[  ok  ] new: 2 (no other", 0),
        ({"a fp32": "2"}, "[ FAIL ] a fp32: 2, but 1 is expected", 1),
    ],
)
@pytest.mark.parametrize("writes", [False, True])
def test_digests_are_compared_with_those_expected(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: dict[str, str],
    words: str,
    code: int,
    writes: bool,
) -> None:
    written: list[dict[str, str]] = []
    monkeypatch.setattr(digests, "tiny_fingerprints", lambda pool: found)
    monkeypatch.setattr(digests, "model_fingerprints", lambda source, pool: {})
    monkeypatch.setattr(digests, "expected", lambda: EXPECTED)
    monkeypatch.setattr(digests, "write", written.append)
    assert compare_fingerprints(EngineSettings(), writes) == code
    assert words in capsys.readouterr().out
    assert written == [found] * writes
