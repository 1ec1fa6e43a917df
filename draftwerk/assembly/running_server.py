"""What a server that runs on this machine tells of its time: its device's, and its requests'."""

from collections.abc import Iterator, Sequence
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from draftwerk.api.shared.config import Settings

PATIENCE_S = 1.0
BUSY, GAP = "draftwerk_device_busy_seconds_total", "draftwerk_device_gap_seconds"
STAGE = "draftwerk_request_stage_seconds"
PAGE_MAX = 2**24
TITLE = "draftwerk"
"""The title of the description of the API."""
ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""An address to listen on at all of a machine's, and one to reach it by."""


class DeviceTimes(msgspec.Struct, frozen=True):
    """Since the server was started."""

    busy: float
    """The device's share of computing in the time with work."""
    gap_ms: float
    """The mean wait between two steps while there was work."""
    gap_p50_ms: float
    gap_p99_ms: float
    """The bounds of the buckets that half of the waits and 99 in 100 are within."""
    stages_ms: dict[str, float]
    """Mean time of each stage of a finished choice; empty before the first."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield (subject, words) pairs."""
        yield (
            "its device",
            f"{self.busy:.1%} busy while there was work; {self.gap_ms:.2f} ms between two steps, "
            f"half of them within {self.gap_p50_ms:g} ms, 99 of 100 within {self.gap_p99_ms:g} ms",
        )
        if self.stages_ms:
            words = ", ".join(f"{stage} {ms:.1f}" for stage, ms in self.stages_ms.items())
            yield "its requests, ms on average", words


class ServerTitle(msgspec.Struct, frozen=True):
    """What `/openapi.json` tells of who answers."""

    title: str = ""


class ServerAnswer(msgspec.Struct, frozen=True):
    """A description of the API, or an error in its place."""

    info: ServerTitle = ServerTitle()
    error: dict[str, str | None] = {}


def is_draftwerk(settings: Settings) -> bool:
    """Return whether a server of ours answers at the settings' address, if only that it starts."""
    if not settings.port:
        return False
    try:
        page = _read(settings, "/openapi.json")
    except HTTPError as error:
        page = error.read(PAGE_MAX)
    except (OSError, ValueError):
        return False
    try:
        answer = msgspec.json.decode(page, type=ServerAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return answer.info.title == TITLE or answer.error.get("code") == "starting"


def server_times(settings: Settings) -> DeviceTimes | None:
    """Return what the server at the settings' address tells, None if none of ours answers."""
    try:
        return read_times(_read(settings, "/metrics").decode())
    except (OSError, ValueError):
        return None


def _read(settings: Settings, path: str) -> bytes:
    """Return what is at a path of the server. Raises OSError and ValueError."""
    host = ANYWHERE.get(settings.host, settings.host)
    host = f"[{host}]" if ":" in host else host
    request = Request(f"http://{host}:{settings.port}{path}")
    if settings.api_key:
        request.add_header("Authorization", "Bearer " + settings.api_key[0].rpartition(":")[2])
    with urlopen(request, timeout=PATIENCE_S) as response:
        return response.read(PAGE_MAX)


def read_times(page: str) -> DeviceTimes | None:
    """Return what a page of metrics tells, None before the first gap. Raises ValueError."""
    families = text_string_to_metric_families(page)
    samples = [sample for family in families for sample in family.samples]
    totals = dict[str, float]()
    for sample in samples:
        totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    buckets = [each for each in samples if each.name == f"{GAP}_bucket"]
    busy_s, gap_s = totals.get(BUSY, 0.0), totals.get(f"{GAP}_sum", 0.0)
    count = totals.get(f"{GAP}_count", 0.0)
    if not (busy_s and count and buckets):
        return None
    gaps = sorted((float(each.labels["le"]), each.value) for each in buckets)
    return DeviceTimes(
        busy_s / (busy_s + gap_s),
        1e3 * gap_s / count,
        1e3 * _bound(gaps, 0.5 * gaps[-1][1]),
        1e3 * _bound(gaps, 0.99 * gaps[-1][1]),
        dict(_stages_ms(samples)),
    )


def _stages_ms(samples: Sequence[Sample]) -> Iterator[tuple[str, float]]:
    """Yield each stage with the mean time of the requests that ended."""
    counts = {each.labels["stage"]: each.value for each in samples if each.name == f"{STAGE}_count"}
    for sample in samples:
        stage = sample.labels.get("stage", "")
        if sample.name == f"{STAGE}_sum" and counts.get(stage):
            yield stage, 1e3 * sample.value / counts[stage]


def _bound(cumulative: list[tuple[float, float]], rank: float) -> float:
    """Return the least bound with so many observations up to it."""
    return next(bound for bound, count in cumulative if count >= rank)
