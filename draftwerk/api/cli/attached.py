"""What other packages of this repository bring to the `draftwerk` command."""

from collections.abc import Callable
from importlib.metadata import entry_points

from draftwerk.settings.setting_fields import ConfigError

GROUP = "draftwerk.commands"
COMMANDS = {
    "cluster": "replicas on a Ray cluster",
    "loadtest": "measure any OpenAI-compatible server under load",
    "quantise": "write a model's weights in fewer bits",
    "replay": "send a record again; tell texts that changed",
    "verify": "verify texts by their receipts",
}
"""Commands that take their words as they are, and what `--help` says of each."""
FOLDERS = {
    **dict.fromkeys(("cluster", "replicas"), "cluster"),
    **dict.fromkeys(("approximation-trial", "blend-trial", "fingerprint-trial"), "tools"),
    **dict.fromkeys(("loadtest", "quantise", "replay", "verify"), "tools"),
}
"""The folder of a clone in which the package is that brings each."""


def attached(name: str) -> Callable[..., int]:
    """Return what another package brings by a name; raises ConfigError where it does not run."""
    hint = f"in draftwerk's clone, pip install ./{FOLDERS[name]}"
    for point in entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "draftwerk":
                raise
            raise ConfigError(f"{name} needs {error.name}: {hint}") from None
    raise ConfigError(f"{name} comes with another package: {hint}")
