"""An LLM server whose requests are all decoded speculatively and exactly: one seed, one text.

`LLM` and `AsyncLLM` run its engine inside a Python program. Nothing heavy is imported before one of
the names below is used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from draftwerk.machine.version import __version__
    from draftwerk.python_api.async_llm import AsyncLLM
    from draftwerk.python_api.errors import ClosedError, RequestError, RequestFailedError
    from draftwerk.python_api.llm import LLM
    from draftwerk.python_api.outputs import CompletionOutput, OutputDelta, RequestOutput, TextScore
    from draftwerk.python_api.sampling_params import SamplingParams
    from draftwerk.settings.setting_fields import ConfigError
    from draftwerk.speculative.request import Speculation

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
    "TextScore",
    "__version__",
]

_MODULES = {
    "LLM": "python_api.llm",
    "AsyncLLM": "python_api.async_llm",
    "ClosedError": "python_api.errors",
    "CompletionOutput": "python_api.outputs",
    "ConfigError": "settings.setting_fields",
    "OutputDelta": "python_api.outputs",
    "RequestError": "python_api.errors",
    "RequestFailedError": "python_api.errors",
    "RequestOutput": "python_api.outputs",
    "SamplingParams": "python_api.sampling_params",
    "Speculation": "speculative.request",
    "TextScore": "python_api.outputs",
    "__version__": "machine.version",
}
"""Where each public name is defined."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import (
        import_module,
    )  # here: an interrupt of a command's start is to find nothing

    found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
