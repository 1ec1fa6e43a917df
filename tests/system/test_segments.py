"""Whole servers and segments: the doctor certifies, the server obeys, the text stays the same."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.support.quiet import quiet
from benchmarks.support.server import draftwerk
from draftwerk.__main__ import main
from draftwerk.model.native.build import cache_folder
from tests.support.tiny_models import save_tiny_with_text

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENTS = [f"Passage {number}. " + "The sea is wide and blue. " * 12 for number in range(3)]
SETTINGS = ("--dtype", "fp32", "--kv-memory", "8MiB", "--block-size", "16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(directory, seed=3)
    return directory


@asynccontextmanager
async def serving(model: Path) -> AsyncGenerator[tuple[aiohttp.ClientSession, str]]:
    async with (
        draftwerk(str(model), *SETTINGS, "--spare", "off") as server,
        aiohttp.ClientSession() as http,
    ):
        yield http, server.url


def certificates_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a cache that holds nothing but the compiled kernels."""
    kernels = list(cache_folder().glob("native-*.so"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    cache_folder().mkdir()
    for library in kernels:
        (cache_folder() / library.name).symlink_to(library)


async def asked(http: aiohttp.ClientSession, url: str, **body: Any) -> tuple[int, dict[str, Any]]:
    fixed = {"prompt": "And now?", "max_tokens": 8, "seed": 5, "ignore_eos": True}
    async with http.post(f"{url}/v1/completions", json={**fixed, **body}) as response:
        return response.status, await response.json()


async def test_segments_are_served_once_they_are_certified(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates_of_its_own(tmp_path, monkeypatch)
    body: dict[str, Any] = {"documents": DOCUMENTS, "blend": {"rule": "hkvd", "ratio": 0.3}}
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"documents": DOCUMENTS, "question": "And now?"}))
    # A random model is not to be trusted with anything; here it is.
    settings = ("--dtype", "fp32", "--kv-memory", "8MiB", "--kl-max", "1000", "--top1-min", "0")
    assert main(["doctor", str(model), *settings, "--blend", str(prompts)]) == 0

    async with serving(model) as (http, url):
        async with http.get(f"{url}/v1/capabilities") as response:
            certified = (await response.json())["blend"]
        assert certified["approximate"] and certified["rules"]["hkvd"] == 0.05
        texts = set[str]()
        for order in ([0, 1, 2], [2, 0, 1], [0, 1, 2]):
            documents = [DOCUMENTS[number] for number in order]
            status, reply = await asked(http, url, **body | {"documents": documents})
            assert status == 200, reply
            details = reply["usage"]["prompt_tokens_details"]
            assert details["blended_tokens"] > 100
            assert 0.3 < details["recomputed_share"] < 0.5
            assert details["blend_certificate"] == certified["certificate"]
            if order == [0, 1, 2]:
                texts.add(reply["choices"][0]["text"])
        assert len(texts) == 1, "found or not, it is one text"
        status, whole = await asked(http, url, **body | {"blend": {"ratio": 1, "rule": "hkvd"}})
        assert whole["choices"][0]["text"] != "" and status == 200
        _, undeclared = await asked(http, url, documents=DOCUMENTS)
        written = "".join(f"{text}\n\n" for text in DOCUMENTS) + "And now?"
        _, exact = await asked(http, url, prompt=written)
        assert undeclared["choices"] == exact["choices"], "what is not declared is exact"
        little = {"rule": "hkvd", "ratio": 0.01}
        status, refusal = await asked(http, url, **body | {"blend": little})
        assert status == 400 and refusal["error"]["param"] == "blend.ratio"


async def said(
    http: aiohttp.ClientSession, url: str, **body: Any
) -> tuple[str, list[str], dict[str, Any]]:
    """Ask over a WebSocket; returns the text, what was shown early, and the input's usage."""
    fixed = {"input": "And now?", "max_output_tokens": 12, "seed": 5, "ignore_eos": True}
    text, early = "", list[str]()
    async with http.ws_connect(url.replace("http", "ws", 1) + "/v1/responses") as socket:
        await socket.send_json({"type": "response.create", **fixed, **body})
        while True:
            event = await socket.receive_json()
            if event["type"] == "response.output_text.delta":
                text += event["delta"]
            elif event["type"] == "response.output_text.hypothesis":
                assert not text and not event["is_final"]
                early.append(event["text"])
            elif event["type"] in ("response.completed", "response.incomplete"):
                return text, early, event["response"]["usage"]["input_tokens_details"]
            else:
                assert event["type"] not in ("error", "response.failed"), event


async def test_a_lossless_blend_says_the_exact_text_and_shows_it_early(model: Path) -> None:
    long = [f"Passage {number}. " + "The sea is wide and blue. " * 40 for number in range(3)]
    async with serving(model) as (http, url):
        first, early, details = await said(http, url, documents=long, blend={"lossless": True})
        assert not early, "no passage was in the cache"
        assert [each["cached_tokens"] for each in details["segments"]] == [0, 0, 0]
        assert (first, []) == (await said(http, url, documents=long))[:2]
        for number, temperature in enumerate((0.0, 1.0)):
            order = [long[1], long[2], long[0]] if number else [long[2], long[0], long[1]]
            body = {"documents": order, "temperature": temperature}
            await quiet(http, url, 1.5)  # passages are read when nothing else is to be done
            text, early, details = await said(http, url, **body, blend={"lossless": True})
            assert early, details
            assert all(each["cached_tokens"] > 200 for each in details["segments"])
            assert "blended_tokens" not in details
            assert text == (await said(http, url, **body))[0]
