"""Results on their way from the device, on a stream of their own, awaited without polling."""

from functools import cache

import torch
from torch import Tensor


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def to_host(values: Tensor) -> Tensor:
    """Return a copy in host memory once it has arrived; the thread sleeps until then.

    `Tensor.cpu` would wait for everything queued behind the values as well, and spin.
    """
    if values.device.type != "cuda":
        return values
    copies = _stream(values.device)
    copies.wait_stream(torch.cuda.current_stream(values.device))
    arrived = torch.cuda.Event(blocking=True)
    with torch.cuda.stream(copies):
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        values.record_stream(copies)
        arrived.record(copies)
    arrived.synchronize()
    return host
