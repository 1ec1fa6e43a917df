"""`draftwerk pull`, `models` and `rm`: models of a hub, as files on this machine."""

from datetime import datetime

from draftwerk.api.cli.progress_line import ProgressLine
from draftwerk.model.checkpoint.family_table import family_rows
from draftwerk.model.checkpoint.files.byte_progress import size_text
from draftwerk.model.checkpoint.hub import DEFAULT_NAME, embedded
from draftwerk.model.checkpoint.hub_files import fetch
from draftwerk.model.checkpoint.hub_name import hub_name
from draftwerk.model.checkpoint.pulled import PulledModel, pulled_models, remove_pulled
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.settings.setting_fields import ConfigError

INTERRUPTED = 130
"""The exit code of a program that a signal of the keyboard has stopped."""


def pull(text: str) -> int:
    """Fetch a model, or what is new of it; returns the exit code. Raises ConfigError."""
    name = hub_name(text)
    if name is None:
        raise ConfigError(
            f"{text}: not a hub name; org/name, org/name:Q4_K_M or org/name/file.gguf"
        )
    line = ProgressLine()
    try:
        line.show(f"asking the hub for {name}")
        path = fetch(name, line.show)
    except Refused as refused:
        raise ConfigError(str(refused)) from None
    except KeyboardInterrupt:
        print(f"stopped; what came is kept: draftwerk pull {name} goes on from there")
        return INTERRUPTED
    own = f"{name.repo}:TYPE, which it is read beside" if name.is_tower else name
    print(f"{name} is in {path}\nserve it: draftwerk serve {own}")
    return 0


def list_models() -> int:
    """Print the models that are here; returns the exit code."""
    rows = [_row(model) for model in pulled_models()]
    built_in = _built_in()
    for name, size, used in [*built_in, *rows]:
        print(f"{size:>8}  {used:<12}  {name}")
    if not rows:
        print("no model was pulled: draftwerk pull org/name-GGUF:Q4_K_M")
    return 0


def list_families() -> int:
    """Print the families that are served, a class in each line; returns the exit code.

    Each line has the files, the devices, what drafts, and how the layers differ from Llama's.
    """
    rows = [(row.family, row.files, row.devices, row.drafts, row.layers) for row in family_rows()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    print("others: --backend transformers, of safetensors, on a CPU, slower")
    return 0


def remove(names: list[str]) -> int:
    """Remove pulled models; returns the exit code. Raises ConfigError for one that is not there."""
    for name in names:
        try:
            freed = remove_pulled(name)
        except Refused as refused:
            raise ConfigError(str(refused)) from None
        print(f"{name}: {size_text(freed)} freed")
    return 0


def day_text(seconds: float) -> str:
    """Return a day as it is written in lists."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d")


def _row(model: PulledModel) -> tuple[str, str, str]:
    note = "" if model.is_declared else "  (--backend transformers, slower)"
    note = note if model.is_whole else "  (a pull that ended midway)"
    return model.name + note, size_text(model.size), day_text(model.used)


def _built_in() -> list[tuple[str, str, str]]:
    try:
        return [
            (f"{DEFAULT_NAME} (without a MODEL)", size_text(embedded().stat().st_size), "built in")
        ]
    except Refused:
        return []
