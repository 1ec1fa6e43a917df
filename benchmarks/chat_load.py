"""So many users who each ask one question after the other, of any OpenAI server."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

import aiohttp

from benchmarks.support.prompts import QUESTIONS


@dataclass(slots=True)
class Answers:
    """What came back."""

    seconds: float = 0.0
    processor_s: float = 0.0
    """What asking took of this process's own time."""
    tokens: int = 0
    texts: dict[int, str] = field(default_factory=dict[int, str])
    """By the question's number."""

    @property
    def rate(self) -> float:
        """Tokens a second, of all users together."""
        return self.tokens / self.seconds


def question(number: int, tokens: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a question; later rounds of the questions say which round it is."""
    turn, index = divmod(number, len(QUESTIONS))
    text = QUESTIONS[index] if not turn else f"(Attempt {turn + 1}.) {QUESTIONS[index]}"
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        "seed": number,
        "ignore_eos": True,
        **sampling,
    }


async def ask_all(url: str, bodies: Mapping[int, Mapping[str, Any]], users: int) -> Answers:
    """Ask every question, `users` at once. Raises RuntimeError for a refusal."""
    waiting, found = iter(bodies.items()), Answers()
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        async with http.get(f"{url}/v1/models") as response:
            model = (await response.json())["data"][0]["id"]

        async def user() -> None:
            for number, body in waiting:
                asked = {"model": model, **body}
                async with http.post(f"{url}/v1/chat/completions", json=asked) as response:
                    reply = await response.json()
                if response.status != 200:
                    raise RuntimeError(f"{url} refuses: {reply}")
                found.texts[number] = reply["choices"][0]["message"]["content"]
                found.tokens += reply["usage"]["completion_tokens"]

        begun, used = perf_counter(), process_time()
        await asyncio.gather(*(user() for _ in range(users)))
        found.seconds = perf_counter() - begun
        found.processor_s = process_time() - used
    return found
