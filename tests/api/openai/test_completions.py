"""`/v1/completions` over a real socket."""

import pytest
from msgspec import structs

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.actors.events.option_texts import FurtherTexts, TokenText
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.api.openai.completions import CompletionSerializer
from draftwerk.api.openai.logprobs import prompt_logprobs
from draftwerk.api.openai.replies import PromptLogprob
from draftwerk.api.responses.serializer import GatheredChoice, ReplyMetadata
from draftwerk.api.shared.usage import RequestMetrics, Usage
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling
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


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 3, "stream": True}, "best_of"),
        ({"echo": True, "logprobs": 1, "beam_width": 2}, "echo"),
        ({"prompt_logprobs": 0, "beam_width": 2}, "prompt_logprobs"),
        ({"max_tokens": 0, "beam_width": 2}, "max_tokens"),
        ({"suffix": "the end"}, "suffix"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a"] * 257}, "prompt"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_tokens": 0, "min_tokens": 1}, "min_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
    ],
)
async def test_what_cannot_be_obeyed_is_refused_by_name(
    served: Served, fields: dict[str, object], param: str
) -> None:
    reply = await served.http.post("/v1/completions", json={"prompt": "x", **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_what_stands_between_two_texts_is_asked_for(coder: Served) -> None:
    reply = await coder.openai.completions.create(
        model=MODEL, prompt="def f(x):\n", suffix="\n    return y\n", max_tokens=9
    )
    assert reply.choices[0].text
    prompt, options = coder.engine.submitted[-1]
    text = b"def f(x):\n", b"\n    return y\n"
    assert prompt == (1, *text[0], 2, *text[1], 3)
    assert options.stop_token_ids == (4, 5)
    await coder.openai.completions.create(model=MODEL, prompt="x", suffix="", max_tokens=3)
    assert coder.engine.submitted[-1][0] == "x", "an empty one is none"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True}, "echo"),
        ({"prompt": ["a", "b"]}, "suffix"),
        ({"prompt": [1, 2]}, "suffix"),
        ({"documents": ["x"]}, "documents"),
    ],
)
async def test_what_goes_with_one_text_does_not_with_two(
    coder: Served, fields: dict[str, object], param: str
) -> None:
    body = {"prompt": "x", "suffix": "y", **fields}
    reply = await coder.http.post("/v1/completions", json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def scored(*tokens: int) -> tuple[TokenText, ...]:
    return tuple(
        TokenText(token, bytes([token]).decode("utf-8", "replace"), bytes([token]), -0.5 * token)
        for token in tokens
    )


def test_every_choice_of_an_echoed_prompt_has_its_log_probabilities() -> None:
    metadata = ReplyMetadata("id", 0, "m", logprobs=True, echo=True, prompt_logprobs=True)
    prompts, text = [scored(*"hé".encode()), scored(*b"you")], scored(*b"jo")
    # A token that begins within a character is where the character is.
    places = [0, 1, 1, 2, 3], [0, 1, 2, 3, 4]
    said: list[Delta | Ended] = []
    for choice in range(4):  # the first of each prompt's two reads it, in two rounds
        prompt = () if choice % 2 else prompts[choice // 2]
        parts = [(prompt[:2], ()), (prompt[2:], text)] if prompt else [((), text)]
        said += [
            Delta(
                request_id="",
                choice=choice,
                text="",
                tokens=(1,),
                further=FurtherTexts(scored=read),
                logprobs=new,
            )
            for read, new in parts
        ]
        end = Ended(
            request_id="",
            choice=choice,
            finish_reason="stop",
            text="",
            token_count=1,
            stats=SequenceStats(),
        )
        said.append(end)
    del said[-2]  # the last choice's first token begins its stop string
    gathered = [GatheredChoice(choice) for choice in range(4)]
    for event in said:
        gathered[event.choice].add(event)
    streaming = CompletionSerializer(metadata, generated=2, kept=2)
    chunks = [chunk.choices[0] for event in said for chunk in streaming.chunks(event, None)]
    whole = CompletionSerializer(metadata, generated=2, kept=2).reply(
        gathered, Usage(1, 2, 3), RequestMetrics(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None, 7)
    )
    for choice in range(4):
        tokens = [*prompts[choice // 2], *(text if choice < 3 else ())]
        mine = [each for each in chunks if each.index == choice]
        streamed = [each.logprobs for each in mine if each.logprobs]
        for found in (streamed, [whole.choices[choice].logprobs]):
            values = [value for each in found for value in each.token_logprobs]
            assert values == [None, *(each.logprob for each in tokens[1:])]
            offsets = [at for each in found for at in each.text_offset]
            assert offsets == places[choice // 2][: len(tokens)]
            assert [one is None for each in found for one in each.top_logprobs].count(True) == 1
        scores = [each for one in mine if one.prompt_logprobs for each in one.prompt_logprobs]
        assert scores == [*whole.choices[choice].prompt_logprobs]
        assert scores[0] is None and len(scores) == len(prompts[choice // 2])


def test_a_prompts_log_probabilities_are_by_token_as_vllm_has_them() -> None:
    first, second = scored(104, 105)
    second = structs.replace(second, top=(TokenText(7, "x", b"x", -0.1), second))
    assert prompt_logprobs((first, second)) == (
        None,
        {105: PromptLogprob(second.logprob, 2, "i"), 7: PromptLogprob(-0.1, 1, "x")},
    )
    assert prompt_logprobs((second,), is_first=False)[0] is not None
