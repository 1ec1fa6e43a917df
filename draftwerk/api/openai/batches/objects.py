"""Files and batches as clients send and get them: OpenAI's objects."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.requests.field_types import Metadata

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"]
Status = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling",
    "cancelled",
]  # fmt: skip
OVER: frozenset[Status] = frozenset(("failed", "completed", "expired", "cancelled"))
"""States that a batch stays in."""
ExpirySeconds = Annotated[int, Meta(ge=3600, le=2592000)]


class Expiry(Struct, frozen=True):
    """When a file is dropped."""

    anchor: Literal["created_at"]
    seconds: ExpirySeconds


class FileObject(Struct, frozen=True, kw_only=True):
    """A kept file."""

    id: str
    object: str = "file"
    bytes: int
    created_at: int
    """Unix seconds."""
    expires_at: int | None = None
    filename: str
    purpose: str
    """`batch`, or `batch_output` of what a batch came to."""
    status: str = "processed"


class FileList(Struct, frozen=True, kw_only=True):
    object: str = "list"
    data: list[FileObject]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class DeletedFile(Struct, frozen=True):
    id: str
    object: str = "file"
    deleted: bool = True


class BatchBody(Struct, frozen=True, kw_only=True):
    """`POST /v1/batches`."""

    input_file_id: Annotated[str, Meta(max_length=64)]
    endpoint: Endpoint
    """Where all requests of the file go."""
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: Expiry | None = None
    """The expiry of the files that it writes."""


class LineFault(Struct, frozen=True):
    """Why a file is no batch."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None
    """The file's line, from 1."""


class LineFaults(Struct, frozen=True):
    data: list[LineFault]
    object: str = "list"


class RequestCounts(Struct, frozen=True):
    total: int = 0
    completed: int = 0
    failed: int = 0


class BatchObject(Struct, frozen=True, kw_only=True):
    """A batch; times are Unix seconds, null until they come."""

    id: str
    object: str = "batch"
    endpoint: Endpoint
    input_file_id: str
    completion_window: str = "24h"
    status: Status = "validating"
    errors: LineFaults | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = RequestCounts()
    metadata: dict[str, str] | None = None
    output_expires_after: Expiry | UnsetType = UNSET


class BatchList(Struct, frozen=True, kw_only=True):
    object: str = "list"
    data: list[BatchObject]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


# --- lines of files -------------------------------------------------------------------------------


class LineAnswer(Struct, frozen=True):
    status_code: int
    request_id: str
    body: object


class LineError(Struct, frozen=True):
    code: str
    message: str


class AnswerLine(Struct, frozen=True, kw_only=True):
    """A line of a batch's output, or of its errors."""

    id: str
    custom_id: str
    response: LineAnswer | None = None
    error: LineError | None = None


class ListQuery(Struct, frozen=True, kw_only=True):
    """The query of a list."""

    limit: int = 20
    after: str | None = None
    order: Literal["asc", "desc"] = "desc"
    purpose: str | None = None
