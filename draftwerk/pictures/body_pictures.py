"""Pictures in bodies, in the words of each protocol; each gives way to a text that stands for it.

OpenAI      {"type": "image_url", "image_url": {"url": "data:..."}}
Responses   {"type": "input_image", "image_url": "data:..."}
Anthropic   {"type": "image", "source": {"type": "base64", "media_type": ..., "data": ...}}
Ollama      "images": ["...", ...] beside a message's content, or beside a prompt
"""

import binascii
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from draftwerk.api.shared.errors import refused
from draftwerk.pictures.placeholders import MARK, MARK_LENGTH

NAMED = re.compile(rb'"(?:image|image_url|input_image|images|pictures)"')
"""In a body that may have a picture."""
PARTS = {"image_url": "text", "input_image": "input_text", "image": "text"}
"""Types of parts that are pictures, and of a text beside each."""
WHERE = ("content", "output")
"""Fields of a message, or of a result of a tool, that have parts."""
DATA_URL = re.compile(
    r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[^;,]*)*)(;base64)?,", re.ASCII | re.IGNORECASE
)
BYTES_MAX = 20 * 2**20
DETAILS = ("auto", "low", "high", "original", None)
"""How closely a picture is to be looked at: its model's processor decides that."""


class SentPicture(NamedTuple):
    """A picture in a body."""

    field: str
    data: bytes
    """Its bytes; none of one that is at an address."""
    media_type: str
    """Its type; empty where any picture will do."""
    put: Callable[[str], None]
    """Puts a text in its place."""
    blocks: list[Any] | None = None
    """The blocks that it is among, where a protocol shows each as a paragraph."""
    address: str = ""
    """Where it is; empty for one that came with the body."""


def pictures_in(tree: Any, is_ollama: bool) -> Iterator[SentPicture]:
    """Yield the pictures of a body in JSON. Raises ApiError, which names the field."""
    if not isinstance(tree, dict):
        return
    if is_ollama:
        yield from _beside(tree, "prompt", "")
        for at, message in enumerate(_listed(tree.get("messages"))):
            yield from _beside(message, "content", f"messages[{at}].")
        return
    if "receipts" in tree:
        yield from _alone(_listed(tree.get("pictures")))
    for name in ("messages", "input", "items"):
        yield from _within(tree.get(name), name)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _alone(urls: list[Any]) -> Iterator[SentPicture]:
    """Yield the pictures beside receipts, each a URL."""
    for at, url in enumerate(urls):

        def put(text: str, at: int = at) -> None:
            urls[at] = text

        field = f"pictures[{at}]"
        yield _sent(field, _checked_url(url, field), "", put)


def _within(value: Any, path: str) -> Iterator[SentPicture]:
    """Yield the pictures in a list of messages or parts, in order."""
    for at, each in enumerate(_listed(value)):
        if not isinstance(each, dict):
            continue
        field = f"{path}[{at}]"
        if each.get("type") in PARTS:
            yield _part(value, at, field)
        for name in WHERE:
            yield from _within(each.get(name), f"{field}.{name}")


def _part(parts: list[Any], at: int, path: str) -> SentPicture:
    """Return a part that is a picture."""
    part = parts[at]
    kind = part["type"]
    field, sent, media_type = _source(part, path) if kind == "image" else _url(part, path)

    def put(text: str) -> None:
        parts[at] = {"type": PARTS[kind], "text": text}
        if "cache_control" in part:
            parts[at]["cache_control"] = part["cache_control"]

    blocks = parts if kind == "image" else None
    return _sent(field, sent, media_type, put, blocks)


def _sent(
    field: str,
    sent: str,
    media_type: str,
    put: Callable[[str], None],
    blocks: list[Any] | None = None,
) -> SentPicture:
    """Return a picture of an address or of base64."""
    if _is_address(sent):
        return SentPicture(field, b"", "", put, blocks, sent)
    return SentPicture(field, _bytes(sent, field), media_type, put, blocks)


def _is_address(sent: str) -> bool:
    return sent[:8].lower().startswith(("http://", "https://"))


def join_blocks(pictures: Iterable[SentPicture]) -> None:
    """Put marks into the blocks beside them: a picture is no paragraph."""
    for blocks in {id(each.blocks): each.blocks for each in pictures}.values():
        joined: list[Any] = []
        for block in blocks or ():
            text = block.get("text")
            if text is not None and joined and _touch(joined[-1].get("text"), text):
                joined[-1] = {**joined[-1], **block, "text": joined[-1]["text"] + text}
            else:
                joined.append(block)
        if blocks is not None:
            blocks[:] = joined


def _touch(before: str | None, text: str) -> bool:
    """Whether a mark is where two texts meet."""
    if before is None:
        return False
    return bool(MARK.match(text) or MARK.fullmatch(before[-MARK_LENGTH:]))


def _url(part: dict[str, Any], path: str) -> tuple[str, str, str]:
    """Return the field, a part's address or the base64 of its data URL, and no type."""
    field, url, detail_field = f"{path}.image_url", part.get("image_url"), f"{path}.detail"
    detail = part.get("detail")
    if isinstance(url, dict):
        detail_field, detail = f"{field}.detail", url.get("detail", detail)
        field, url = f"{field}.url", url.get("url")
    if detail not in DETAILS:
        said = f"`{detail_field}` must be one of auto, low, high."
        raise refused(said, detail_field, "invalid")
    if url is None and part.get("file_id") is not None:
        field = f"{path}.file_id"
        raise refused(f"`{field}` is not supported: send a data URL.", field, "unsupported")
    return field, _checked_url(url, field), ""


def _checked_url(url: Any, field: str) -> str:
    """Return the address or the base64 of a URL."""
    if not isinstance(url, str):
        raise refused(f"`{field}` is required: a data URL.", field, "missing")
    if _is_address(url):
        return url
    found = DATA_URL.match(url[:256])
    if found is None:
        said = f"`{field}` is no data URL of a picture in base64."
        raise refused(said, field, "invalid" if url.startswith("data:") else "unsupported")
    if not (found[1] or "").lower().startswith("image/") or not found[3]:
        said = f"`{field}` must be a data URL of a picture in base64."
        raise refused(said, field, "invalid")
    return url[found.end() :]


def _source(part: dict[str, Any], path: str) -> tuple[str, str, str]:
    """Return the field, the base64 or the address, and the type of a part as Anthropic has it."""
    source = part.get("source")
    if not isinstance(source, dict):
        raise refused(f"`{path}.source` is required.", f"{path}.source", "missing")
    if source.get("type") == "url":
        field, url = f"{path}.source.url", source.get("url")
        if not isinstance(url, str) or not _is_address(url):
            raise refused(f"`{field}` must be an address of http or https.", field, "invalid")
        return field, url, ""
    if source.get("type") != "base64":
        field = f"{path}.source.type"
        raise refused(f"`{field}` must be base64 or url.", field, "unsupported")
    field = f"{path}.source.data"
    media_type, data = source.get("media_type"), source.get("data")
    if not isinstance(media_type, str) or not media_type.lower().startswith("image/"):
        said = f"`{path}.source.media_type` must be a picture's."
        raise refused(said, f"{path}.source.media_type", "invalid")
    if not isinstance(data, str):
        raise refused(f"`{field}` is required.", field, "missing")
    return field, data, media_type


def _beside(message: Any, name: str, path: str) -> Iterator[SentPicture]:
    """Yield the pictures of a message or a request as Ollama has it: they come before its text."""
    if not isinstance(message, dict) or not message.get("images"):
        return
    field, images = f"{path}images", message.pop("images")
    if not isinstance(images, list):
        raise refused(f"`{field}` must be a list of pictures in base64.", field, "invalid")
    text = message.get(name)
    message[name] = "" if text is None else text
    if not isinstance(message[name], str):
        raise refused(f"`{path}{name}` must be a text.", f"{path}{name}", "invalid")
    behind = message[name]
    marks: list[str] = []

    def put(mark: str) -> None:
        marks.append(mark)
        message[name] = "".join(marks) + behind

    for at, each in enumerate(images):
        if not isinstance(each, str):
            raise refused(f"`{field}[{at}]` must be base64.", f"{field}[{at}]", "invalid")
        yield SentPicture(f"{field}[{at}]", _bytes(each, f"{field}[{at}]"), "", put)


def _bytes(text: str, field: str) -> bytes:
    if len(text) > BYTES_MAX * 4 // 3 + 4:
        said = f"`{field}` is over {BYTES_MAX // 2**20} MiB, the most of a picture."
        raise refused(said, field, "invalid")
    try:
        return binascii.a2b_base64("".join(text.split()), strict_mode=True)
    except ValueError:
        raise refused(f"`{field}` is not base64.", field, "invalid") from None
