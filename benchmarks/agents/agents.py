"""Agents on a running server: tokens per step inside calls, and what each turn of a session costs.

    python -m draftwerk serve --tool-format hermes
    python -m benchmarks.agents.agents http://127.0.0.1:8000

The session is recorded once, from this file alone: the same tools, questions and results each time;
its answers are the server's. Each turn sends everything again, as agents do.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

TURNS = 20
SEEDS = 8
AgentBody = dict[str, Any]
JsonCounts = Mapping[str, Any]

SUBJECTS = ("file", "directory", "branch", "issue", "test", "service", "table", "message")
VERBS = ("read", "list", "create", "search", "delete", "update")


def tools(count: int = 19) -> list[AgentBody]:
    """Return tools as long as those of coding agents."""
    names = [(verb, subject) for subject in SUBJECTS for verb in VERBS][:count]
    return [_tool(verb, subject) for verb, subject in names]


def _tool(verb: str, subject: str) -> AgentBody:
    about = f"Use it to {verb} a {subject} of the project. Give the name as it stands there. "
    parameters = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40, "description": f"The {subject}'s name."},
            "mode": {"type": "string", "enum": ["short", "detailed", "complete"]},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50},
            "confirm": {"type": "boolean", "description": f"Whether to {verb} it at once."},
        },
        "required": ["name", "mode", "confirm"],
        "additionalProperties": False,
    }
    function = {"name": f"{verb}_{subject}", "description": about * 2, "parameters": parameters}
    return {"type": "function", "function": function}


def result_of(turn: int) -> str:
    """Return what a tool returned: a dozen lines that no other turn has."""
    return "\n".join(f"line {turn * 12 + n}: value {turn * n % 17}, ok" for n in range(12))


def session(client: httpx.Client, model: str) -> Iterator[tuple[int, JsonCounts, AgentBody, float]]:
    """Run the session; yields each turn's number, usage, metrics and seconds."""
    messages: list[AgentBody] = [
        {"role": "system", "content": "You are a coding agent. Call tools until all is done."},
        {"role": "user", "content": "Make the tests of the project pass."},
    ]
    for turn in range(TURNS):
        begun = time.perf_counter()
        body = {
            "model": model,
            "messages": messages,
            "tools": tools(),
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_tokens": 120,
            "temperature": 0,
            "seed": 1,
        }
        reply = client.post("/v1/chat/completions", json=body)
        reply.raise_for_status()
        found = reply.json()
        yield turn, found["usage"], found.get("metrics", {}), time.perf_counter() - begun
        message = found["choices"][0]["message"]
        messages.append(message)
        for call in message["tool_calls"]:
            json.loads(call["function"]["arguments"])
            result = {"role": "tool", "tool_call_id": call["id"], "content": result_of(turn)}
            messages.append(result)


def tokens_per_step(client: httpx.Client, model: str, choice: str) -> float:
    """Return generated tokens per step of the target, over some seeds; nothing else runs."""
    tokens = steps = 0
    for seed in range(SEEDS):
        body = {
            "model": model,
            "messages": [{"role": "user", "content": f"Where is the file number {seed}?"}],
            "tools": tools(4),
            "tool_choice": choice,
            "max_tokens": 100,
            "seed": seed,
        }
        reply = client.post("/v1/chat/completions", json=body)
        reply.raise_for_status()
        found = reply.json()
        tokens += found["usage"]["completion_tokens"]
        steps += found["metrics"]["speculative_decoding"]["num_spec_steps"]
    return tokens / steps


def main() -> None:
    """Print both measurements as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agents.agents", description=__doc__)
    parser.add_argument("url")
    url: str = parser.parse_args().url.rstrip("/")
    with httpx.Client(base_url=url, timeout=600) as client:
        model: str = client.get("/v1/models").json()["data"][0]["id"]
        calls, text = (tokens_per_step(client, model, each) for each in ("required", "none"))
        print(f"tokens per step: calls {calls:.2f}, text {text:.2f}, ratio {calls / text:.2f}\n")
        print("| turn | prompt | cached | computed | first token ms | seconds |")
        print("|---|---|---|---|---|---|")
        for turn, usage, metrics, seconds in session(client, model):
            prompt = usage["prompt_tokens"]
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            first = metrics.get("time_to_first_token_ms") or 0
            row = (turn, prompt, cached, prompt - cached, round(first), round(seconds, 2))
            print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
