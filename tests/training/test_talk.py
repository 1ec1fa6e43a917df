"""Conversations for training: questions and answers that a server generates."""

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from training.talk import ANSWER_TOKENS, QUESTION_TEMPERATURE, TEMPERATURES, Talk


class Letters:
    """A tokenizer of letters, with a template that marks both turns."""

    def render_chat(self, messages: Sequence[dict[str, str]]) -> str:
        return f"<user>{messages[0]['content']}<model>"

    def encode_continuation(self, text: str) -> list[int]:
        return [*text.encode()]


def talk(bodies: list[dict[str, Any]]) -> Talk:
    """Return one whose server answers every prompt with its number."""

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json={"choices": [{"text": f"({len(bodies)})"}]})

    talker = Talk("http://server", Letters(), 1, ())  # pyright: ignore[reportArgumentType]
    talker.http = httpx.AsyncClient(base_url="http://server", transport=httpx.MockTransport(answer))
    return talker


@pytest.mark.parametrize("number", range(6))
async def test_an_answer_follows_its_question_at_each_temperature_in_turn(number: int) -> None:
    bodies: list[dict[str, Any]] = []
    tokens = await talk(bodies).conversation(number)
    question, answer = bodies
    assert question["temperature"] == QUESTION_TEMPERATURE
    assert answer["temperature"] == TEMPERATURES[number % 3]
    assert answer["max_tokens"] == ANSWER_TOKENS and answer["seed"] == number
    assert not answer["speculation"]["enabled"]
    begun = bytes(question["prompt"]).decode()
    assert begun.startswith("<user>")
    # The question is what stood in the prompt and what was generated behind it.
    asked = begun.removeprefix("<user>") + "(1)"
    assert bytes(tokens).decode() == f"<user>{asked.strip()}<model>(2)"
