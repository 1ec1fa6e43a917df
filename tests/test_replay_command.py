"""The words of `draftwerk replay`, as those of the load test's."""

import pytest

from draftwerk_tools import replay_command


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("log.jsonl", "replay http://127.0.0.1:8000 log.jsonl --check --speed 0 --at-once 1"),
        (
            "log --url http://h:1 --at-once 3 --api-key k",
            "replay http://h:1 log --check --speed 0 --at-once 3 --api-key k",
        ),
    ],
)
def test_it_asks_one_after_the_other_and_checks(
    words: str, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_command, "loadtest", lambda given: int(given == sent.split()))
    assert replay_command.main(words.split()) == 1
