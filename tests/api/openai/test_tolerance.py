"""What stock clients send by default is obeyed, or taken where it cannot change what was asked."""

from typing import Any

import msgspec
import pytest

from tests.api.conftest import HELLO, MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine, whole_text

HINTS: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", {"metadata": {"run": "7"}, "store": True}),
    ("chat/completions", {"store": False, "metadata": {}}),
    ("chat/completions", {"reasoning_effort": "high"}),
    ("chat/completions", {"reasoning_effort": "none", "verbosity": "low"}),
    ("chat/completions", {"prompt_cache_retention": "24h", "prompt_cache_key": "a"}),
    ("chat/completions", {"service_tier": "default", "user": "u", "safety_identifier": "s"}),
    ("responses", {"reasoning": {"effort": "medium", "summary": "auto"}}),
    ("responses", {"reasoning": {"effort": None}, "text": {"verbosity": "high"}}),
    ("responses", {"include": ["reasoning.encrypted_content"]}),
    ("responses", {"truncation": "auto"}),
    ("responses", {"truncation": "disabled", "store": True, "metadata": {"a": "b"}}),
]


def body_of(path: str) -> dict[str, Any]:
    prompt = {"messages": HELLO} if path == "chat/completions" else {"input": "Hello"}
    return {"model": MODEL, "seed": 5, **prompt}


@pytest.mark.parametrize(("path", "fields"), HINTS, ids=str)
async def test_a_hint_is_taken_and_the_text_is_the_same(
    served: Served, path: str, fields: dict[str, Any]
) -> None:
    for stream in (False, True):
        body = {**body_of(path), "stream": stream}
        assert (await served.http.post("/v1/" + path, json=body)).status_code == 200
        reply = await served.http.post("/v1/" + path, json={**body, **fields})
        assert reply.status_code == 200, reply.text
        (plain, options), (prompt, hinted) = served.engine.submitted[-2:]
        assert (prompt, hinted) == (plain, options)


async def test_a_model_that_reasons_first_does_not_ignore_an_effort(served: Served) -> None:
    served.state.model = msgspec.structs.replace(served.state.model, reasons=True)
    for path, fields, param in (
        ("chat/completions", {"reasoning_effort": "low"}, "reasoning_effort"),
        ("responses", {"reasoning": {"effort": "low"}}, "reasoning"),
        ("responses", {"include": ["reasoning.encrypted_content"]}, "include"),
    ):
        reply = await served.http.post("/v1/" + path, json={**body_of(path), **fields})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_a_participants_name_reaches_the_template(served: Served) -> None:
    reply = await served.chat(messages=[{"role": "user", "name": "Ann", "content": "x"}])
    assert reply.status_code == 200
    assert served.talk.messages[0].name == "Ann"


@pytest.mark.parametrize(
    ("asked", "shown", "order"),
    [("flex", "flex", 1), ("priority", "priority", -1), ("fast", "priority", -1)]
    + [(tier, "default", 0) for tier in ("auto", "default", "scale")],
)
async def test_a_service_tier_is_a_priority_and_the_reply_names_it(
    served: Served, asked: str, shown: str, order: int
) -> None:
    for path in ("chat/completions", "responses"):
        body = {**body_of(path), "service_tier": asked}
        reply = await served.http.post("/v1/" + path, json=body)
        assert reply.json()["service_tier"] == shown
        priority = served.options.priority
        assert (priority > 0) - (priority < 0) == order
        await served.http.post("/v1/" + path, json={**body, "priority": 7})
        assert served.options.priority == 7
        plain = await served.http.post("/v1/" + path, json=body_of(path))
        assert plain.json().get("service_tier") == ("default" if path == "responses" else None)


async def test_truncation_drops_the_earliest_turns_and_keeps_system_messages() -> None:
    async with serving(FakeEngine(context_max=4096)) as served:
        turns = [{"role": "system", "content": "Be brief."}]
        for number in range(100):
            turns.append({"role": "user", "content": f"{number} " + "x" * 50})
            turns.append({"role": "assistant", "content": "y" * 50})
        turns.append({"role": "user", "content": "The last."})
        body = {"input": turns, "max_output_tokens": 100, "instructions": "Rhyme."}
        reply = await served.http.post("/v1/responses", json={**body, "truncation": "auto"})
        assert reply.status_code == 200
        assert reply.json()["truncation"] == "auto"
        prompt, options = served.talk, served.options
        said = [each.content for each in prompt.messages]
        assert said[:2] == ["Rhyme.", "Be brief."]
        assert said[-1] == "The last."
        assert prompt.messages[2].role == "user"
        count = len(served.state.text_tools.encode_chat(prompt.messages))
        turn = len("user: 99 \nassistant: \n") + 100
        assert 4096 - 100 - turn < count <= 4096 - 100
        assert reply.json()["output"][0]["content"][0]["text"] == whole_text(prompt, options)


async def test_aliases_are_the_model_too(served: Served) -> None:
    served.state.model = msgspec.structs.replace(served.state.model, aliases=("gpt-4o", "org/m"))
    for name in (MODEL, "gpt-4o", "org/m"):
        reply = await served.chat(model=name)
        assert (reply.status_code, reply.json()["model"]) == (200, MODEL)
        found = (await served.http.get(f"/v1/models/{name}")).json()
        assert (found["id"], found["root"]) == (name, MODEL)
    listed = (await served.http.get("/v1/models")).json()["data"]
    assert [each["id"] for each in listed] == [MODEL, "gpt-4o", "org/m"]
    told = (await served.http.get("/v1/capabilities")).json()
    assert (told["model"], told["aliases"]) == (MODEL, ["gpt-4o", "org/m"])
    assert (await served.chat(model="other")).status_code == 404
