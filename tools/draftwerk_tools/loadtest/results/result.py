"""The result of a command, as it is kept: self-describing JSON."""

from pathlib import Path

import msgspec
from msgspec import Struct

from draftwerk_tools.loadtest.measure.client_health import ClientHealth
from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.measure.server_metrics import ServerMetrics
from draftwerk_tools.loadtest.measure.summary import Summary
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.results.environment import Environment

SCHEMA_VERSION = 1


class Run(Struct, kw_only=True, tag_field="kind", tag="run"):
    """One run: its options, its outcome, and every request.

    In a sweep `load` is the concurrency or rate of this run, `repeat` which round it was in.
    """

    schema_version: int = SCHEMA_VERSION
    environment: Environment
    options: LoadTestOptions
    label: str = ""
    load: float | None = None
    repeat: int = 0
    interrupted: bool = False
    warnings: list[str] = []
    health: ClientHealth
    server: ServerMetrics | None = None
    summary: Summary
    rows: list[RequestRow]


class Sweep(Struct, kw_only=True, tag_field="kind", tag="sweep"):
    """Runs over several loads. `knees` is the load at each label's knee, `held` a search's find.

    `variants` are the labels that ran side by side.
    """

    schema_version: int = SCHEMA_VERSION
    environment: Environment
    over: str
    runs: list[Run]
    variants: list[str] = []
    knees: dict[str, float] = {}
    held: float | None = None
    notes: list[str] = []


Result = Run | Sweep


def write_result(path: Path, result: Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(result) + b"\n")


def read_result(path: Path) -> Result:
    """Read a result of this schema version; `ValueError` for any other file."""
    try:
        result = msgspec.json.decode(path.read_bytes(), type=Run | Sweep)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is not a loadtest result: {error}") from error
    if result.schema_version != SCHEMA_VERSION:
        raise ValueError(f"{path} has schema {result.schema_version}, not {SCHEMA_VERSION}")
    return result
