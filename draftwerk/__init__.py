"""An LLM server whose requests are all decoded speculatively and exactly: one seed, one text.

`LLM` and `AsyncLLM` run its engine inside a Python program. Nothing heavy is imported before one of
the names below is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from draftwerk.version import __version__

if TYPE_CHECKING:
    from draftwerk.actors.messages import Speculation
    from draftwerk.api.core.config import ConfigError
    from draftwerk.async_llm import AsyncLLM
    from draftwerk.errors import ClosedError, RequestError, RequestFailedError
    from draftwerk.llm import LLM
    from draftwerk.outputs import CompletionOutput, OutputDelta, RequestOutput
    from draftwerk.sampling_params import SamplingParams

__all__ = [
    "LLM",
    "AsyncLLM",
    "ClosedError",
    "CompletionOutput",
    "ConfigError",
    "OutputDelta",
    "RequestError",
    "RequestFailedError",
    "RequestOutput",
    "SamplingParams",
    "Speculation",
    "__version__",
]

_MODULES = {
    "LLM": "llm",
    "AsyncLLM": "async_llm",
    "ClosedError": "errors",
    "CompletionOutput": "outputs",
    "ConfigError": "api.core.config",
    "OutputDelta": "outputs",
    "RequestError": "errors",
    "RequestFailedError": "errors",
    "RequestOutput": "outputs",
    "SamplingParams": "sampling_params",
    "Speculation": "actors.messages",
}
"""Where each public name is defined."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
