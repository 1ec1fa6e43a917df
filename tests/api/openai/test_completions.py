"""`/v1/completions` over a real socket."""

import pytest

from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling.params import Sampling
from tests.api.conftest import MODEL, Served
from tests.api.openai.test_chat import events
from tests.api.support.fake_engine import whole_text


async def test_several_prompts_and_choices_come_in_order(served: Served) -> None:
    reply = (await served.complete(["one", "two"], n=2, seed=4, max_tokens=9)).json()
    assert reply["object"] == "text_completion"
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    options = Options(sampling=Sampling(seed=4), tokens_max=9, choices=2)
    wanted = [whole_text(prompt, options, place) for prompt in ("one", "two") for place in (0, 1)]
    assert [choice["text"] for choice in reply["choices"]] == wanted
    assert reply["usage"]["prompt_tokens"] == 6
    assert reply["usage"]["completion_tokens"] == 36


async def test_several_prompts_stream_with_running_indices(served: Served) -> None:
    reply = await served.complete(["one", "two"], n=2, seed=4, max_tokens=9, stream=True)
    texts = [""] * 4
    for event in events(reply.text):
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    whole = (await served.complete(["one", "two"], n=2, seed=4, max_tokens=9)).json()
    assert texts == [choice["text"] for choice in whole["choices"]]


@pytest.mark.parametrize("prompt", [[104, 105], [[104, 105]], "hi", ["hi"]])
async def test_token_ids_are_as_good_as_text(served: Served, prompt: object) -> None:
    reply = (await served.complete(prompt, seed=4)).json()
    assert reply["choices"][0]["text"] == whole_text(
        "hi", Options(sampling=Sampling(seed=4), tokens_max=16)
    )


async def test_echo_puts_the_prompt_first(served: Served) -> None:
    reply = (await served.complete("hi there: ", echo=True, seed=1)).json()
    assert reply["choices"][0]["text"].startswith("hi there: ")
    streamed = await served.complete("hi there: ", echo=True, seed=1, stream=True)
    text = "".join(event["choices"][0]["text"] for event in events(streamed.text))
    assert text == reply["choices"][0]["text"]


async def test_best_of_returns_the_likeliest_per_token(served: Served) -> None:
    all_five = (await served.complete("x", n=5, seed=1, logprobs=0)).json()["choices"]
    means = [
        sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"])
        for choice in all_five
    ]
    best = max(range(5), key=lambda index: means[index])
    reply = (await served.complete("x", best_of=5, seed=1)).json()
    assert len(reply["choices"]) == 1
    assert reply["choices"][0]["text"] == all_five[best]["text"]
    assert reply["choices"][0]["logprobs"] is None
    assert reply["choices"][0]["index"] == 0
    counted = (await served.complete("x", n=5, seed=1)).json()["usage"]
    assert reply["usage"] == counted


async def test_logprobs_have_offsets_that_go_on_over_chunks(served: Served) -> None:
    whole = (await served.complete("x", seed=8, logprobs=2)).json()["choices"][0]["logprobs"]
    streamed = events((await served.complete("x", seed=8, logprobs=2, stream=True)).text)
    found = [event["choices"][0]["logprobs"] for event in streamed]
    offsets = [offset for each in found if each for offset in each["text_offset"]]
    assert offsets == whole["text_offset"]
    assert len(whole["tokens"]) == len(whole["token_logprobs"]) == len(whole["top_logprobs"])


async def test_the_limit_is_sixteen_tokens_by_default(served: Served) -> None:
    await served.complete("x")
    assert served.engine.submitted[-1][1].tokens_max == 16


async def test_the_stock_client_completes(served: Served) -> None:
    reply = await served.openai.completions.create(model=MODEL, prompt="hi", seed=4, logprobs=1)
    stream = await served.openai.completions.create(model=MODEL, prompt="hi", seed=4, stream=True)
    text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == reply.choices[0].text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"suffix": "the end"}, "suffix"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a"] * 257}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
    ],
)
async def test_what_cannot_be_obeyed_is_refused_by_name(
    served: Served, fields: dict[str, object], param: str
) -> None:
    reply = await served.http.post("/v1/completions", json={"prompt": "x", **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
