"""`/v1/files` and `/v1/batches`."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, TypeVar

import msgspec
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Message

from draftwerk.api.http.http_protocol import DISCARD_FACTOR
from draftwerk.api.openai.batches.kept_files import UPLOAD, TenantFiles
from draftwerk.api.openai.batches.objects import (
    OVER,
    BatchBody,
    BatchList,
    BatchObject,
    DeletedFile,
    Expiry,
    FileList,
    FileObject,
    ListQuery,
)
from draftwerk.api.openai.batches.room import BatchRoom
from draftwerk.api.requests.decode import body_of
from draftwerk.api.shared.errors import ApiError, ClientGoneError, invalid, refused
from draftwerk.api.shared.handling import Endpoint, json_reply, state_of, tenant_of

FILE_BYTES_MAX = 200 * 2**20
FORM_BYTES = 2**16
"""The bytes of an upload beside the file itself."""
DAY_S = 24 * 3600
BATCHES_MAX = 200
"""The most batches of one key that are not over."""
BATCH = msgspec.json.Decoder(BatchBody)
QueryT = TypeVar("QueryT", bound=msgspec.Struct)


def room_of(request: Request) -> BatchRoom:
    """Return the room. Raises ApiError where the server keeps no files."""
    room: BatchRoom | None = request.app.state.batches
    if room is None:
        said = "This server keeps no files: start it with --files FOLDER."
        raise ApiError(400, said, code="files_not_kept")
    return room


def kept_of(request: Request) -> TenantFiles:
    """Return what is kept of the request's key."""
    return room_of(request).kept.of(tenant_of(request))


# --- files ----------------------------------------------------------------------------------------


async def upload(request: Request) -> Response:
    """`POST /v1/files`."""
    kept = kept_of(request)
    most = min(FILE_BYTES_MAX, DISCARD_FACTOR * state_of(request).settings.body_bytes - FORM_BYTES)
    counted = _Counted(request, most + FORM_BYTES)
    with kept.room_for(counted.expected):
        return await _uploaded(kept, Request(request.scope, counted.receive), most)


async def _uploaded(kept: TenantFiles, bounded: Request, most: int) -> Response:
    """Keep the file of a form."""
    try:
        form = await bounded.form(max_files=1, max_fields=8)
    except HTTPException as error:
        raise refused(f"The body is no form: {error.detail}", "file", "invalid") from None
    try:
        file, purpose = form.get("file"), form.get("purpose")
        if not isinstance(file, UploadFile):
            raise refused("`file` is required.", "file", "missing")
        if purpose != "batch":
            said = '`purpose` must be "batch": files are kept for /v1/batches.'
            raise refused(said, "purpose", "missing" if purpose is None else "unsupported")
        expiry = _expiry({name: value for name, value in form.items() if isinstance(value, str)})
        size = file.size or 0
        if size > most:
            raise _too_large(most)
        data = await asyncio.to_thread(_spooled, file.file, kept.files.folder)
        name = (file.filename or "file.jsonl")[:256]
        seconds = None if expiry is None else expiry.seconds
        found = await kept.add(data, name, "batch", seconds)
        data.unlink()
        return json_reply(found)
    finally:
        await form.close()


class _Counted:
    """An upload, counted up to a size."""

    def __init__(self, request: Request, most: int) -> None:
        self.request, self.most, self.size = request, most, 0
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise _too_large(most)
        self.expected = int(length) if length.isdigit() else most
        """Bytes at most."""

    async def receive(self) -> Message:
        message = await self.request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        self.size += len(message.get("body", b""))
        if self.size > self.most:
            raise _too_large(self.most)
        return message


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"The file is over {most} bytes.", param="file", code="body_too_large")


def _expiry(form: dict[str, str]) -> Expiry | None:
    """Return when a file is dropped; a form has the fields of an object in brackets."""
    given: dict[str, Any] = {
        name: form[key]
        for name in ("anchor", "seconds")
        if (key := f"expires_after[{name}]") in form
    }
    return _checked(given, Expiry, "expires_after.") if given else None


def _checked(given: dict[str, Any], kind: type[QueryT], path: str = "") -> QueryT:
    """Return strings as the fields of a Struct. Raises ApiError."""
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        fault = invalid(str(error), kind)
        param = path + (fault.param or "")
        raise refused(f"`{param}`: {error}.", param, fault.code) from None


def _spooled(source: IO[bytes], folder: Path) -> Path:
    """Copy an upload beside the kept files; returns where it is."""
    descriptor, name = tempfile.mkstemp(UPLOAD, dir=folder)
    with os.fdopen(descriptor, "wb") as file:
        source.seek(0)
        shutil.copyfileobj(source, file)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)


async def files(request: Request) -> Response:
    """`GET` and `POST /v1/files`."""
    if request.method == "POST":
        return await upload(request)
    query = _query(request, 10_000)
    found, more = kept_of(request).files.page(
        query.limit,
        query.after,
        query.order == "desc",
        lambda each: query.purpose in (None, each.purpose),
    )
    return json_reply(FileList(data=found, has_more=more, **_ends(found)))


async def file(request: Request) -> Response:
    """`GET` and `DELETE /v1/files/{file_id}`."""
    kept, name = kept_of(request), request.path_params["file_id"]
    found = kept.file(name)
    if request.method != "DELETE":
        return json_reply(found)
    reader = next(
        (
            each.id
            for each in kept.batches.objects.values()
            if each.input_file_id == name and each.status not in OVER
        ),
        None,
    )
    if reader is not None:
        raise refused(f"The batch {reader} reads this file: cancel it first.", "file_id", "invalid")
    kept.delete(name)
    return json_reply(DeletedFile(name))


async def content(request: Request) -> Response:
    """`GET /v1/files/{file_id}/content`."""
    kept = kept_of(request)
    found = kept.file(request.path_params["file_id"])
    return FileResponse(kept.data_path(found.id), media_type="application/octet-stream")


def _query(request: Request, most: int) -> ListQuery:
    """Return what a list is asked for. Raises ApiError."""
    found = _checked({"limit": most, **request.query_params}, ListQuery)
    if not 1 <= found.limit <= most:
        raise refused(f"`limit` must be between 1 and {most}.", "limit", "invalid")
    return found


def _ends(found: list[FileObject] | list[BatchObject]) -> dict[str, str]:
    return {"first_id": found[0].id, "last_id": found[-1].id} if found else {}


# --- batches --------------------------------------------------------------------------------------


async def create(request: Request) -> Response:
    """`POST /v1/batches`."""
    room, kept = room_of(request), kept_of(request)
    body = await body_of(request, BATCH)
    source = kept.files.objects.get(body.input_file_id)
    if source is None or source.purpose != "batch":
        said = f"`input_file_id` {body.input_file_id!r} is no file of this key for batches."
        raise refused(said, "input_file_id", "invalid")
    under_way = sum(each.status not in OVER for each in kept.batches.objects.values())
    if under_way >= BATCHES_MAX or room.runner is None:
        said = f"{under_way} batches of this key are under way: wait for one."
        raise ApiError(429, said, code="overloaded", retry_after_ms=60_000)
    kept.drop_old_batches()
    created = int(kept.now())
    batch = BatchObject(
        id=f"batch_{token_hex(12)}",
        endpoint=body.endpoint,
        input_file_id=source.id,
        created_at=created,
        expires_at=created + DAY_S,
        metadata=body.metadata,
        output_expires_after=body.output_expires_after or msgspec.UNSET,
    )
    await kept.batches.put(batch)
    room.runner.begin(kept, batch.id)
    return json_reply(batch)


async def batches(request: Request) -> Response:
    """`GET` and `POST /v1/batches`."""
    if request.method == "POST":
        return await create(request)
    query = _query(request, 100)
    found, more = kept_of(request).batches.page(query.limit, query.after, True, lambda _: True)
    return json_reply(BatchList(data=found, has_more=more, **_ends(found)))


async def batch(request: Request) -> Response:
    """`GET /v1/batches/{batch_id}`."""
    return json_reply(kept_of(request).batch(request.path_params["batch_id"]))


async def cancel(request: Request) -> Response:
    """`POST /v1/batches/{batch_id}/cancel`."""
    kept = kept_of(request)
    found = kept.batch(request.path_params["batch_id"])
    if found.status in OVER:
        said = f"The batch is {found.status}: it cannot be cancelled."
        raise refused(said, "batch_id", "invalid")
    if found.status != "cancelling":
        now = int(kept.now())
        found = msgspec.structs.replace(found, status="cancelling", cancelling_at=now)
        await kept.batches.put(found)
    return json_reply(found)


ENDPOINTS = (
    Endpoint("POST", "/v1/files", files, "Keep a file, sent as a form", reply=FileObject),
    Endpoint("GET", "/v1/files", files, "List files", reply=FileList),
    Endpoint("GET", "/v1/files/{file_id}", file, "Describe a file", reply=FileObject),
    Endpoint("DELETE", "/v1/files/{file_id}", file, "Drop a file", reply=DeletedFile),
    Endpoint(
        "GET",
        "/v1/files/{file_id}/content",
        content,
        "Return a file's bytes",
        media_type="application/octet-stream",
    ),
    Endpoint(
        "POST", "/v1/batches", batches, "Have a file of requests answered", BatchBody, BatchObject
    ),
    Endpoint("GET", "/v1/batches", batches, "List batches", reply=BatchList),
    Endpoint("GET", "/v1/batches/{batch_id}", batch, "Describe a batch", reply=BatchObject),
    Endpoint("POST", "/v1/batches/{batch_id}/cancel", cancel, "End a batch", reply=BatchObject),
)
