"""The server's own metrics, from pages of /metrics collected during the run."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from draftwerk_tools.loadtest.server.metrics import Labels, MetricsPage

# The same thing under the names that servers in use give it.
GAUGES = {
    "running": (
        "vllm:num_requests_running",
        "llamacpp:requests_processing",
        "sglang:num_running_reqs",
    ),
    "waiting": ("vllm:num_requests_waiting", "llamacpp:requests_deferred", "sglang:num_queue_reqs"),
    "kv_usage": (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "llamacpp:kv_cache_usage_ratio",
        "sglang:token_usage",
    ),
}
Samples = dict[tuple[str, Labels], float]
NOISE = ("python_", "process_", "http_")


class ServerMetrics(Struct, frozen=True):
    """Gauges as (seconds, value) points; counters as their growth from first page to last."""

    gauges: dict[str, list[tuple[float, float]]]
    growth: dict[str, float]


def read_pages(pages: Sequence[tuple[float, str]]) -> ServerMetrics | None:
    """Parse the pages; None if the server has none that can be read."""
    try:
        samples = [(at_s, MetricsPage.read(page).samples) for at_s, page in pages]
    except ValueError:
        return None
    if not samples:
        return None
    return ServerMetrics(
        gauges={
            name: points for name, names in GAUGES.items() if (points := _series(samples, names))
        },
        growth=growth(samples[0][1], samples[-1][1]),
    )


def _series(
    samples: Iterable[tuple[float, Samples]], names: Sequence[str]
) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for at_s, page in samples:
        found = [value for (name, _), value in page.items() if name in names]
        if found:
            points.append((round(at_s, 3), sum(found)))
    return points


def growth(first: Samples, last: Samples) -> dict[str, float]:
    """Return what grew; buckets and the client library's own numbers are left out."""
    grown: dict[str, float] = {}
    for (name, labels), value in last.items():
        is_counter = name.endswith(("_total", "_sum", "_count"))
        change = value - first.get((name, labels), 0.0)
        if is_counter and change > 0 and not name.startswith(NOISE):
            written = ",".join(f"{label}={of}" for label, of in labels)
            key = f"{name}{{{written}}}" if labels else name
            grown[key] = round(change, 6)
    return grown
