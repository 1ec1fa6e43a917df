"""Exceptions of the Python API, besides ConfigError for settings."""


class RequestError(ValueError):
    """A request that cannot be served as it is; the message has the reason."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field
        """The parameter to blame: `temperature`, `messages[0].role`; empty where there is none."""


class RequestFailedError(RuntimeError):
    """A request that the engine took and could not finish."""


class ClosedError(RuntimeError):
    """The LLM was closed, before the request or while it ran, or was never started."""
