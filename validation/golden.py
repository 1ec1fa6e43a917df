"""Golden texts: compares a server's answers byte for byte with recorded ones.

    python -m validation.golden record URL FILE [--at-once 4]
    python -m validation.golden compare URL FILE [--at-once 4]

A recording holds requests and their answers: texts, log-probabilities, scores, finish reasons and
token counts. `compare` sends the recorded requests, prints what differs and exits with 1 if
anything does. It speaks HTTP alone and needs the standard library alone, so it records any
version of the server. Record and compare on one machine: another CPU sums in another order.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from validation.golden_requests import NEUTRAL, GoldenRequest, JsonBody, golden_requests

TIMEOUT_S = 300
READY_S = 300
BIASED_TEXT = " the and a of"
"""Its tokens are those that the requests with a logit bias name."""
CONTEXT = 24
"""Characters shown around the first difference of two texts."""


class AnswerError(Exception):
    """A request that was not answered, with the server's message."""


def main() -> int:
    arguments = _parser().parse_args()
    url = arguments.url.rstrip("/").removesuffix("/v1")
    try:
        _wait_until_ready(url)
        if arguments.command == "record":
            return record(url, arguments.file, arguments.at_once)
        return compare(url, arguments.file, arguments.at_once)
    except AnswerError as error:
        print(error, file=sys.stderr)
        return 2


def record(url: str, file: Path, at_once: int) -> int:
    """Send all requests, and write the answers to the file."""
    biased = _post(url, "/tokenize", {"prompt": BIASED_TEXT})["tokens"]
    requests = golden_requests(biased)
    recording: JsonBody = {}
    answers = _answers(partial(answer_of, url), requests, at_once)
    for request, answer in zip(requests, answers, strict=True):
        recording[request.name] = {"path": request.path, "body": request.body, "answer": answer}
    file.write_text(json.dumps(recording, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(recording)} answers in {file}")
    return 0


def compare(url: str, file: Path, at_once: int) -> int:
    """Send the file's requests, and print every answer that differs."""
    recording: JsonBody = json.loads(file.read_text())
    requests = [
        GoldenRequest(name=name, path=each["path"], body=NEUTRAL | each["body"])
        for name, each in recording.items()
    ]
    different = 0
    answers = _answers(partial(_answer_or_error, url), requests, at_once)
    for request, answer in zip(requests, answers, strict=True):
        found = list(differences(recording[request.name]["answer"], answer))
        different += bool(found)
        for line in found[:3]:
            print(f"{request.name}: {line}")
    print(f"{len(recording) - different} of {len(recording)} answers are equal byte for byte")
    return int(different > 0)


def differences(recorded: Any, answered: Any, place: str = "answer") -> Iterator[str]:
    """Yield a line per place where two answers differ."""
    if isinstance(recorded, dict) and isinstance(answered, dict):
        for key in recorded | answered:
            yield from differences(recorded.get(key), answered.get(key), f"{place}.{key}")
    elif isinstance(recorded, list) and isinstance(answered, list):
        if len(recorded) != len(answered):
            yield f"{place}: {len(recorded)} entries recorded, {len(answered)} answered"
        for index, pair in enumerate(zip(recorded, answered, strict=False)):
            yield from differences(*pair, f"{place}[{index}]")
    elif isinstance(recorded, str) and isinstance(answered, str):
        if recorded != answered:
            yield f"{place}: {_first_difference(recorded, answered)}"
    elif type(recorded) is not type(answered) or recorded != answered:
        yield f"{place}: {recorded!r} recorded, {answered!r} answered"


def _first_difference(recorded: str, answered: str) -> str:
    pairs = zip(recorded, answered, strict=False)
    same = next(
        (index for index, (one, other) in enumerate(pairs) if one != other),
        min(len(recorded), len(answered)),
    )
    start = max(0, same - CONTEXT)
    window = slice(start, same + CONTEXT)
    return f"from character {same} on, {recorded[window]!r} recorded, {answered[window]!r} answered"


# --- answers ------------------------------------------------------------------------------------


def _answers(
    ask: Callable[[GoldenRequest], JsonBody], requests: list[GoldenRequest], at_once: int
) -> Iterator[JsonBody]:
    with ThreadPoolExecutor(at_once) as threads:
        yield from threads.map(ask, requests)


def _answer_or_error(url: str, request: GoldenRequest) -> JsonBody:
    try:
        return answer_of(url, request)
    except AnswerError as error:
        return {"error": str(error)}


def answer_of(url: str, request: GoldenRequest) -> JsonBody:
    """Return what a server answers, in one form for whole and streamed answers."""
    if not request.body.get("stream"):
        reply = _post(url, request.path, request.body)
        return _response(reply) if "output" in reply else _joined([reply])
    with _open(url, request.path, request.body) as reply:
        events = list(_events(reply))
    if request.path == "/v1/responses":
        return _response(events[-1]["response"]) | {
            "streamed": "".join(each.get("delta", "") for each in events)
        }
    return _joined(events)


def _joined(parts: Iterable[JsonBody]) -> JsonBody:
    """Join the chunks of a stream; a whole answer is one chunk."""
    choices: dict[int, JsonBody] = {}
    usage: JsonBody = {}
    for part in parts:
        usage = part.get("usage") or usage
        for choice in part["choices"]:
            joined = choices.setdefault(choice["index"], {"text": "", "logprobs": {}})
            message = choice.get("message") or choice.get("delta") or choice
            joined["text"] += message.get("content") or message.get("text") or ""
            for key, values in (choice.get("logprobs") or {}).items():
                joined["logprobs"].setdefault(key, []).extend(values or [])
            for key in ("finish_reason", "score"):
                if choice.get(key) is not None:
                    joined[key] = choice[key]
    return {
        "choices": [choices[index] for index in sorted(choices)],
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
    }


def _response(response: JsonBody) -> JsonBody:
    """Return what is the same each time in the object of a response."""
    contents = [part for message in response["output"] for part in message["content"]]
    return {
        "choices": [
            {"text": part["text"], "logprobs": part.get("logprobs", [])} for part in contents
        ],
        "status": response["status"],
        "prompt_tokens": response["usage"]["input_tokens"],
        "completion_tokens": response["usage"]["output_tokens"],
    }


# --- HTTP ---------------------------------------------------------------------------------------


def _wait_until_ready(url: str) -> None:
    """Wait for a server that is starting. Raises AnswerError."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with urlopen(f"{url}/ready", timeout=TIMEOUT_S):
                return
        except URLError as error:  # the HTTP errors too: 503 while the model is read
            if time.monotonic() > deadline:
                raise AnswerError(f"{url} is not ready: {error}") from None
        time.sleep(1)


def _post(url: str, path: str, body: JsonBody) -> JsonBody:
    with _open(url, path, body) as reply:
        return json.load(reply)


def _open(url: str, path: str, body: JsonBody) -> Any:
    """Return the open reply. Raises AnswerError."""
    headers = {"content-type": "application/json"}
    try:
        return urlopen(Request(url + path, json.dumps(body).encode(), headers), timeout=TIMEOUT_S)
    except HTTPError as error:
        said = error.read().decode(errors="replace")
        raise AnswerError(f"HTTP {error.code} from {url}{path} for {body}: {said}") from None
    except URLError as error:
        raise AnswerError(f"no answer from {url}{path}: {error.reason}") from None


def _events(reply: Iterable[bytes]) -> Iterator[JsonBody]:
    """Yield the data of server-sent events; both of this server's kinds have one line each."""
    for line in reply:
        if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
            event: JsonBody = json.loads(line[5:])
            if event.get("error"):
                raise AnswerError(f"a stream ended in {event['error']}")
            yield event


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="requests in flight")
    return parser


_Formatter = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    sys.exit(main())
