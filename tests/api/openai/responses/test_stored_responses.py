"""Responses are kept for their API key: to be read, deleted and continued."""

from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.api.shared.response_store import KeptResponses, StoredResponse
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage
from tests.api.conftest import MODEL, Served, serving
from tests.api.support.fake_engine import END, FakeEngine, answer_tokens, prompt_text
from tests.api.support.sockets import last_word, socket


def answered(served: Served, at: int = -1) -> tuple[int, ...]:
    """Return the tokens of an answer, without the one that ends it."""
    prompt, options = served.engine.submitted[at]
    tokens = answer_tokens(prompt_text(prompt), options, 0)
    return tuple(token for token in tokens if token != END)


async def test_a_response_goes_on_from_another_token_for_token(served: Served) -> None:
    first = await served.openai.responses.create(
        model=MODEL, input="Hello", instructions="Be brief."
    )
    tokens = answered(served)
    second = await served.openai.responses.create(
        model=MODEL, input="More", previous_response_id=first.id
    )
    assert second.previous_response_id == first.id
    prompt, _ = served.engine.submitted[-1]
    assert prompt == Chat(
        (
            ChatMessage("user", "Hello"),
            ChatMessage("assistant", first.output_text, tokens=tokens),
            ChatMessage("user", "More"),
        )
    ), "instructions are of one response alone"
    await served.openai.responses.create(
        model=MODEL, input="Still more", previous_response_id=second.id
    )
    assert len(served.talk.messages) == 5


async def test_a_streamed_response_at_its_limit_is_gone_on_from_too(served: Served) -> None:
    stream = await served.openai.responses.create(
        model=MODEL, input="Hello", stream=True, max_output_tokens=3, temperature=0
    )
    last: Any = [event async for event in stream][-1]
    assert last.response.status == "incomplete"
    await served.openai.responses.create(
        model=MODEL, input="More", previous_response_id=last.response.id
    )
    prompt = served.talk
    assert prompt.messages[1].tokens == answered(served, -2)
    assert len(prompt.messages[1].tokens) == 3


async def test_a_kept_response_can_be_read_and_deleted(served: Served) -> None:
    made = await served.openai.responses.create(model=MODEL, input="Hello", metadata={"a": "b"})
    read = await served.openai.responses.retrieve(made.id)
    assert read == made
    assert read.model_extra == made.model_extra
    deleted = await served.http.delete(f"/v1/responses/{made.id}")
    assert deleted.json() == {"id": made.id, "object": "response", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        await served.openai.responses.retrieve(made.id)
    reply = await served.http.delete(f"/v1/responses/{made.id}")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "response_not_found")
    with pytest.raises(openai.BadRequestError, match="is not known here"):
        await served.openai.responses.create(
            model=MODEL, input="More", previous_response_id=made.id
        )


async def test_store_false_keeps_nothing_and_the_response_shows_it(served: Served) -> None:
    for store, kept in ((False, 404), (True, 200), (None, 200)):
        body = {"input": "Hello", "store": store}
        made = (await served.http.post("/v1/responses", json=body)).json()
        assert made["store"] == (kept == 200)
        assert (await served.http.get(f"/v1/responses/{made['id']}")).status_code == kept


async def test_a_server_may_keep_nothing_at_all() -> None:
    async with serving(FakeEngine(), responses_max=0) as served:
        made = (await served.http.post("/v1/responses", json={"input": "Hello"})).json()
        assert made["store"] is False
        assert (await served.http.get(f"/v1/responses/{made['id']}")).status_code == 404
        refused = await served.http.post("/v1/responses", json={"input": "x", "store": True})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "store")


async def test_another_key_finds_nothing() -> None:
    async with serving(FakeEngine(), api_key=["ann:a", "bob:b"]) as served:
        keys = {
            name: {"authorization": f"Bearer {key}"} for name, key in (("ann", "a"), ("bob", "b"))
        }
        url, body = "/v1/responses", {"input": "Hello"}
        made = (await served.http.post(url, json=body, headers=keys["ann"])).json()["id"]
        for method in ("GET", "DELETE"):
            reply = await served.http.request(method, f"{url}/{made}", headers=keys["bob"])
            assert reply.status_code == 404
        body = {"input": "More", "previous_response_id": made}
        assert (await served.http.post(url, json=body, headers=keys["bob"])).status_code == 400
        assert (await served.http.post(url, json=body, headers=keys["ann"])).status_code == 200


async def test_what_failed_or_was_refused_is_not_kept(served: Served) -> None:
    for trouble in ("!refuse", "!fail"):
        for stream in (False, True):
            body = {"input": trouble, "stream": stream}
            await served.http.post("/v1/responses", json=body)
    assert not served.state.responses.of("").kept


async def test_a_request_id_used_twice_makes_two_responses(served: Served) -> None:
    ids = []
    for text in ("one", "two", "three"):
        reply = await served.http.post(
            "/v1/responses", json={"input": text}, headers={"x-request-id": "same"}
        )
        ids.append(reply.json()["id"])
    assert ids == ["resp_same", "resp_same_2", "resp_same_3"]


async def test_a_socket_goes_on_from_what_a_post_made_and_the_other_way_round(
    served: Served,
) -> None:
    made = (await served.http.post("/v1/responses", json={"input": "Hello"})).json()["id"]
    async with socket(served) as ws:

        async def created(text: str, before: str, **fields: Any) -> Any:
            last = await last_word(ws, text, previous_response_id=before, **fields)
            return last["response"]

        kept = await created("More", made)
        secret = await created("Still", kept["id"], store=False)
        assert (kept["store"], secret["store"]) == (True, False)
        assert (await created("And", secret["id"], store=False))["status"] == "completed"
    for response, status in ((kept, 200), (secret, 400)):
        body = {"input": "More", "previous_response_id": response["id"]}
        assert (await served.http.post("/v1/responses", json=body)).status_code == status


async def test_a_response_that_did_not_run_in_the_background_is_not_streamed_again(
    served: Served,
) -> None:
    made = (await served.http.post("/v1/responses", json={"input": "Hello"})).json()["id"]
    reply = await served.http.get(f"/v1/responses/{made}?stream=true")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "stream_not_found")


@given(
    st.lists(st.tuples(st.sampled_from("kfd"), st.integers(0, 6), st.integers(0, 400)), max_size=40)
)
def test_the_bounds_hold_whatever_is_kept_and_deleted(
    steps: list[tuple[str, int, int]],
) -> None:
    kept = KeptResponses(count_max=4, bytes_max=1500)
    latest: dict[str, StoredResponse] = {}
    for what, number, length in steps:
        name = f"resp_{number}"
        there = name in kept.kept
        if what == "k":
            latest[name] = StoredResponse((ChatMessage("user", "x" * length),), b"{}")
            kept.keep(name, latest[name])
        elif what == "d":
            assert kept.forget(name) == there
            assert kept.find(name) is None
        else:
            assert kept.find(name) in (None, latest.get(name))
        kept.check()


def test_the_least_lately_used_goes_first() -> None:
    kept = KeptResponses(count_max=2)
    for name in "ab":
        kept.keep(name, StoredResponse((), b"{}"))
    assert kept.find("a") is not None
    kept.keep("c", StoredResponse((), b"{}"))
    assert [name for name in "abc" if kept.find(name)] == ["a", "c"]
