"""Whether an engine takes a request; an engine of this process and replicas answer alike."""

from collections.abc import Container

import anyio

from draftwerk.actors.monitoring.drain_rate import DrainRate
from draftwerk.actors.requests.checked_options import check_options
from draftwerk.actors.requests.errors import DrainingError, OverloadedError
from draftwerk.speculative.request import Options


def check_request(
    options: Options,
    request_id: str,
    *,
    live: Container[str],
    has_place: bool,
    closed_to: str,
    drain_rate: DrainRate,
) -> None:
    """Refuse what an engine cannot take now, or ever.

    `closed_to` is why it takes no more; empty while it does. Raises DrainingError, OverloadedError
    where it has no place, OptionsError, and ValueError for an id among the `live` ones.
    """
    if closed_to:
        raise DrainingError(closed_to)
    if not has_place:
        raise OverloadedError(drain_rate.retry_after_ms(anyio.current_time()))
    if request_id in live:
        raise ValueError(f"request id {request_id!r} is in use")
    check_options(options)


def events_max(options: Options, tokens_max: int) -> int:
    """Return the most events that one request can produce. A mailbox of that size never fills, so a
    slow client cannot block the pipeline.

    Each choice has at most `tokens_max` deltas and an ending, and the request one Started.
    """
    return options.choices * (tokens_max + 2)
