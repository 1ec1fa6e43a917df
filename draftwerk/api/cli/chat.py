"""`draftwerk chat`: a conversation in the terminal, with the speed of every answer."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from io import TextIOWrapper
from typing import Any, cast
from urllib.parse import urlsplit

from draftwerk.speculative.sources.registry import SOURCES

COLOURS = {spec.name: spec.colour.sgr for spec in SOURCES}
"""SGR codes of the draft sources; the target's own tokens have no colour."""
HELP = "/new starts over, /seed N keeps to one seed, /bye ends; Ctrl-C stops an answer."
TOKENS_MAX = 1024
"""Length of an answer, where nothing else is asked for: a small model may never end."""
TIMEOUT_S = 600


class ChatError(Exception):
    """The server is not there, or refused."""


@dataclass(slots=True)
class ChatSession:
    """The turns so far, and how to continue them."""

    url: str
    api_key: str = ""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of every request: temperature, max_tokens, seed, speculation."""
    messages: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    colour: bool = False

    def ask(self, text: str) -> str:
        """Stream the answer to the terminal; returns the line about its speed."""
        self.messages.append({"role": "user", "content": text})
        body = {
            **self.fields,
            "messages": self.messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "include": ["token_origins"],
        }
        said, metrics, count = "", None, 0
        limit = self.fields.get("max_tokens", TOKENS_MAX)
        started = time.monotonic()
        try:
            for chunk in self._events(body):
                metrics = chunk.get("metrics", metrics)
                for choice in chunk["choices"]:
                    new = choice["delta"].get("content") or ""
                    said += new
                    origins = choice.get("origins", ())
                    count += len(origins)
                    self._print(new, origins)
                if count >= limit and "max_tokens" not in self.fields:
                    break
        except KeyboardInterrupt:
            print(" …", end="")
        print()
        if said:
            self.messages.append({"role": "assistant", "content": said})
        else:
            self.messages.pop()
        cut = f" · cut after {limit} tokens (--max-tokens)" if count >= limit else ""
        return speed(metrics, time.monotonic() - started) + cut

    def _print(self, text: str, origins: list[str]) -> None:
        """Show text in the colour of the source that most of it came from."""
        codes = [COLOURS[origin] for origin in origins if origin in COLOURS]
        if self.colour and codes:
            text = f"\x1b[{max(codes, key=codes.count)}m{text}\x1b[0m"
        print(text, end="", flush=True)

    def _events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a streamed reply; closing early cancels the request."""
        address = urlsplit(self.url)
        kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
        headers = {"content-type": "application/json"}
        # Bytes of the command line that are no UTF-8 are half characters, which no JSON may have.
        raw = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        try:
            with contextlib.closing(kind(address.netloc, timeout=TIMEOUT_S)) as connection:
                path = address.path.rstrip("/") + "/v1/chat/completions"
                connection.request("POST", path, raw, headers)
                reply = connection.getresponse()
                if reply.status != 200:
                    raise ChatError(reason(reply.read(), reply.status))
                for line in reply:
                    if line.startswith(b"data: {"):
                        chunk = json.loads(line[6:])
                        if "error" in chunk:
                            raise ChatError(chunk["error"]["message"])
                        yield chunk
        except (OSError, HTTPException, ValueError) as error:
            raise ChatError(f"no answer from {self.url}: {error}") from None


def speed(metrics: dict[str, Any] | None, seconds: float) -> str:
    """Return one line about an answer's speed."""
    if not metrics or metrics["tokens_per_second"] is None:
        return f"{seconds:.1f} s"
    facts = [
        f"first token {metrics['time_to_first_token_ms']:.0f} ms",
        f"{metrics['tokens_per_second']:.1f} tok/s",
    ]
    spoke = metrics["speculative_decoding"]
    if spoke:
        facts.append(f"{spoke['mean_acceptance_length']:.2f} tokens per step")
        if spoke["num_draft_tokens"]:
            facts.append(f"{spoke['draft_acceptance_rate']:.0%} of guesses right")
    return " · ".join([*facts, f"seed {metrics['seed']}"])


def legend() -> str:
    """Return what the colours mean."""
    names = " ".join(f"\x1b[{code}m{name}\x1b[0m" for name, code in COLOURS.items())
    return f"Coloured words were guessed ahead, and confirmed by the model; by: {names}"


def reason(raw: bytes, status: int) -> str:
    """Return the server's own words for an error, if it has any."""
    try:
        return json.loads(raw)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"the server answered {status}"


def chat(conversation: ChatSession, text: str | None) -> int:
    """Answer one text, or talk until the end of input; returns the exit code."""
    dim, plain = ("\x1b[2m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    interactive = text is None and sys.stdin.isatty()
    if text is None:
        cast("TextIOWrapper", sys.stdin).reconfigure(errors="replace")
    if interactive:
        with contextlib.suppress(ImportError):
            __import__("readline")  # line editing and history
        print(f"{dim}{conversation.url} · {HELP}{plain}")
        if conversation.colour:
            print(legend())
    for asked in [text] if text is not None else _lines(interactive):
        if text is None and asked.startswith("/"):
            if not command(conversation, asked):
                break
            continue
        try:
            print(f"{dim}{conversation.ask(asked)}{plain}", file=sys.stderr)
        except ChatError as error:
            conversation.messages.pop()
            print(f"draftwerk: {error}", file=sys.stderr)
            if not interactive:
                return 1
    return 0


def command(conversation: ChatSession, line: str) -> bool:
    """Obey a line that starts with a slash; returns whether to go on."""
    word, _, value = line.partition(" ")
    if word == "/new":
        conversation.messages[:] = [
            each for each in conversation.messages if each["role"] == "system"
        ]
    elif word == "/seed" and value.strip().isdecimal():
        conversation.fields["seed"] = int(value)
    elif word in ("/bye", "/quit", "/exit"):
        return False
    else:
        print(HELP)
    return True


def _lines(interactive: bool) -> Iterator[str]:
    """Yield what the user types, until the end of input."""
    while True:
        try:
            line = input("> " if interactive else "").strip()
        except (EOFError, KeyboardInterrupt):
            return
        if line:
            yield line
