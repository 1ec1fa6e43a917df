"""`draftwerk models --drafters MODEL`: what is here and drafts for a model, by its shape."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hf_config import model_config, read_supported
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.mtp_config import MTP
from draftwerk.model.checkpoint.pulled import pulled_paths
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.drafters.drafter_table import KINDS, kind_of, planned
from draftwerk.settings.setting_fields import ConfigError

ANY_FOLDER = KINDS[-1]
"""The kind of folders that none of the others knows."""


class FoundDrafter(NamedTuple):
    """A drafter that is here."""

    wanted: str
    """The value of `--draft-head` that names it."""
    words: str
    """Its kind, or why it does not fit."""
    fits: bool


def list_drafters(model: str) -> int:
    """Print the drafters that fit a model, and why others do not; returns the exit code.

    Raises ConfigError for a model that is not here, or is not served.
    """
    try:
        name, directory = locate(model)
        target = model_config(read_supported(directory), {})
    except Refused as refused:
        raise ConfigError(str(refused)) from None
    found = [*drafters(directory, target, pulled_paths())]
    for wanted, words, _ in found:
        print(f"--draft-head {wanted}: {words}")
    if not found:
        print(f"no drafter of layers is here for {name}")
    return 0


def drafters(directory: Path, target: ModelConfig, paths: Iterable[Path]) -> Iterator[FoundDrafter]:
    """Yield what `--draft-head` may name for the model in a folder, and what it is.

    They are the model's own layer, what lies in its folder, and those of `paths`. A drafter of
    another model comes with what does not fit.
    """
    beside = [each for each in sorted(directory.iterdir()) if (each / "config.json").is_file()]
    for wanted in (MTP, *map(str, (*beside, *paths))):
        kind = kind_of(wanted)
        if kind is None or Path(wanted) == directory:
            continue
        try:
            yield FoundDrafter(wanted, planned(kind, wanted, directory, target).name, fits=True)
        except Refused as refused:
            if wanted != MTP and kind is not ANY_FOLDER:
                words = str(refused).removeprefix(f"draft head {wanted}: ")
                yield FoundDrafter(wanted, words, fits=False)
