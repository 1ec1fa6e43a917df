"""Questions about a picture, beside a text: `python -m validation.picture_questions`.

The model is a LLaVA of random weights: a CLIP tower of 300 million, as `--tower-layers` has it, and
a text part of the default model's shape. A text of another user is decoded all the time. Printed
are the first token of the first question about a picture and the median of the others', how many
pictures were encoded, and the text's pauses that one in a hundred exceeds: alone, while
other pictures are encoded, while their tokens are read, as those of any prompt; and how long a
pause is in the middle.
"""

import argparse
import asyncio
import base64
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import aiohttp
import transformers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from benchmarks.support.bench import ResultTable, parser, percentile, run, show
from draftwerk.machine.host import die_with_parent
from draftwerk_tools.loadtest.client.http.sse import sse_events
from draftwerk_tools.loadtest.server.launcher import free_port, says_ready, serving
from tests.support.tiny_pictures import Pictured, picture, save_pictured

API: Any = transformers
SIDE, PATCH = 336, 14
TEXT: dict[str, Any] = {
    **{"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30},
    **{"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64},
    "max_position_embeddings": 8192,
}
START_S, REST_S = 900.0, 1.0


def llava(layers: int) -> Pictured:
    """Return how the model is made."""

    def config(text: dict[str, Any], token: int) -> Any:
        vision = {
            **{"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096},
            **{"num_hidden_layers": layers, "num_attention_heads": 16, "projection_dim": 768},
            **{"image_size": SIDE, "patch_size": PATCH},
        }
        return API.LlavaConfig(
            vision_config=vision,
            text_config=text | TEXT,
            image_token_index=token,
            vision_feature_layer=-2,
            image_seq_length=(SIDE // PATCH) ** 2,
        )

    def processor() -> Any:
        sides = {"height": SIDE, "width": SIDE}
        return CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=sides)

    return Pictured("llama", ("<image>",), config, processor)


class PictureClient:
    """Asks one server, one stream a question."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http, self._url = http, url + "/v1/chat/completions"
        self.read_s = 0.0
        """What reading the newest answer's prompt took, as the server says."""

    async def times_s(self, content: Any, tokens: int) -> list[float]:
        """Return when each piece of an answer came, the request's sending first."""
        body = {
            "messages": [{"role": "user", "content": content}],
            **{"max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 0},
            "stream_options": {"include_usage": True},
        }
        times = [perf_counter()]
        async with self._http.post(self._url, json=body) as response:
            assert response.status == 200, await response.text()
            async for data in sse_events(response.content.iter_any()):
                # Bytes that make no character yet are counted too: each piece is a round.
                chunk = {} if data == b"[DONE]" else json.loads(data)
                if chunk.get("choices"):
                    times.append(perf_counter())
                if metrics := chunk.get("metrics"):
                    self.read_s = 1e-3 * metrics["prefill_time_ms"]
        return times

    async def ask(self, data: bytes, question: str) -> tuple[float, float]:
        """Return when a picture was sent, and when the first token about it came."""
        url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        parts = [
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": question},
        ]
        begun, first, *_ = await self.times_s(parts, 1)
        return begun, first


async def measure(given: argparse.Namespace, directory: Path) -> tuple[list[float], list[float]]:
    """Return the seconds to each question's first token, and pauses: alone, and beside pictures."""
    port = free_port()
    words = ["serve", str(directory), "--port", str(port), "--spare", "off", "--dtype", given.dtype]
    url = f"http://127.0.0.1:{port}"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(START_S)) as http,
        serving(
            [sys.executable, "-m", "draftwerk", *words],
            url,
            log=directory / "log",
            start_s=START_S,
            ready=says_ready,
            prepare=die_with_parent,
        ),
    ):
        client = PictureClient(http, url)
        await client.times_s("Hello", 32)
        await client.ask(picture(0, (SIDE, SIDE)), "What is this?")
        asked = [
            await client.ask(picture(1, (SIDE, SIDE)), f"Question {number}?")
            for number in range(given.count)
        ]
        text = asyncio.create_task(client.times_s("Tell me more.", given.tokens))
        await asyncio.sleep(REST_S)
        encoded, read = list[tuple[float, float]](), list[tuple[float, float]]()
        for number in range(given.pictures):
            begun, first = await client.ask(picture(2 + number, (SIDE, SIDE)), "What is this?")
            encoded.append((begun, first - client.read_s))
            read.append((first - client.read_s, first))
        times = (await text)[1:]
    pauses = [(now, now - before) for before, now in pairwise(times)]

    def within(spans: list[tuple[float, float]]) -> list[float]:
        return [pause for now, pause in pauses if any(one <= now <= end for one, end in spans)]

    alone, beside = within([(times[0], encoded[0][0]), (read[-1][1], times[-1])]), within(encoded)
    assert alone and beside, "the text ended too soon: --tokens"
    figures = (*(percentile(some, 0.99) for some in (alone, beside, within(read))), median(beside))
    return [first - begun for begun, first in asked], [1e3 * each for each in figures]


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; one row."""
    options = parser(__doc__, count=20, tokens=3000, dtype="int8")
    options.add_argument("--tower-layers", type=int, default=24)
    options.add_argument("--pictures", type=int, default=5, help="encoded beside the text")
    given = options.parse_args(argv)
    with TemporaryDirectory() as folder:
        save_pictured(llava(given.tower_layers), Path(folder))
        firsts, pauses = run(measure, given, Path(folder))
    found = ResultTable(
        ["first question, ms", "others", "share", "p99 alone", "encoding", "reading", "round"]
    )
    first, other = firsts[0], median(firsts[1:])
    found.add(1e3 * first, 1e3 * other, other / first, *pauses)
    return found


if __name__ == "__main__":
    show(table)
