"""What the scripts of all clients share: named cases, each of which passes, is refused or fails.

It runs in each client's own environment, so it imports nothing but the standard library.
"""

import asyncio
import inspect
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

URL = os.environ["OPENAI_BASE_URL"]
MODEL = os.environ["MODEL"]
WANTED = set(filter(None, os.environ.get("CASES", "").split(",")))
HELLO = "Name a river."
ASK = "Name a city and its size."
ASK_TOOL = "What is the weather in Paris?"
TOOL = {
    "name": "get_weather",
    "description": "Returns the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}
REFUSED, ALTERNATIVE = "not supported by this server", "; use "
WORDS_MAX = 160

ClientCase = Callable[[], Any]
Outcome = Literal["passed", "refused", "failed"]
cases: dict[str, ClientCase] = {}


def case(name: str) -> Callable[[ClientCase], ClientCase]:
    """Register a function as a case; it raises if the client did not get what it asked for."""

    def register(run: ClientCase) -> ClientCase:
        cases[name] = run
        return run

    return register


def outcome_of(error: BaseException | None) -> tuple[Outcome, str]:
    """Return how a case ended, and the server's words where it refused; "failed" without them."""
    if error is None:
        return "passed", ""
    message = " ".join(str(error).split())
    at = message.find(REFUSED)
    if at >= 0 and ALTERNATIVE in message[at:]:
        start = message.rfind("`", 0, message.rfind("`", 0, at))
        return "refused", message[start:].split(".'")[0].split('."')[0][:WORDS_MAX]
    return "failed", f"{type(error).__name__}: {message}"[:WORDS_MAX]


def main() -> None:
    """Run the cases, on one loop, and print each one's outcome as a line of JSON."""
    with asyncio.Runner() as runner:
        run_all(runner)


def run_all(runner: asyncio.Runner) -> None:
    for name, run in cases.items():
        if WANTED and name not in WANTED:
            continue
        error: BaseException | None = None
        try:
            found = run()
            if inspect.isawaitable(found):
                runner.run(awaited(found))
        except Exception as caught:
            error = caught
        outcome, words = outcome_of(error)
        sys.stdout.write(json.dumps({"case": name, "outcome": outcome, "words": words}) + "\n")
        sys.stdout.flush()


async def awaited(found: Any) -> Any:
    return await found


def called(name: str, arguments: str | dict[str, Any]) -> str:
    """Assert that a call keeps to the tool's schema; return its result."""
    values = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert name == TOOL["name"], name
    assert values.keys() == {"city", "unit"} and isinstance(values["city"], str), values
    assert values["unit"] in ("celsius", "fahrenheit"), values
    return "18 degrees and rain."


def check_text(text: object) -> None:
    """Assert that there is some."""
    assert isinstance(text, str) and text.strip(), f"no text: {text!r}"
