"""What crosses to a device and back: queued one way, awaited without polling the other."""

from functools import cache

import torch
from torch import Tensor


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return a copy of host values on the device, behind all that is queued there.

    Unlike that of pageable memory, this copy is not waited for.
    """
    if device.type != "cuda" or not values.numel():
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def to_host(values: Tensor) -> Tensor:
    """Return a copy in host memory once it has arrived; the thread sleeps until then.

    It travels on a stream of its own.

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
