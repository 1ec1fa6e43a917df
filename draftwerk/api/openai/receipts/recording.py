"""Receipts of all finished requests: kept for a while under their ids, and written to a log.

    {"at": 1763990000.1, "path": "/v1/messages", "body": {…}, "id": "…", "receipts": [{…}]}

A line of the log holds everything that `draftwerk replay` needs to send a request again and to
compare its texts. Texts from reused segments are approximate, and in no record.
"""

import logging
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from draftwerk.actors.events.client_events import Event, Failed
from draftwerk.api.openai.receipts.issuing import Issuer, issuer_of
from draftwerk.api.openai.receipts.receipt import Receipt
from draftwerk.api.shared.calls import Call
from draftwerk.api.shared.response_store import ResponseStore, StoredResponse
from draftwerk.api.shared.state import ServerState
from draftwerk.settings.setting_fields import ConfigError

KEPT_MAX = 1000
"""Records kept of each API key; fewer if they are large."""

log = logging.getLogger("draftwerk")


class RequestRecord(Struct, frozen=True, kw_only=True):
    """A request that was answered: one line of the log."""

    at: float
    """Unix seconds of its arrival."""
    id: str
    """The request's id."""
    tenant: str = ""
    """The name of its API key."""
    path: str
    body: Raw
    receipts: list[Receipt]
    """One for each prompt."""


class RecordKeeper:
    """Keeps records, and appends them to a file if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        """Open the log, for its owner alone. Raises ConfigError."""
        self.path = path
        self.kept = ResponseStore(KEPT_MAX)
        self._file = None if path is None else _opened(path)

    def recording(self, state: ServerState, call: Call) -> "RequestRecording | None":
        """Return what takes in a request's events; None for what is not recorded."""
        is_text = call.options.blend is None and call.options.pooling is None
        if call.sent is None or call.half is not None or not is_text:
            return None
        issuers = [issuer_of(state, call.options) for _ in call.prompts]
        return RequestRecording(self, call, issuers, state.now())

    def keep(self, record: RequestRecord) -> None:
        """Take in a record. A log that cannot be written is told; the request goes on."""
        receipts = msgspec.json.encode({"receipts": record.receipts})
        self.kept.of(record.tenant).keep(record.id, StoredResponse((), receipts))
        if self._file is None:
            return
        try:
            os.write(self._file, msgspec.json.encode(record) + b"\n")
        except OSError as error:
            log.error("id=%s is not in the record %s: %s", record.id, self.path, error)

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def recorder_of(path: str, keeps_receipts: bool) -> RecordKeeper | None:
    """Return what keeps records, if any are to be kept. Raises ConfigError."""
    if path:
        return RecordKeeper(Path(path).expanduser())
    return RecordKeeper() if keeps_receipts else None


class RequestRecording:
    """One request's texts, until all have ended."""

    def __init__(
        self, recorder: RecordKeeper, call: Call, issuers: Sequence[Issuer], at: float
    ) -> None:
        self.recorder, self.call, self.issuers, self.at = recorder, call, issuers, at

    def observe(self, event: Event) -> None:
        """Take in the next event; the last text's end makes the record."""
        if isinstance(event, Failed):
            return
        count = self.call.options.choices
        prompt, index = divmod(event.choice, count)
        self.issuers[prompt].observe(msgspec.structs.replace(event, choice=index))
        if self.call.sent is None or any(len(each.ends) < count for each in self.issuers):
            return
        record = RequestRecord(
            at=self.at,
            id=self.call.request_id,
            tenant=self.call.options.tenant,
            path=self.call.sent.path,
            body=Raw(self.call.sent.body),
            receipts=[each.receipt() for each in self.issuers],
        )
        self.recorder.keep(record)


def _opened(path: Path) -> int:
    """Open a log that is one's own file and no link, for its owner alone. Raises ConfigError."""
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        found = os.open(path, flags, 0o600)
        about = os.fstat(found)
        if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid():
            os.fchmod(found, 0o600)
        elif stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode):
            os.close(found)
            raise ConfigError(f"record: {path} is another user's")
        return found
    except OSError as error:
        raise ConfigError(f"record: {path} cannot be written: {error}") from None
