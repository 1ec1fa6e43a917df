"""What the server said about itself on /metrics, from pages collected during the run."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from prometheus_client.parser import text_string_to_metric_families

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
NOISE = ("python_", "process_", "http_")


class ServerMetrics(Struct, frozen=True):
    """Gauges as (seconds, value) points; counters as their growth from first page to last."""

    gauges: dict[str, list[tuple[float, float]]]
    growth: dict[str, float]


def read_pages(pages: Sequence[tuple[float, str]]) -> ServerMetrics | None:
    """Parse the pages; None if the server has none that can be read."""
    try:
        samples = [(at_s, _samples(page)) for at_s, page in pages]
    except ValueError:
        return None
    if not samples:
        return None
    return ServerMetrics(
        gauges={
            name: points for name, names in GAUGES.items() if (points := _series(samples, names))
        },
        growth=_growth(samples[0][1], samples[-1][1]),
    )


def _samples(page: str) -> dict[tuple[str, str], float]:
    """Return each sample by name and labels, one of several engines added up."""
    families = text_string_to_metric_families(page)
    return {
        (sample.name, _labels(sample.labels)): sample.value
        for family in families
        for sample in family.samples
    }


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={labels[name]}" for name in sorted(labels))


def _series(
    samples: Iterable[tuple[float, dict[tuple[str, str], float]]], names: Sequence[str]
) -> list[tuple[float, float]]:
    points: list[tuple[float, float]] = []
    for at_s, page in samples:
        found = [value for (name, _), value in page.items() if name in names]
        if found:
            points.append((round(at_s, 3), sum(found)))
    return points


def _growth(
    first: dict[tuple[str, str], float], last: dict[tuple[str, str], float]
) -> dict[str, float]:
    """Return what grew; buckets and the client library's own numbers are left out."""
    grown: dict[str, float] = {}
    for (name, labels), value in last.items():
        is_counter = name.endswith(("_total", "_sum", "_count"))
        change = value - first.get((name, labels), 0.0)
        if is_counter and change > 0 and not name.startswith(NOISE):
            key = f"{name}{{{labels}}}" if labels else name
            grown[key] = round(change, 6)
    return grown
