"""Ollama's times: how long a model stays, in numbers and words."""

from draftwerk.api.ollama.translate import keep_alive_s


def test_a_model_stays_for_the_time_that_is_said() -> None:
    assert keep_alive_s(None) is None
    assert keep_alive_s("5m") == 300.0 and keep_alive_s(20) == 20.0 and keep_alive_s("0") == 0.0
