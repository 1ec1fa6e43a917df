"""Requests that do not say how tokens are drawn are drawn as the model recommends, everywhere."""

from typing import Any

import pytest
from msgspec.structs import replace

from draftwerk.api.cli.banner import banner
from draftwerk.python_api.requests import call_of
from draftwerk.python_api.sampling_params import SamplingParams
from draftwerk.speculative.parameters.defaults import SamplingDefaults
from tests.api.conftest import BODIES, CARD, HELLO, MODEL, Served

OWN = SamplingDefaults(temperature=0.3, top_p=0.8, top_k=20, min_p=0.05, repetition_penalty=1.125)
CARDED = replace(CARD, sampling=OWN, sampling_source="its model card")


async def drawn(served: Served, path: str, **said: Any) -> SamplingDefaults:
    """Send a request; return how its tokens were drawn."""
    fields = {"options": said} if path.startswith("/api/") else said
    reply = await served.http.post(path, json={"model": MODEL, **BODIES[path], **fields})
    assert reply.status_code == 200, reply.text
    return drawn_of(served.options.sampling)


def drawn_of(sampling: Any) -> SamplingDefaults:
    return SamplingDefaults(
        **{name: getattr(sampling, name) for name in SamplingDefaults.__struct_fields__}
    )


@pytest.mark.parametrize("path", BODIES)
async def test_a_request_takes_the_models_own_but_for_what_it_says(
    served: Served, path: str
) -> None:
    served.state.model = CARDED
    assert await drawn(served, path) == OWN
    assert await drawn(served, path, temperature=1) == replace(OWN, temperature=1.0)
    assert await drawn(served, path, temperature=0, top_p=1) == replace(
        OWN, temperature=0.0, top_p=1.0
    )


async def test_a_beam_search_and_the_reply_of_responses(served: Served) -> None:
    served.state.model = CARDED
    assert await drawn(served, "/v1/completions", beam_width=2) == drawn_of(
        replace(CARD_NEUTRAL, temperature=0.0)
    )
    reply = await served.http.post("/v1/responses", json={"input": "Hello", "top_p": 0.5})
    assert (reply.json()["temperature"], reply.json()["top_p"]) == (0.3, 0.5)


CARD_NEUTRAL = SamplingDefaults(
    temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0
)


async def test_a_model_that_says_nothing_leaves_the_distribution_as_it_is(served: Served) -> None:
    assert await drawn(served, "/v1/chat/completions") == CARD_NEUTRAL


def test_the_python_api_takes_them_too() -> None:
    for prompt in ("Hello", HELLO):
        call = call_of(prompt, None, CARDED, lambda: 1)
        assert drawn_of(call.options.sampling) == OWN
        call = call_of(prompt, SamplingParams(top_k=-1), CARDED, lambda: 1)
        assert drawn_of(call.options.sampling) == replace(OWN, top_k=0)


@pytest.mark.parametrize("path", BODIES)
async def test_tokens_that_the_makers_bar_are_in_no_text(served: Served, path: str) -> None:
    served.state.model = replace(CARDED, suppressed=(3, 5))
    await drawn(served, path)
    assert served.options.sampling.logit_bias == ((3, -100.0), (5, -100.0))
    if path in ("/v1/chat/completions", "/v1/completions"):
        await drawn(served, path, logit_bias={"5": 9, "7": 1})
        bias = served.options.sampling.logit_bias
        assert bias == ((3, -100.0), (5, -100.0), (7, 1.0))


async def test_they_are_shown(served: Served) -> None:
    served.state.model = CARDED
    (card,) = (await served.http.get("/v1/models")).json()["data"]
    assert card["sampling"] == {**OWN.given(), "source": "its model card"}
    shown = banner(CARDED, "http://x")
    assert "temperature 0.3, top p 0.8" in shown and "its model card" in shown
    assert "sampling" not in banner(CARD, "http://x")
