"""`/v1/embeddings` and `/v1/rerank`, as openai's, Jina's, Cohere's and llama.cpp's clients ask."""

import asyncio
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from draftwerk.api.shared.ports import ServedAdapter
from draftwerk.speculative.requests.client_prompts import QueryPair
from draftwerk.speculative.requests.pooling import PoolingParams, RerankForm, VectorForm
from tests.api.conftest import BODIES, MODEL, Served
from tests.api.support.fake_engine import WIDTH, states_of
from tests.support.waiting import until

FORM = RerankForm(template="{query}{document}", answers=(7, 9), instruction="Find it.")
DOCUMENTS = ["no", "yes yes", "perhaps yes", "yes yes"]


@pytest.fixture
def embedder(served: Served) -> Served:
    """A server whose model has prompts of its own."""
    prompts = {"query": "Q: ", "document": "D: "}
    form = VectorForm(pooling="mean", source="a file", width=WIDTH, prompts=prompts)
    served.state.model = replace(served.state.model, vectors=form, rerank=FORM)
    return served


def direction(text: str, dimensions: int = WIDTH) -> list[float]:
    numbers = states_of(text)[:dimensions]
    length = sum(number**2 for number in numbers) ** 0.5
    return [number / length for number in numbers]


async def embed(served: Served, given: Any, **fields: Any) -> httpx.Response:
    return await served.http.post("/v1/embeddings", json={"input": given, **fields})


async def rerank(served: Served, path: str = "/v1/rerank", **fields: Any) -> httpx.Response:
    body = {"query": "Which?", "documents": DOCUMENTS, **fields}
    return await served.http.post(path, json=body)


async def test_the_stock_client_gets_a_vector_of_each_text(embedder: Served) -> None:
    client = embedder.openai
    reply = await client.embeddings.create(model=MODEL, input=["a", "b", "a"])
    assert [each.index for each in reply.data] == [0, 1, 2]
    for each, text in zip(reply.data, "aba", strict=True):
        assert each.embedding == pytest.approx(direction(text), abs=1e-6)
    assert reply.data[0].embedding == reply.data[2].embedding
    assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (3, 3)
    assert reply.model_extra is not None and reply.model_extra["pooling"] == "mean"
    floats = await client.embeddings.create(model=MODEL, input="a", encoding_format="float")
    assert floats.data[0].embedding == reply.data[0].embedding
    short = await client.embeddings.create(model=MODEL, input="a", dimensions=3)
    assert short.data[0].embedding == pytest.approx(direction("a", 3), abs=1e-6)


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("text", ["text"]),
        ([1, 2, 3], [(1, 2, 3)]),
        ([[1, 2], [3]], [(1, 2), (3,)]),
        (["x", [4, 5]], ["x", (4, 5)]),
    ],
)
async def test_input_is_a_text_a_list_of_them_or_token_ids(
    embedder: Served, given: Any, prompts: list[Any]
) -> None:
    reply = await embed(embedder, given)
    assert reply.status_code == 200
    assert len(reply.json()["data"]) == len(prompts)
    sent = [prompt for prompt, _ in embedder.engine.submitted]
    assert sent == prompts
    assert {options.pooling for _, options in embedder.engine.submitted} == {PoolingParams("mean")}


async def test_a_long_list_takes_turns_and_keeps_its_order(embedder: Served) -> None:
    texts = [f"text {number}" for number in range(50)]
    reply = (await embed(embedder, texts)).json()
    for each, text in zip(reply["data"], texts, strict=True):
        assert each["embedding"] == pytest.approx(direction(text), abs=1e-6)
    assert embedder.engine.entered == 50


async def test_the_models_own_prompts_stand_before_texts(embedder: Served) -> None:
    assert (await embed(embedder, ["a"], prompt_name="query")).status_code == 200
    model = embedder.state.model
    vectors = replace(model.vectors, prompt_name="document")
    embedder.state.model = replace(model, vectors=vectors)
    assert (await embed(embedder, ["b"])).status_code == 200
    assert (await embed(embedder, [[98]])).status_code == 200
    assert [prompt for prompt, _ in embedder.engine.submitted] == ["Q: a", "D: b", (98,)]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ["a", 3]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "!refuse"}, "input"),
        ({"dimensions": WIDTH + 1}, "dimensions"),
        ({"dimensions": 0}, "dimensions"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"prompt_name": "passage"}, "prompt_name"),
        ({"input": [[1]], "prompt_name": "query"}, "prompt_name"),
        ({"input_type": "query"}, "input_type"),
        ({"normalize": False}, "normalize"),
        ({"model": "another"}, "model"),
    ],
)
async def test_what_is_not_obeyed_is_refused_by_name(
    embedder: Served, fields: dict[str, Any], param: str
) -> None:
    reply = await embedder.http.post("/v1/embeddings", json={"input": "a", **fields})
    assert reply.status_code in (400, 404)
    assert reply.json()["error"]["param"] == param


async def test_failures_have_their_status(embedder: Served) -> None:
    assert (await embed(embedder, ["fine", "!expire"], deadline="2s")).status_code == 504
    broken = await embed(embedder, "!silent")
    assert (broken.status_code, broken.json()["error"]["code"]) == (500, "failed")


async def test_a_client_that_leaves_has_its_texts_dropped(embedder: Served) -> None:
    asking = asyncio.create_task(embed(embedder, "!hang"))
    await until(lambda: embedder.engine.entered == 1)
    asking.cancel()
    await until(lambda: embedder.engine.left == 1)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking"])
async def test_documents_are_ranked(embedder: Served, path: str) -> None:
    reply = (await rerank(embedder, path, top_n=3)).json()
    assert [each["index"] for each in reply["results"]] == [1, 3, 2]
    scores = [each["relevance_score"] for each in reply["results"]]
    assert scores[0] == scores[1] > scores[2] > 0
    assert "document" not in reply["results"][0]
    assert reply["usage"]["total_tokens"] == reply["meta"]["tokens"]["input_tokens"] > 0
    prompts = [prompt for prompt, _ in embedder.engine.submitted]
    assert prompts == [QueryPair("Which?", each) for each in DOCUMENTS]
    assert {options.pooling for _, options in embedder.engine.submitted} == {
        PoolingParams(answers=(7, 9))
    }


async def test_documents_are_returned_where_asked_for(embedder: Served) -> None:
    documents = [{"text": "no"}, "yes"]
    reply = await rerank(embedder, documents=documents, return_documents=True, instruction="Do")
    results = reply.json()["results"]
    assert [each["document"] for each in results] == [{"text": "yes"}, {"text": "no"}]
    assert embedder.engine.submitted[0][0] == QueryPair("Which?", "no", "Do")


async def test_a_model_that_is_no_reranker_says_so(served: Served) -> None:
    reply = await rerank(served)
    assert reply.status_code == 400
    assert "--rerank yes-no" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": []}, "documents"),
        ({"documents": [{"title": "x"}]}, "documents[0].text"),
        ({"top_n": 0}, "top_n"),
        ({"rank_fields": ["text"]}, "rank_fields"),
        ({"documents": ["!refuse"]}, "documents"),
    ],
)
async def test_what_cannot_be_ranked_is_refused(
    embedder: Served, fields: dict[str, Any], param: str
) -> None:
    reply = await rerank(embedder, **fields)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


async def test_an_instruction_without_a_place_is_refused(embedder: Served) -> None:
    model = embedder.state.model
    embedder.state.model = replace(model, rerank=replace(FORM, instruction=""))
    reply = await rerank(embedder, instruction="Judge.")
    assert reply.json()["error"]["param"] == "instruction"


async def test_an_adapter_is_named_behind_the_model(embedder: Served) -> None:
    model = embedder.state.model
    adapters = (ServedAdapter(name="legal", digest="d1"),)
    embedder.state.model = replace(model, adapters=adapters)
    reply = await embed(embedder, "a", model=f"{MODEL}:legal")
    assert reply.status_code == 200, reply.text
    assert reply.json()["model"] == f"{MODEL}:legal"
    assert embedder.options.adapter == "d1"
    ranked = await rerank(embedder, model=f"{MODEL}:legal")
    assert ranked.status_code == 200
    assert embedder.options.adapter == "d1"
    assert (await embed(embedder, "a", lora="legal")).json()["error"]["param"] == "lora"


async def test_texts_are_ranked_in_the_words_of_another_server(embedder: Served) -> None:
    texts = ["one", "three", "fifteen"]
    asked = {"query": "which", "texts": texts, "top_n": 2, "return_text": True}
    found = (await embedder.http.post("/rerank", json=asked)).json()
    ranked = (await rerank(embedder, query="which", documents=texts, top_n=2)).json()["results"]
    wanted = [(each["index"], each["relevance_score"]) for each in ranked]
    assert [(each["index"], each["score"]) for each in found] == wanted
    assert [each["text"] for each in found] == [texts[index] for index, _ in wanted]


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
async def test_texts_are_scored_one_against_several_or_each_against_its_own(
    embedder: Served, path: str
) -> None:
    documents = ["one", "three"]
    asked = {"text_1": "which", "text_2": documents}
    reply = (await embedder.http.post(path, json=asked)).json()
    ranked = (await rerank(embedder, query="which", documents=documents)).json()["results"]
    scores = {each["index"]: each["relevance_score"] for each in ranked}
    assert [each["score"] for each in reply["data"]] == [scores[0], scores[1]]
    pairs = {"queries": ["which", "which"], "documents": documents}
    again = (await embedder.http.post(path, json=pairs)).json()
    assert (again["data"], again["usage"]) == (reply["data"], reply["usage"])


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/rerank", {"query": "x"}, "documents"),
        ("/rerank", {"query": "x", "texts": ["a"], "documents": ["a"]}, "texts"),
        ("/rerank", {"query": "x", "texts": ["a"], "raw_scores": True}, "raw_scores"),
        ("/rerank", {"query": "x", "documents": ["a"], "use_activation": False}, "use_activation"),
        ("/score", {"text_1": "x", "text_2": "a", "use_activation": False}, "use_activation"),
        ("/score", {"text_1": ["x", "y"], "text_2": ["a"]}, "text_1"),
        ("/score", {"text_1": "x"}, "text_2"),
        ("/score", {"text_1": "x", "queries": "x", "text_2": "a"}, "queries"),
    ],
)
async def test_other_servers_bodies_are_refused_by_name(
    embedder: Served, path: str, body: dict[str, Any], field: str
) -> None:
    reply = await embedder.http.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


async def test_a_model_whose_tokens_see_all_makes_vectors_alone(embedder: Served) -> None:
    model = embedder.state.model
    whole = replace(model, vectors=replace(model.vectors, sees_all=True))
    assert "completion" in model.capabilities and whole.capabilities == ("embedding",)
    embedder.state.model = whole
    ranking = {"/v1/rerank": {"query": "Which?", "documents": ["a"]}}
    for path, body in (BODIES | ranking).items():
        reply = await embedder.http.post(path, json={"model": MODEL, **body})
        assert reply.status_code == 400 and "vectors of texts alone" in reply.text, path
    assert (await embed(embedder, "a")).status_code == 200
    assert embedder.options.pooling == PoolingParams("mean", whole=True)
