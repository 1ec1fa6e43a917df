"""What is not served says so in words, and what was nearly asked for is named."""

from typing import Any

import pytest

from tests.api.conftest import MODEL, Served

NEAR = {
    "/chat/completion": "/v1/chat/completions",
    "/v1/v1/chat/completions": "/v1/chat/completions",
    "/v1/chat/completion": "/v1/chat/completions",
    "/completion": "/v1/completions",
    "/v1/message": "/v1/messages",
    "/model": "/v1/models",
    "/version": "/api/version",
    "/healthz": "/health",
    "/embedding": "/v1/embeddings",
    "/v1/infill": "/infill",
}
NOT_SERVED = {
    "/v1/audio/speech": "images, sound and video are",
    "/v1/images/generations": "images, sound and video are",
    "/v1/moderations": "moderation is",
    "/api/pull": "a store of models is",
}


def said(reply: Any) -> str:
    error = reply.json()["error"]
    return error if isinstance(error, str) else error["message"]


@pytest.mark.parametrize("path", NEAR)
async def test_an_address_that_is_nearly_one_names_it(served: Served, path: str) -> None:
    reply = await served.http.post(path, json={})
    assert reply.status_code == 404
    assert f"did you mean {NEAR[path]}?" in said(reply) and "/openapi.json" in said(reply)


@pytest.mark.parametrize("path", NOT_SERVED)
async def test_what_other_servers_have_is_not_served_in_words(served: Served, path: str) -> None:
    reply = await served.http.post(path, json={})
    assert reply.status_code == 404
    assert f"{NOT_SERVED[path]} not served here" in said(reply)


async def test_addresses_answer_without_their_version(served: Served) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}], "seed": 5}
    bare, whole = [
        await served.http.post(at + "/chat/completions", json=body) for at in ("", "/v1")
    ]
    assert bare.json()["choices"] == whole.json()["choices"]
    kept = (await served.http.post("/responses", json={"input": "Hello"})).json()
    assert (await served.http.get(f"/responses/{kept['id']}")).json() == kept
    assert (await served.http.delete(f"/v1/responses/{kept['id']}")).status_code == 200
    assert (await served.http.get("/models")).json() == (await served.http.get("/v1/models")).json()


async def test_other_addresses_and_methods(served: Served) -> None:
    for path in ("/docs", "/v1", "/" + "x" * 5000):
        words = said(await served.http.get(path))
        assert words == "There is nothing at this address. All addresses are in /openapi.json."
    words = said(await served.http.get("/v1/messages"))
    assert words == "This address does not answer to this method, only to POST."


async def test_an_unknown_model_says_what_is_served_and_how_to_rename_it(served: Served) -> None:
    words = said(await served.chat(model="gpt-4o"))
    assert "`gpt-4o`" in words and f"`{MODEL}`" in words and "--served-model-name" in words


PARTS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("/v1/chat/completions", {}, "messages", "image_url", "images"),
    ("/v1/chat/completions", {}, "messages", "input_audio", "audio"),
    ("/v1/chat/completions", {}, "messages", "file", "files"),
    ("/v1/responses", {}, "input", "input_image", "images"),
    ("/v1/responses", {}, "input", "input_file", "files"),
    ("/v1/messages", {"model": MODEL, "max_tokens": 9}, "messages", "image", "images"),
]


@pytest.mark.parametrize(("path", "body", "field", "part", "kind"), PARTS, ids=str)
async def test_images_and_audio_are_refused_in_words(
    served: Served, path: str, body: dict[str, Any], field: str, part: str, kind: str
) -> None:
    turn = {"role": "user", "content": [{"type": part, part: {}}]}
    reply = await served.http.post(path, json={**body, field: [turn]})
    param = f"{field}[0].content[0].type"
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert f"{kind} " in said(reply) and "not supported by this model" in said(reply)


async def test_a_responses_input_is_counted(served: Served) -> None:
    body = {"input": "Hello", "instructions": "Be brief."}
    reply = await served.http.post("/v1/responses/input_tokens", json=body)
    usage = (await served.http.post("/v1/responses", json=body)).json()["usage"]
    expected = {"input_tokens": usage["input_tokens"], "object": "response.input_tokens"}
    assert reply.json() == expected and usage["input_tokens"] > 0
