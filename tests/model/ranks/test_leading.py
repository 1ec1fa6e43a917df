"""A batch is handed to all ranks before the own part is computed; a failure ends the group."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from draftwerk.model.batch.batch import Pages
from draftwerk.model.ranks import leading
from draftwerk.model.ranks.leading import LeadingForward

PAGES = Pages(torch.zeros(1, 2, 4, 1, 2), torch.zeros(1, 2, 4, 1, 2))


class Group:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told = list[str]()

    def stops_with(self, give_up: Any) -> None:
        self.told.append("stops with")

    def send(self, data: Any) -> None:
        self.told.append(f"batch {data}")

    def lose(self, why: str) -> None:
        self.told.append(why)


def test_others_get_the_batch_first_and_scratch_is_said_to_be_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leading, "encoded", lambda batch, on_scratch: on_scratch)
    group: Any = Group()

    def stage(batch: Any, pages: Pages) -> torch.Tensor:
        group.told.append("computed")
        return torch.ones(1, 3)

    forward = LeadingForward(_with_give_up(stage), group, PAGES)
    batch: Any = None
    assert forward(batch, PAGES).shape == (1, 3)
    forward(batch, Pages(PAGES.keys.clone(), PAGES.values.clone()))
    assert group.told == ["stops with", "batch False", "computed", "batch True", "computed"]


def test_a_stage_that_fails_loses_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading, "encoded", lambda batch, on_scratch: on_scratch)
    group: Any = Group()

    def stage(batch: Any, pages: Pages) -> torch.Tensor:
        raise ValueError("out of step")

    batch: Any = None
    with pytest.raises(ValueError, match="out of step"):
        LeadingForward(_with_give_up(stage), group, PAGES)(batch, PAGES)
    assert group.told[-1] == "out of step"


def _with_give_up(stage: Any) -> Any:
    stage.give_up = lambda: None
    stage.states = SimpleNamespace()
    return stage
