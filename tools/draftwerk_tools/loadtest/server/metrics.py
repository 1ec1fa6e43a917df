"""A page of metrics in Prometheus' text format."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:  # reports read pages without an HTTP client
    import aiohttp

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The samples of one page, by name and sorted labels."""

    samples: dict[tuple[str, Labels], float]

    @classmethod
    def read(cls, text: str) -> "MetricsPage":
        """Parse a page. Raises ValueError."""
        return cls(
            {
                (sample.name, tuple(sorted(sample.labels.items()))): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
        )

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of a metric over all label sets that have these. Raises KeyError."""
        found = [
            value
            for (each, having), value in self.samples.items()
            if each == name and labels.items() <= dict(having).items()
        ]
        if not found:
            raise KeyError(f"{name} {labels}" if labels else name)
        return sum(found)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return a metric's values by one label."""
        return {
            value: sample
            for (each, having), sample in self.samples.items()
            if each == name
            for key, value in having
            if key == label
        }


async def fetch_metrics(session: "aiohttp.ClientSession", url: str) -> MetricsPage:
    """Return what the server's `/metrics` holds now."""
    async with session.get(f"{url}/metrics") as response:
        return MetricsPage.read(await response.text())
