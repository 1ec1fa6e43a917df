"""Why the engine does not take a request."""


class OverloadedError(Exception):
    """The engine holds as many requests as it may; try again after `retry_after_ms`."""

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(f"the server is full; retry after {retry_after_ms} ms")
        self.retry_after_ms = retry_after_ms


class DrainingError(Exception):
    """The engine is shutting down and takes no new requests."""
