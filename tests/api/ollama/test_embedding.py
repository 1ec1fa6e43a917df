"""`/api/embed` and `/api/embeddings`, with Ollama's own client where it is installed."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from draftwerk.speculative.requests.pooling import VectorForm
from tests.api.conftest import MODEL, Served
from tests.api.openai.pooling.test_endpoints import direction
from tests.api.support.fake_engine import WIDTH


@pytest.fixture
def embedder(served: Served) -> Served:
    """A server whose model is made for vectors."""
    form = VectorForm(source="a file", width=WIDTH)
    served.state.model = replace(served.state.model, vectors=form, context_max=20)
    return served


async def embed(served: Served, path: str = "/api/embed", **fields: Any) -> Any:
    reply = await served.http.post(path, json={"model": MODEL, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_each_text_has_a_vector(embedder: Served) -> None:
    reply = await embed(embedder, input=["a", "b"], keep_alive="5m", options={"num_ctx": 8})
    assert reply["model"] == MODEL
    for found, text in zip(reply["embeddings"], "ab", strict=True):
        assert found == pytest.approx(direction(text), abs=1e-6)
    assert reply["prompt_eval_count"] == 2
    assert reply["total_duration"] > 0
    alone = await embed(embedder, input="a", dimensions=2)
    assert alone["embeddings"] == [pytest.approx(direction("a", 2), abs=1e-6)]
    old = await embed(embedder, "/api/embeddings", prompt="a")
    assert old["embedding"] == reply["embeddings"][0]


async def test_a_text_that_is_too_long_is_cut_unless_that_is_off(embedder: Served) -> None:
    await embed(embedder, input="x" * 50)
    assert embedder.engine.submitted[-1][0] == tuple(b"x" * 20)
    await embed(embedder, input="x" * 50, truncate=False)
    assert embedder.engine.submitted[-1][0] == "x" * 50


async def test_a_model_made_for_vectors_says_so(embedder: Served) -> None:
    reply = await embedder.http.post("/api/show", json={"model": MODEL})
    assert "embedding" in reply.json()["capabilities"]


async def test_an_empty_list_is_refused(embedder: Served) -> None:
    reply = await embedder.http.post("/api/embed", json={"model": MODEL, "input": []})
    assert reply.status_code == 400
    assert "`input`" in reply.json()["error"]


async def test_the_stock_client(embedder: Served) -> None:
    ollama = pytest.importorskip("ollama")
    with ollama.Client(host=embedder.url) as client:
        reply = await asyncio.to_thread(client.embed, model=MODEL, input=["a", "b"], dimensions=3)
        assert reply.embeddings[1] == pytest.approx(direction("b", 3), abs=1e-6)
        assert reply.prompt_eval_count == 2
        old = await asyncio.to_thread(client.embeddings, model=MODEL, prompt="a")
        assert old.embedding == pytest.approx(direction("a"), abs=1e-6)
