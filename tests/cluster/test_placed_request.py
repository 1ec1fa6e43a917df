"""A request has another name at each replica that it is placed at."""

from types import SimpleNamespace
from typing import Any

from draftwerk_cluster.placed_request import PlacedRequest


def test_each_attempt_has_a_name_of_its_own() -> None:
    entry: Any = SimpleNamespace(submit=SimpleNamespace(request_id="r"))
    placed = PlacedRequest(entry, "messages", (1, 2))
    names = list[str]()
    for placed.attempts in range(3):
        names.append(placed.wire_id)
    assert names == ["r~0", "r~1", "r~2"]
