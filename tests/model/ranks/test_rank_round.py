"""A batch as another rank gets it."""

from dataclasses import fields, replace

import msgspec
import pytest
import torch

from draftwerk.model.batch.batch import logit_count_of
from draftwerk.model.ranks.rank_round import RankRound, batch_of, encoded
from tests.model.native.models import part, round_of


@pytest.mark.parametrize("both_ways", [False, True])
def test_every_rank_has_all_of_a_batch(both_ways: bool) -> None:
    batch = round_of([part([3, 1, 4]), part([1, 5])])
    count = logit_count_of(batch)  # states are of models that have no ranks
    batch = replace(batch, both_ways=both_ways, logit_count=count, states=())
    payload = encoded(batch, on_scratch=False)
    other = batch_of(msgspec.msgpack.decode(payload, type=RankRound))
    for field in fields(batch):
        here, there = (getattr(each, field.name) for each in (batch, other))
        same = torch.equal(here, there) if isinstance(here, torch.Tensor) else here == there
        assert same, field.name


def test_what_is_not_handed_on_is_refused() -> None:
    batch = replace(round_of([part([3, 1, 4])]), layers=1)
    with pytest.raises(AssertionError, match="layers is not handed on"):
        encoded(batch, on_scratch=False)
