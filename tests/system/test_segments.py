"""Whole servers and segments: the doctor measures, the reply tells, the text stays the same."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.support.server import draftwerk
from draftwerk.__main__ import main
from draftwerk.speculative.requests.declared_segments import RULES

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOCUMENTS = [f"Passage {number}. " + "The sea is wide and blue. " * 12 for number in range(3)]
SETTINGS = ("--dtype", "fp32", "--kv-memory", "8MiB", "--block-size", "16")


@asynccontextmanager
async def serving(model: Path) -> AsyncGenerator[tuple[aiohttp.ClientSession, str]]:
    async with (
        draftwerk(str(model), *SETTINGS, "--spare", "off") as server,
        aiohttp.ClientSession() as http,
    ):
        yield http, server.url


async def asked(http: aiohttp.ClientSession, url: str, **body: Any) -> tuple[int, dict[str, Any]]:
    fixed = {"prompt": "And now?", "max_tokens": 8, "seed": 5, "ignore_eos": True}
    async with http.post(f"{url}/v1/completions", json={**fixed, **body}) as response:
        return response.status, await response.json()


async def test_reused_segments_are_measured_told_of_and_one_text(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body: dict[str, Any] = {"documents": DOCUMENTS, "blend": {"rule": "hkvd", "ratio": 0.3}}
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"documents": DOCUMENTS, "question": "And now?"}))
    settings = ("--dtype", "fp32", "--kv-memory", "8MiB")
    assert main(["doctor", str(model), str(prompts), *settings, "--approximate", "blend"]) == 0
    measured = [line.split() for line in capsys.readouterr().out.splitlines()]
    kl = {(each[0], each[1]): float(each[2]) for each in measured if each[0] in RULES}
    assert len(kl) == 15
    assert kl["hkvd", "1.00"] == kl["head", "1.00"] == 0.0, "all of it is computed again"

    async with serving(model) as (http, url):
        async with http.get(f"{url}/v1/capabilities") as response:
            blend = (await response.json())["blend"]
        assert blend["exact"] is False and tuple(blend["rules"]) == RULES
        texts = set[str]()
        for order in ([0, 1, 2], [2, 0, 1], [0, 1, 2]):
            documents = [DOCUMENTS[number] for number in order]
            status, reply = await asked(http, url, **body | {"documents": documents})
            assert status == 200, reply
            details = reply["usage"]["prompt_tokens_details"]
            assert details["blended_tokens"] > 100
            assert 0.3 < details["recomputed_share"] < 0.5
            assert details["approximate"] is True
            (applied,) = reply["usage"]["approximations"]
            assert applied == {"name": "blend", "parameters": {"rule": "hkvd", "ratio": 0.3}}
            if order == [0, 1, 2]:
                texts.add(reply["choices"][0]["text"])
        assert len(texts) == 1, "found or not, it is one text"
        status, whole = await asked(http, url, **body | {"blend": {"ratio": 1, "rule": "hkvd"}})
        assert whole["choices"][0]["text"] != "" and status == 200
        _, undeclared = await asked(http, url, documents=DOCUMENTS)
        written = "".join(f"{text}\n\n" for text in DOCUMENTS) + "And now?"
        _, exact = await asked(http, url, prompt=written)
        assert undeclared["choices"] == exact["choices"], "what is not declared is exact"
        assert "approximate" not in undeclared["usage"]["prompt_tokens_details"]
