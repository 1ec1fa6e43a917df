"""A request names its adapter behind the model's name or in `lora`, in every protocol."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from draftwerk.api.requests.model_choice import served_as
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.ports import ServedAdapter, ServedModel
from draftwerk.speculative.requests.fim import FimTokens
from tests.api.conftest import CARD, MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine

ADAPTERS = (ServedAdapter("poet", "aa11"), ServedAdapter("clerk", "bb22"))
MIDDLE = FimTokens(before=1, after=2, middle=3, ends=(4, 5), repository=6, file=7)
ADAPTED = msgspec.structs.replace(
    CARD, adapters=ADAPTERS, aliases=("alias",), fingerprint="fp_1", fim=MIDDLE
)


@pytest.mark.parametrize(
    ("name", "lora", "digest"),
    [
        (None, None, ""),
        (MODEL, None, ""),
        (f"{MODEL}:poet", None, "aa11"),
        ("alias:clerk", None, "bb22"),
        (f"{MODEL}:clerk:latest", None, "bb22"),
        (f"{MODEL}:latest", None, ""),
        (None, "poet", "aa11"),
        ("alias", "clerk", "bb22"),
        (f"{MODEL}:poet", "poet", "aa11"),
    ],
)
def test_the_adapter_of_a_name(name: str | None, lora: str | None, digest: str) -> None:
    found = served_as(ADAPTED, name, lora)
    assert found.adapter == digest
    assert found.fingerprint == (f"fp_1+{digest}" if digest else "fp_1")
    own = next((each.name for each in ADAPTERS if each.digest == digest), "")
    assert found.name == (f"{MODEL}:{own}" if own else MODEL)


def test_two_adapters_or_an_unknown_one_are_refused() -> None:
    with pytest.raises(ApiError, match="two adapters"):
        served_as(ADAPTED, f"{MODEL}:poet", "clerk")
    with pytest.raises(ApiError, match="which has poet, clerk"):
        served_as(ADAPTED, None, "nobody")
    with pytest.raises(ApiError, match="which has none"):
        served_as(CARD, None, "poet")


def test_a_model_without_a_fingerprint_has_none_with_an_adapter() -> None:
    bare = ServedModel(name="m", context_max=8, adapters=ADAPTERS)
    assert served_as(bare, "m:poet").fingerprint == ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def adapted() -> AsyncGenerator[Served]:
    async with serving(FakeEngine(), queue_max=63) as served:
        served.state.model = ADAPTED
        yield served


async def test_the_engine_is_asked_for_it_and_replies_name_it(adapted: Served) -> None:
    for body in ({"model": f"{MODEL}:poet"}, {"model": MODEL, "lora": "poet"}):
        reply = (await adapted.chat(**body)).json()
        assert reply["model"] == f"{MODEL}:poet"
        assert reply["system_fingerprint"] == "fp_1+aa11"
    reply = (await adapted.chat(model="poet")).json()
    assert (reply["model"], adapted.engine.submitted.pop()[1].adapter) == (f"{MODEL}:poet", "aa11")
    reply = (await adapted.complete(model="alias:clerk")).json()
    assert (reply["model"], reply["system_fingerprint"]) == (f"{MODEL}:clerk", "fp_1+bb22")
    response = await adapted.http.post(
        "/v1/responses", json={"model": MODEL, "lora": "clerk", "input": "Hello"}
    )
    assert response.json()["model"] == f"{MODEL}:clerk"
    digests = [options.adapter for _, options in adapted.engine.submitted]
    assert digests == ["aa11", "aa11", "bb22", "bb22"]


async def test_other_protocols_name_it_behind_the_model(adapted: Served) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    body: dict[str, Any] = {"model": f"{MODEL}:poet", "messages": messages}
    message = await adapted.http.post("/v1/messages", json={**body, "max_tokens": 8})
    assert message.json()["model"] == f"{MODEL}:poet"
    chat = await adapted.http.post("/api/chat", json={**body, "stream": False})
    assert chat.json()["model"] == f"{MODEL}:poet"
    gap = {"model": f"{MODEL}:poet", "input_prefix": "a", "input_suffix": "c", "n_predict": 8}
    assert (await adapted.http.post("/infill", json=gap)).json()["model"] == f"{MODEL}:poet"
    digests = [options.adapter for _, options in adapted.engine.submitted]
    assert digests[-3:] == ["aa11", "aa11", "aa11"]


async def test_every_name_is_listed(adapted: Served) -> None:
    listed = (await adapted.http.get("/v1/models")).json()["data"]
    fingerprints = {each["id"]: each["system_fingerprint"] for each in listed}
    assert fingerprints[f"{MODEL}:poet"] == fingerprints["alias:poet"] == "fp_1+aa11"
    assert fingerprints[MODEL] == "fp_1" and len(listed) == 8
    parents = {each["id"]: each["parent"] for each in listed}
    assert parents["poet"] == parents["alias:poet"] == MODEL and parents[MODEL] is None
    assert {each["root"] for each in listed} == {MODEL}
    one = (await adapted.http.get(f"/v1/models/{MODEL}:clerk")).json()
    assert one["system_fingerprint"] == "fp_1+bb22"
    abilities = (await adapted.http.get("/v1/capabilities")).json()
    assert abilities["adapters"] == {"poet": "aa11", "clerk": "bb22"}


async def test_what_cannot_be_is_refused_by_field(adapted: Served) -> None:
    unknown = await adapted.chat(model=f"{MODEL}:nobody")
    assert unknown.status_code == 404 and unknown.json()["error"]["param"] == "model"
    field = await adapted.chat(lora="nobody")
    assert field.status_code == 400 and field.json()["error"]["param"] == "lora"
    blended = await adapted.complete(
        lora="poet", documents=["A long passage. " * 20], blend={"rule": "hkvd"}
    )
    assert blended.status_code == 400 and blended.json()["error"]["param"] == "blend"
