"""On a CPU nothing has to cross."""

import torch

from draftwerk.model.reference.transfer import to_device, to_host


def test_host_values_stay_where_they_are() -> None:
    values = torch.arange(4)
    assert to_host(values) is values
    assert torch.equal(to_device(values, torch.device("cpu")), values)
    assert to_device(torch.empty(0), torch.device("meta")).device.type == "meta"
