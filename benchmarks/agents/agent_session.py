"""A recorded session of an agent, replayed on this server and on llama.cpp's, turn by turn.

    python -m draftwerk serve --tool-format hermes
    llama-server -m bf16.gguf --port 8081 -c 8192 -np 1        # as benchmarks.processors runs it
    python -m benchmarks.agents.agent_session http://127.0.0.1:8000 --peer http://127.0.0.1:8081

The session is made by this file alone: tools of a few thousand tokens, and in each turn a call of
one and its result, all of it sent again with every turn, as agents do. This server renders it to
token ids, which both servers are given, so that the work is the same; each goes on for some tokens,
greedily. Shown are the tokens that were not cached, the time to the first token, and that to the
last. `--check` fails if this server computes more than a turn's news, rounded up to blocks.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from statistics import median

import httpx

from benchmarks.agents.agents import SUBJECTS, TURNS, VERBS, AgentBody, result_of, tools

TOKENS, BLOCK = 32, 16


@dataclass(frozen=True)
class ReplayedTurn:
    """How one server took one turn."""

    computed: int
    """Tokens of the prompt that were not cached."""
    first_ms: float
    last_ms: float


def call_of(turn: int) -> AgentBody:
    """Return what the recorded model called in a turn."""
    name = f"{VERBS[turn % 2]}_{SUBJECTS[turn % 3]}"
    arguments = {"name": f"part {turn * 7 % 23}", "mode": "short", "confirm": turn % 2 == 0}
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call{turn:05}", "type": "function", "function": function}


def conversation(turns: int) -> list[AgentBody]:
    """Return everything said before a turn."""
    messages: list[AgentBody] = [
        {"role": "system", "content": "You are a coding agent. Call tools until all is done."},
        {"role": "user", "content": "Make the tests of the project pass."},
    ]
    for turn in range(turns):
        call = call_of(turn)
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": result_of(turn)},
        ]
    return messages


def prompts(client: httpx.Client) -> list[list[int]]:
    """Return the token ids of each turn's prompt, as this server's template has them."""
    found: list[list[int]] = []
    for turn in range(TURNS):
        body = {"messages": conversation(turn), "tools": tools()}
        reply = client.post("/tokenize", json=body)
        reply.raise_for_status()
        found.append(reply.json()["tokens"])
    return found


def replay(client: httpx.Client, prompt: list[int]) -> ReplayedTurn:
    """Continue a prompt, streamed."""
    body = {
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": True,  # llama.cpp's, and its default
    }
    begun, first, computed = time.perf_counter(), 0.0, -1
    with client.stream("POST", "/v1/completions", json=body) as reply:
        reply.raise_for_status()
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if any(choice.get("text") for choice in chunk.get("choices", ())):
                first = first or time.perf_counter()
            if timings := chunk.get("timings"):  # llama.cpp's
                computed = timings["prompt_n"]
            elif usage := chunk.get("usage"):
                details = usage.get("prompt_tokens_details") or {}
                computed = usage["prompt_tokens"] - details.get("cached_tokens", 0)
    return ReplayedTurn(computed, (first - begun) * 1e3, (time.perf_counter() - begun) * 1e3)


def faults(prompts: list[list[int]], taken: list[ReplayedTurn]) -> list[str]:
    """Return the turns after the first in which more than the news was computed."""
    found: list[str] = []
    for number in range(1, len(prompts)):
        old, new = prompts[number - 1], prompts[number]
        shared = next(
            (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
            len(old),
        )
        news = len(new) - shared // BLOCK * BLOCK
        if taken[number].computed > news:
            found.append(f"turn {number}: {taken[number].computed} tokens computed, {news} are new")
    return found


def main() -> int:
    """Replay the session and print a row for each turn."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agents.agent_session",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("url", help="this server")
    parser.add_argument("--peer", help="llama.cpp's server, of the same model")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    clients = [httpx.Client(base_url=each, timeout=600) for each in (given.url, given.peer) if each]
    recorded = prompts(clients[0])
    taken: list[list[ReplayedTurn]] = [[] for _ in clients]
    shown = " | ".join(["computed", "first token ms", "last ms"] * len(clients))
    print(f"| turn | prompt | {shown} |\n|" + "---|" * (2 + 3 * len(clients)))
    for number, prompt in enumerate(recorded):
        cells: list[str] = []
        for client, turns in zip(clients, taken, strict=True):
            turns.append(replay(client, prompt))
            last = turns[-1]
            cells += [str(last.computed), f"{last.first_ms:.0f}", f"{last.last_ms:.0f}"]
        print(f"| {number} | {len(prompt)} | " + " | ".join(cells) + " |", flush=True)
    for client, turns in zip(clients, taken, strict=True):
        computed = sum(each.computed for each in turns)
        seconds = sum(each.last_ms for each in turns) / 1e3
        first = median(each.first_ms for each in turns[1:])
        print(
            f"\n{client.base_url}: {computed} of {sum(map(len, recorded))} prompt tokens computed, "
            f"{first:.0f} ms to the first token of a later turn (median), {seconds:.1f} s in all"
        )
    wrong = faults(recorded, taken[0])
    for each in wrong:
        print(each, file=sys.stderr)
    return int(given.check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
