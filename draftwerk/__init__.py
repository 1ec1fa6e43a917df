"""An LLM server whose requests are all decoded speculatively and exactly: one seed, one text."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("draftwerk")
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
