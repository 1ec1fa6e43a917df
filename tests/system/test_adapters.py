"""Whole servers with LoRA adapters: in a crowd each text is the one that it is alone."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from msgspec.structs import replace

from benchmarks.support.server import draftwerk
from draftwerk import AsyncLLM, SamplingParams
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.native.build import NativeUnavailable, library_path
from draftwerk_tools.loadtest.server.metrics import fetch_metrics
from tests.support.tiny_adapters import RANKS, SETS, save_adapter
from tests.support.tiny_models import save_tiny_with_text
from validation.receipts import ReceiptClient

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = ("--kv-memory", "16MiB", "--spare", "off", "--served-model-name", "base")
NAMES = [f"number-{number}" for number in range(8)]
COMPLETIONS = "/v1/completions"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a tiny model, and eight adapters of several ranks and modules."""
    directory = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(directory / "base", seed=3)
    config = read_config(directory / "base")
    found = {"base": directory / "base"}
    for seed, (name, rank) in enumerate(zip(NAMES, RANKS, strict=True)):
        modules = SETS[seed % len(SETS)]
        found[name] = save_adapter(directory / name, config, 50 * seed, modules, rank)
    return found


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["int8", pytest.param("bf16", marks=pytest.mark.grid)],
)
async def client(
    folders: dict[str, Path], request: pytest.FixtureRequest
) -> AsyncGenerator[ReceiptClient]:
    try:
        library_path()
    except NativeUnavailable as error:
        pytest.skip(f"no native kernels here: {error}")
    words = [word for name in NAMES for word in ("--lora", f"{name}={folders[name]}")]
    settings = (*SETTINGS, "--dtype", request.param, *words)
    async with (
        draftwerk(str(folders["base"]), *settings) as server,
        aiohttp.ClientSession() as http,
    ):
        yield ReceiptClient(http, server.url)


async def asked(client: ReceiptClient, number: int, **fields: Any) -> Json:
    """Ask the question of a number: of sixteen two have an adapter each, one has none."""
    body = {
        "model": "base" if number == 8 else f"base:{NAMES[number % 8]}",
        "prompt": f"This is question {number // 8}. " * 5,
        "max_tokens": 24,
        "seed": 40 + number,
        "temperature": number % 2,
        "logprobs": 2,
        "ignore_eos": True,
        **fields,
    }
    async with client.http.post(f"{client.url}{COMPLETIONS}", json=body) as response:
        reply = await response.json()
        assert response.status == 200, reply
        return reply


async def test_texts_and_logprobs_in_a_crowd_are_those_alone(client: ReceiptClient) -> None:
    alone = [await asked(client, number, cache_salt=f"alone {number}") for number in range(16)]
    crowd = await asyncio.gather(*(asked(client, number) for number in range(16)))
    for one, among in zip(alone, crowd, strict=True):
        assert one["choices"] == among["choices"]
        assert one["model"] == among["model"]
    assert len({each["choices"][0]["text"] for each in alone}) > 8
    assert crowd[8]["model"] == "base" and crowd[1]["model"] == "base:number-1"


async def test_drafts_searches_and_several_texts_change_nothing(client: ReceiptClient) -> None:
    for fields in ({"n": 3}, {"beam_width": 3, "n": 2, "temperature": 0, "logprobs": None}):
        plain = await asked(client, 3, speculation={"enabled": False}, **fields)
        drafted = await asyncio.gather(*(asked(client, number, **fields) for number in (3, 4, 8)))
        assert drafted[0]["choices"] == plain["choices"]


async def test_a_prompt_is_found_again_by_its_own_adapter_alone(client: ReceiptClient) -> None:
    prompt = "A prompt that all of them read, again and again. " * 8

    async def hits(number: int) -> int:
        reply = await asked(client, number, prompt=prompt, cache_salt="of this test")
        return reply["usage"]["prompt_tokens_details"]["cached_tokens"]

    for number in (0, 1, 8):
        assert await hits(number) == 0
        assert await hits(number) > 50


async def test_receipts_name_the_adapter_and_verify(client: ReceiptClient) -> None:
    body = {"prompt": "A b c", "max_tokens": 20, "seed": 7, "ignore_eos": True}
    found = [
        await client.receipt(COMPLETIONS, {**body, "model": "base", **choice})
        for choice in ({}, {"lora": NAMES[0]}, {"lora": NAMES[1]})
    ]
    verdicts = await client.verdicts(found)
    assert [each["verdict"] for each in verdicts] == ["equal"] * 3, verdicts
    assert len({each["fingerprint"] for each in found}) == 3
    assert "adapter" not in found[0]["parameters"]
    digest = found[1]["parameters"]["adapter"]
    assert found[1]["fingerprint"] == f"{found[0]['fingerprint']}+{digest}"
    swapped = {**found[1], "parameters": {**found[1]["parameters"], "adapter": "0" * 16}}
    (verdict,) = await client.verdicts([swapped])
    assert verdict["verdict"] == "refused"


async def test_a_killed_target_goes_on_with_every_adapter(client: ReceiptClient) -> None:
    async def metric(name: str, **labels: str) -> int:
        return int((await fetch_metrics(client.http, client.url)).total(name, **labels))

    async def process() -> float | None:
        """Return the process that computes; None between one and the next."""
        page = await fetch_metrics(client.http, client.url)
        return page.by_label("draftwerk_device_process", "device").get("target")

    async def crowd() -> list[Json]:
        long = {"max_tokens": 200, "prompt": "A long question to be read. " * 40}
        return await asyncio.gather(*(asked(client, each, **long) for each in range(16)))

    undisturbed = await crowd()
    victim = await process()
    again = asyncio.create_task(crowd())
    while await metric("vllm:num_requests_running") < 8:
        if again.done():  # before it was seen
            again = asyncio.create_task(crowd())
    assert victim
    os.kill(int(victim), signal.SIGKILL)
    for one, other in zip(undisturbed, await again, strict=True):
        assert one["choices"] == other["choices"]
    async with asyncio.timeout(60):  # where all was answered before, it is replaced after that
        while await process() in (None, victim):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_merged_and_beside_the_model_are_the_same_adapter(folders: dict[str, Path]) -> None:
    base, adapter = folders["base"], str(folders[NAMES[0]])
    settings: Json = {"dtype": "fp32", "kv_memory": "16MiB"}
    params = SamplingParams(max_tokens=12, temperature=0.0)
    async with AsyncLLM(base, lora=[f"a={adapter}"], **settings) as llm:
        plain = await llm.generate("A b c", params)
        beside = await llm.generate("A b c", replace(params, lora="a"))
    async with AsyncLLM(base, lora_merge=[adapter], **settings) as llm:
        merged = await llm.generate("A b c", params)
    assert merged.text == beside.text != plain.text
