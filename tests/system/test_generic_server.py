"""A server of a model that only Transformers knows: the whole process, its drafts and its kills."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from benchmarks.reliability.kills import KillServer, compare, parser, started
from draftwerk.model.text.tokenizer import TextTokenizer
from tests.support.tiny_models import copy_text, oracle_greedy, text_sizes
from tests.support.undeclared_models import save_undeclared

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVE = ("--backend", "transformers", "--dtype", "fp32", "--kv-memory", "64MiB")
PROMPT = "Once upon a time there was a time upon"
TOKENS = 24


@dataclass(slots=True)
class Served:
    """A server, and Transformers' own model beside it."""

    server: KillServer
    directory: Path
    oracle: Any

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.server.http.post(self.server.url + path, json=body) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    directory: Path = tmp_path_factory.mktemp("phi")
    oracle = save_undeclared(directory, "phi", seed=3, **text_sizes())
    copy_text(directory)
    arguments = parser().parse_args(["--model", str(directory), "--", *SERVE])
    async with started(arguments) as server:
        yield Served(server, directory, oracle)


async def test_a_completion_is_transformers_greedy_text(served: Served) -> None:
    text = TextTokenizer(served.directory)
    prompt = text.encode(PROMPT)
    with torch.inference_mode():
        truth = oracle_greedy(served.oracle, prompt, TOKENS)
    body = {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    for methods in (None, []):
        more = {} if methods is None else {"speculation": {"methods": methods}}
        reply = await served.post("/v1/completions", {**body, **more})
        assert reply["choices"][0]["text"] == text.decode(truth)


async def test_a_chat_is_answered_and_its_prefix_is_found(served: Served) -> None:
    body = {
        "messages": [{"role": "user", "content": "Say a word. " * 20}],
        "max_tokens": TOKENS,
        "seed": 7,
    }
    first = await served.post("/v1/chat/completions", body)
    second = await served.post("/v1/chat/completions", body)
    assert first["choices"] == second["choices"]
    assert first["system_fingerprint"] == second["system_fingerprint"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_a_text_has_the_same_vector_alone_and_among_others(served: Served) -> None:
    body = {"input": [PROMPT, "Another text, of other words.", PROMPT * 9]}
    alone = await served.post("/v1/embeddings", {"input": PROMPT})
    among = await served.post("/v1/embeddings", body)
    assert among["data"][0]["embedding"] == alone["data"][0]["embedding"]
    tokens = torch.tensor([TextTokenizer(served.directory).encode(PROMPT)])
    with torch.inference_mode():
        state = served.oracle.model(tokens).last_hidden_state[0, -1]
    vector = torch.tensor(alone["data"][0]["embedding"])
    assert (vector - state / state.norm()).abs().max() < 1e-4


async def test_a_killed_model_process_changes_no_stream(served: Served) -> None:
    words = ("--model", str(served.directory), "--streams", "4", "--tokens", "60")
    plain = await served.server.run(parser().parse_args(words), 0)
    arguments = parser().parse_args([*words, "--count", "1", "--hasty"])
    run = await served.server.run(arguments, 1)
    compare(plain, run)
    assert run.counted["recoveries"] == 1
