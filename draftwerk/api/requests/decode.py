"""Bytes to checked bodies: whatever is wrong becomes a sentence that names the field.

The code `invalid_json` is kept for what is no JSON at all. Bounds in types are checked once a list
has been read, so a body that would take long to read is refused by counting, before it is.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Message, Receive

from draftwerk.api.requests.field_rows import UNSENT, Body, FieldRow, RefusedField, rows_of
from draftwerk.api.requests.field_types import RAW_HARMLESS_MAX, SAYS_NOTHING
from draftwerk.api.requests.prompts.prompt_modules import with_modules
from draftwerk.api.shared.calls import SentBody
from draftwerk.api.shared.errors import ApiError, ClientGoneError, invalid, refused
from draftwerk.api.shared.handling import SENT, held_body, state_of, tenant_of
from draftwerk.api.shared.memory import HeldBody
from draftwerk.api.shared.models import HOLDS
from draftwerk.api.shared.state import ServerState

CONTAINERS_MAX = 2**14
"""Lists and objects in a body: thrice as many as a conversation of the greatest length has."""
STRINGS_MAX = 2**16
"""Strings in a body, names of fields among them."""

WHOLE_NUMBERS_MAX = 64
NOT_AN_INTEGER = re.compile(r"Expected `int[^`]*`, got `float` - at `\$((?:\.\w+|\[\d+\])+)`$")
STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
BYTE = re.compile(r"\(byte (\d+)\)")


async def body_of(
    request: Request,
    decoder: msgspec.json.Decoder[Body],
    look: Callable[[bytes], None] | None = None,
) -> Body:
    """Return the request's checked body; `look` is shown its bytes once they are known to fit."""
    raw = await _read(request)
    if state_of(request).recorder is not None:
        request.scope[SENT] = SentBody(request.scope["path"], raw)
    holds = request.scope.setdefault(HOLDS, [])
    raw = await known_to_schemas(
        state_of(request), request.url.path, raw, tenant_of(request), holds
    )
    body = decoded(raw, decoder)
    if look is not None:
        look(raw)
    return with_modules(body, state_of(request).modules[tenant_of(request)])


async def known_to_schemas(
    state: ServerState, path: str, raw: bytes, tenant: str, holds: list[Callable[[], None]]
) -> bytes:
    """Return a body whose pictures, where they are read, stay until `holds` are released."""
    return raw if state.bodies is None else await state.bodies.read(path, raw, tenant, holds)


async def _read(request: Request) -> bytes:
    """Return the request's body; 413 if it is too big, 408 if it takes too long, 400 if packed, 503
    if the bodies of others leave no room for it."""
    limits = state_of(request).settings
    headers = dict(request.scope["headers"])
    size = headers.get(b"content-length", b"")
    if size.isdigit() and int(size) > limits.body_bytes:
        raise _too_large(limits.body_bytes)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise refused("The body must not be compressed.", "content-encoding", "unsupported")
    held = held_body(request)
    held.expect(int(size) if size.isdigit() else 0)
    try:
        async with asyncio.timeout(limits.body_deadline_s):
            return await _collected(request.receive, limits.body_bytes, held)
    except TimeoutError:
        raise ApiError(408, "The body took too long to arrive.", code="body_timeout") from None


async def _collected(receive: Receive, size_max: int, held: HeldBody) -> bytes:
    body = bytearray()
    more = True
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > size_max:
            raise _too_large(size_max)
        held.grow(len(body))
    return bytes(body)


def _too_large(size_max: int) -> ApiError:
    return ApiError(413, f"The body is over {size_max} bytes.", code="body_too_large")


def decoded(raw: bytes, decoder: msgspec.json.Decoder[Body]) -> Body:
    """Return the body, or raise the ApiError that names the wrong field and the values it may
    have."""
    check_weight(raw)
    try:
        try:
            body = decoder.decode(raw)
        except msgspec.ValidationError as error:
            body = _with_whole_numbers(raw, decoder, error)
    except msgspec.ValidationError as error:
        raise invalid(str(error), decoder.type) from None
    except msgspec.MsgspecError as error:
        raise _malformed(str(error)) from None
    except UnicodeDecodeError:
        raise refused("The body is not valid UTF-8.", code="invalid_json") from None
    except RecursionError:
        raise refused("The body is nested too deeply.", code="invalid") from None
    check_served(body)
    return body


def _with_whole_numbers(
    raw: bytes, decoder: msgspec.json.Decoder[Body], error: msgspec.ValidationError
) -> Body:
    """Return a body in which whole numbers such as 4.0 stand for integers, as JSON Schema has it.

    Raises ValidationError.
    """
    tree: Any = None
    for _ in range(WHOLE_NUMBERS_MAX):
        found = NOT_AN_INTEGER.match(str(error))
        if found is None:
            break
        tree = msgspec.json.decode(raw) if tree is None else tree
        if not _made_whole(tree, found[1]):
            break
        try:
            return decoder.decode(msgspec.json.encode(tree))
        except msgspec.ValidationError as another:
            error = another
    raise error


def _made_whole(tree: Any, path: str) -> bool:
    """Make the number at a path an integer; whether it is a whole one."""
    steps = [int(index) if index else name for name, index in STEP.findall(path)]
    for step in steps[:-1]:
        tree = tree[step]
    if not float(tree[steps[-1]]).is_integer():
        return False
    tree[steps[-1]] = int(tree[steps[-1]])
    return True


def check_weight(raw: bytes) -> None:
    """Refuse a body of so many values that reading it would hold up all other requests."""
    if raw.count(b'"') <= 2 * STRINGS_MAX and _containers(raw) <= CONTAINERS_MAX:
        return
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # each quote left is a string's end
    if bare.count(b'"') > 2 * STRINGS_MAX:
        raise refused(f"The body holds more than {STRINGS_MAX} strings.", code="invalid")
    if _containers(b"".join(bare.split(b'"')[::2])) > CONTAINERS_MAX:
        said = f"The body holds more than {CONTAINERS_MAX} lists and objects."
        raise refused(said, code="invalid")


def _containers(raw: bytes) -> int:
    return raw.count(b"[") + raw.count(b"{")


def _malformed(message: str) -> ApiError:
    found = BYTE.search(message)
    where = f" (see byte {found[1]})" if found else ""
    fault = "holds half a surrogate pair" if "surrogate" in message else "is not valid JSON"
    return refused(f"The body {fault}{where}.", code="invalid_json")


def check_served(body: msgspec.Struct, path: str = "") -> None:
    """Refuse by name what a body, or the part of one at a path, asks for and is not served."""
    for name in refused_fields(body):
        row = rows_of(type(body))[name]
        instead = f"; use {row.words}." if row.words else "."
        said = f"`{path}{name}` is not supported by this server{instead}"
        raise ApiError(400, said, param=path + name, code="unsupported", details=row.details)


def refused_fields(body: msgspec.Struct) -> Iterable[str]:
    """Name the fields that are known, not served, and asked for."""
    for name in _raw_fields(type(body)):
        value = getattr(body, name)
        if value is UNSENT:
            continue
        if not _says_nothing(bytes(value), rows_of(type(body))[name]):
            yield name


@cache
def _raw_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(each.name for each in msgspec.structs.fields(kind) if each.type is RefusedField)


def _says_nothing(raw: bytes, row: FieldRow) -> bool:
    if len(raw) > RAW_HARMLESS_MAX:
        return False
    compact = msgspec.json.format(raw, indent=-1) if raw else b""
    if compact == b"false" and b"true" in row.harmless:
        return False  # a switch that is on
    return compact in SAYS_NOTHING or compact in row.harmless
