"""Ids of tokens for those who train on them, and other servers' names of what is served."""

from typing import Any

import pytest

from tests.api.conftest import Served
from tests.api.openai.test_chat import events
from tests.api.support.fake_engine import END


def chunks(text: str) -> list[dict[str, Any]]:
    return [each for each in events(text) if each["choices"]]


async def test_a_chat_has_the_ids_of_its_prompt_and_its_tokens(agent: Served) -> None:
    asked: dict[str, Any] = {"return_token_ids": True, "seed": 3, "n": 2}
    whole = (await agent.chat("hé", **asked)).json()
    assert bytes(whole["prompt_token_ids"]).decode().count("hé") == 1
    streamed = chunks((await agent.chat("hé", **asked, stream=True)).text)
    assert streamed[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert not any("prompt_token_ids" in each for each in streamed[1:])
    for index, choice in enumerate(whole["choices"]):
        ids = [
            token
            for each in streamed
            for part in each["choices"]
            if part["index"] == index
            for token in part["token_ids"]
        ]
        assert ids == choice["token_ids"]
        ended = choice["finish_reason"] == "stop"
        assert (ids[-1] == END) == ended
        text = bytes(ids[:-1] if ended else ids).decode("utf-8", "replace")
        assert choice["message"]["content"] in text


async def test_each_completion_has_the_ids_of_its_own_prompt(served: Served) -> None:
    asked: dict[str, Any] = {"return_token_ids": True, "seed": 3, "n": 2, "max_tokens": 5}
    whole = (await served.complete(["one", "two"], **asked)).json()
    prompts = [bytes(each["prompt_token_ids"]) for each in whole["choices"]]
    assert prompts == [b"one", b"one", b"two", b"two"]
    streamed = chunks((await served.complete(["one", "two"], **asked, stream=True)).text)
    for index, choice in enumerate(whole["choices"]):
        parts = [part for each in streamed for part in each["choices"] if part["index"] == index]
        assert [token for part in parts for token in part["token_ids"]] == choice["token_ids"]
        assert "".join(part["text"] for part in parts) == choice["text"]
        told = [part["prompt_token_ids"] for part in parts if "prompt_token_ids" in part]
        assert told == [choice["prompt_token_ids"]]


@pytest.mark.parametrize("asked", [False, None])
async def test_ids_come_only_where_they_are_asked_for(served: Served, asked: object) -> None:
    reply = (await served.chat(return_token_ids=asked)).json()
    assert "prompt_token_ids" not in reply and "token_ids" not in reply["choices"][0]


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_name_tokens_by_id_on_request(served: Served, stream: bool) -> None:
    asked: dict[str, Any] = {
        "return_tokens_as_token_ids": True, "return_token_ids": True, "stream": stream,
    }  # fmt: skip
    reply = await served.complete(logprobs=1, max_tokens=6, **asked)
    parts = [each["choices"][0] for each in (chunks(reply.text) if stream else [reply.json()])]
    ids = [token for part in parts for token in part["token_ids"]]
    logprobs = [part["logprobs"] for part in parts if part["logprobs"]]
    assert [name for each in logprobs for name in each["tokens"]] == [
        f"token_id:{token}" for token in ids
    ]
    assert all(
        name.startswith("token_id:") for each in logprobs[0]["top_logprobs"] for name in each
    )
    chat = (await served.chat(logprobs=True, return_tokens_as_token_ids=True)).json()
    content = chat["choices"][0]["logprobs"]["content"]
    assert all(each["token"].startswith("token_id:") for each in content)


async def test_tokens_are_named_whose_log_probabilities_are_reported(served: Served) -> None:
    named = {"logprob_token_ids": [98, 97, 98], "max_tokens": 3}
    for reply in (
        await served.complete(logprobs=5, **named),
        await served.chat(logprobs=True, **named),
        await served.chat(logprobs=True, top_logprobs=4, **named),
    ):
        assert reply.status_code == 200, reply.text
        sampling = served.options.sampling
        assert (sampling.logprobs, sampling.logprob_token_ids) == (0, (98, 97))
    await served.chat(logprobs=True, top_logprobs=4, logprob_token_ids=[])
    assert served.options.sampling.logprobs == 4


@pytest.mark.parametrize(
    "asked",
    [
        {"logprobs": None},
        {"logprobs": 1, "max_tokens": 0, "echo": True},
        {"logprobs": 1, "logprob_token_ids": [2**31]},
        {"logprobs": 1, "logprob_token_ids": [-1]},
        {"logprobs": 1, "logprob_token_ids": [*range(21)]},
        {"logprobs": 1, "logprob_token_ids": "a"},
        {"logprobs": 1, "best_of": 3, "logprob_token_ids": [10**6]},
    ],
)
async def test_a_token_that_cannot_be_reported_is_refused_by_name(
    served: Served, asked: dict[str, Any]
) -> None:
    reply = await served.complete(**{"logprob_token_ids": [1], **asked})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith("logprob_token_ids")


async def test_a_beam_search_by_its_other_name_is_as_wide_as_its_choices(served: Served) -> None:
    for asked, width in (({"n": 3}, 3), ({"n": 1, "best_of": 4}, 4), ({}, 1)):
        reply = await served.complete(use_beam_search=True, temperature=0, **asked)
        assert reply.status_code == 200, reply.text
        assert served.options.beam_width == width
    differs = await served.complete(use_beam_search=True, n=2, beam_width=3)
    assert (differs.status_code, differs.json()["error"]["param"]) == (400, "use_beam_search")
