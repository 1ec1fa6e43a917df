"""`draftwerk verify`: asks a server whether receipts are what its model gives."""

import json
import os
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from draftwerk.api.cli.arguments import DEFAULT_URL, server_url
from draftwerk.api.cli.command_parser import Parser
from draftwerk.settings.setting_fields import ConfigError

TIMEOUT_S = 3600
BODY_MAX = 2**19
"""Bytes of receipts that are sent at once, unless one alone has more."""


def main(words: Sequence[str]) -> int:
    """Verify receipts; returns the exit code."""
    parser = Parser(prog="draftwerk verify")
    parser.add_argument("file", metavar="FILE", help="of receipts, or replies; - reads input")
    parser.add_argument(
        "--picture",
        action="append",
        default=[],
        metavar="FILE",
        help="a picture that receipts name; may be repeated",
    )
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the server (default: {DEFAULT_URL})")
    parser.add_argument("--api-key", default="", metavar="KEY", help="or $OPENAI_API_KEY")
    given = parser.parse_args(words)
    key = given.api_key or os.environ.get("OPENAI_API_KEY", "")
    return verify(given.file, server_url(given.url), key, given.picture)


def verify(source: str, url: str, api_key: str, pictures: Sequence[str] = ()) -> int:
    """Verify the receipts of a file or of standard input (`-`), with the files of pictures that
    they name; returns the exit code.

    0: every text is what the model gives. 1: a receipt is not; its line names the place. Raises
    ConfigError for what is no receipt, and where no server answers.
    """
    text, urls = _text(source), dict(map(_picture, pictures))
    if is_cut(text):
        print(f"refused at character {len(text)}: {source} ends within a receipt")
        return 1
    number, wrong = 0, 0
    for batch in _batches(receipts_of(text)):
        named = {each["digest"] for one in batch for each in one.get("pictures", ())}
        sent = [urls[digest] for digest in urls if digest in named]
        for verdict in _verdicts(url, api_key, {"receipts": batch, "pictures": sent}):
            number += 1
            wrong += verdict["verdict"] != "equal"
            print(f"receipt {number}: {said(verdict)}")
    return 1 if wrong else 0


def is_cut(text: str) -> bool:
    """Whether a text is the beginning of JSON."""
    last = text.rstrip().rpartition("\n")[2] if _is_lines(text) else text
    try:
        json.loads(last)
    except json.JSONDecodeError as error:
        is_open = last.lstrip()[:1] in ("{", "[")
        at_end = error.pos >= len(last.rstrip()) - 1 or error.msg.startswith("Unterminated")
        return is_open and at_end
    return False


def _is_lines(text: str) -> bool:
    """Whether the first line is JSON by itself."""
    try:
        json.loads(text.lstrip().partition("\n")[0])
    except ValueError:
        return False
    return True


def _batches(receipts: list[Any]) -> Iterator[list[Any]]:
    """Yield receipts in the bodies that a server takes."""
    batch: list[Any] = []
    size = 0
    for each in receipts:
        length = len(json.dumps(each))
        if batch and size + length > BODY_MAX:
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += length
    yield batch


def receipts_of(text: str) -> list[Any]:
    """Return the receipts in a text: one, a list, a reply with one, a record, or lines of them.

    Raises ConfigError.
    """
    try:
        values = [json.loads(text)]
    except ValueError:
        try:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise ConfigError(f"this is no receipt, as it is no JSON: {error}") from None
    found = [_receipt(each) for value in values for each in _listed(value)]
    if not found:
        raise ConfigError("there is no receipt in it")
    return found


def _listed(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("receipts", cast("Any", value))
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _receipt(value: Any) -> Any:
    """Return the receipt of a reply, or the value itself."""
    for name in ("response", "receipt"):
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(name, cast("Any", value))
    if not isinstance(value, dict):
        raise ConfigError("a receipt is an object with `type`, `version` and `choices`")
    return cast("Any", value)


def said(verdict: dict[str, Any]) -> str:
    """Return a verdict as one line."""
    if verdict["verdict"] == "equal":
        return f"equal, {verdict['tokens']} tokens"
    line = f"{verdict['verdict']} at {verdict['field']}: {verdict['reason']}"
    if "computed" in verdict:
        margin = verdict["margin"]
        by = "which could not be drawn" if margin is None else f"by {margin:.6g} nats"
        claimed, computed = verdict["claimed"]["text"], verdict["computed"]["text"]
        line += f", {computed!r} in place of {claimed!r}, {by}"
    return line


def _text(source: str) -> str:
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source} cannot be read: {error}") from None


def _picture(path: str) -> tuple[str, str]:
    """Return the digest of a picture in a file, and the picture as a data URL."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return sha256(data).hexdigest(), f"data:image/x;base64,{b64encode(data).decode()}"


def _verdicts(url: str, api_key: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    headers = {"content-type": "application/json"}
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    address = f"{url}/v1/verify"
    asked = Request(address, json.dumps(body).encode(), headers)
    try:
        with urlopen(asked, timeout=TIMEOUT_S) as reply:
            return json.load(reply)["verdicts"]
    except HTTPError as error:
        raise ConfigError(_refusal(error)) from None
    except (URLError, OSError, HTTPException) as error:
        raise ConfigError(f"no answer from {address}: {error}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{address} answers, and not as draftwerk does") from None


def _refusal(error: HTTPError) -> str:
    """Return what a server says of a request that it refuses."""
    try:
        return json.load(error)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"the server answers {error.code}"
