"""The Grafana dashboard under docs/ draws what `/metrics` has, and its panels do not overlap."""

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.api.conftest import Served

DASHBOARD = json.loads((Path(__file__).parents[3] / "docs/grafana.json").read_text("utf-8"))
NAME = re.compile(r"\b((?:vllm:|draftwerk_|process_)[a-z0-9_]+)(\{[^}]*\})?")
LABELS = re.compile(r"\b(?:by|ignoring) ?\(([a-z_, ]+)\)")


def queries() -> list[str]:
    """Return every PromQL expression of the dashboard."""
    panels: list[Any] = DASHBOARD["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [*found, *(each["query"]["query"] for each in variables() if each["type"] == "query")]


def variables() -> list[Any]:
    return DASHBOARD["templating"]["list"]


async def samples(served: Served) -> dict[str, set[str]]:
    """Return the labels of every sample's name."""
    await served.chat(seed=1, max_tokens=5)
    text = (await served.http.get("/metrics")).text
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_every_metric_and_label_that_it_queries_is_there(served: Served) -> None:
    known = await samples(served)
    named = [(query, *found) for query in queries() for found in NAME.findall(query)]
    assert len(named) >= len(queries()) > 30
    for query, name, chosen in named:
        assert name in known, query
        for label in re.findall(r"(\w+)=~?\"", chosen):
            assert label in known[name], query
    for query in queries():
        labels = {each for found in LABELS.findall(query) for each in re.split(r", ?", found)}
        for label in labels:
            assert any(label in known[name] for name, _ in NAME.findall(query)), query


def test_counters_are_drawn_as_rates_and_gauges_as_they_are() -> None:
    for query in queries():
        for name, _ in NAME.findall(query):
            counts = name.endswith(("_total", "_bucket", "_sum", "_count"))
            drawn = re.search(rf"(rate|increase)\({re.escape(name)}", query)
            assert counts == bool(drawn), query


def test_panels_fill_their_rows_without_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len(taken) == 24 * len({y for _, y in taken})
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
