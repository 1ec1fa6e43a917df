"""Why a request has no model."""


class MustWaitError(Exception):
    """A model that is not to be had now; `retry_s` is the time until it probably is."""

    def __init__(self, reason: str, retry_s: float) -> None:
        super().__init__(reason)
        self.reason, self.retry_s = reason, retry_s


class LoadError(Exception):
    """A model that could not be loaded; the message has the reason."""


class ShelfClosedError(Exception):
    """No model is loaded any more: the server is about to end."""


def reason_of(error: Exception) -> str:
    """Return the words of an error; of a group, those of its first."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error) or repr(error)
