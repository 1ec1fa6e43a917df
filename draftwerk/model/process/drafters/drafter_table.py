"""The table of draft heads that are layers, read without torch: a new one is a file and a row."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from draftwerk.model.checkpoint.assistant_config import is_assistant, plan_assistant
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.dflash_config import is_dflash, plan_dflash
from draftwerk.model.checkpoint.drafter_plan import DrafterPlan
from draftwerk.model.checkpoint.eagle_config import plan_eagle
from draftwerk.model.checkpoint.hf_config import model_config, read_supported
from draftwerk.model.checkpoint.mtp_config import is_mtp, plan_mtp
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.draft_head.head_memory import plan_bytes

WITHOUT_FILE = ("auto", "off")
"""The values that name no head: those that come with the server take a few megabytes."""
ROOM = __name__.rpartition(".")[0]


class DrafterKind(NamedTuple):
    """A kind of draft head."""

    serves: Callable[[Path], bool]
    """Whether `--draft-head` names one."""
    plan: Callable[[Path, Path, ModelConfig], DrafterPlan]
    """Returns what one takes beside the model in a folder. Raises Refused, naming what is amiss."""
    module: str
    """The file whose `bind(target, folder)` returns one, ready to draft. It imports torch."""


KINDS = [
    DrafterKind(is_mtp, plan_mtp, f"{ROOM}.mtp_heads"),
    DrafterKind(is_assistant, plan_assistant, f"{ROOM}.assistant_heads"),
    DrafterKind(is_dflash, plan_dflash, f"{ROOM}.dflash_heads"),
    DrafterKind(Path.is_dir, plan_eagle, f"{ROOM}.eagle_heads"),
]
"""The first that serves is taken."""


def kind_of(wanted: str) -> DrafterKind | None:
    """Return the kind that `--draft-head` names; None of none, or of a head of the server's own."""
    kinds = [] if wanted in WITHOUT_FILE else KINDS
    return next((kind for kind in kinds if kind.serves(Path(wanted))), None)


def planned(kind: DrafterKind, wanted: str, directory: Path, target: ModelConfig) -> DrafterPlan:
    """Return what a head takes beside a target. Raises Refused, naming the head."""
    try:
        return kind.plan(Path(wanted), directory, target)
    except Refused as error:
        raise Refused(f"draft head {wanted}: {error}") from None


def draft_head_bytes(wanted: str, directory: Path, dtype: str) -> int:
    """Return the most that a head takes, for the model in a folder, served in this format.

    `wanted` is as in `--draft-head`. Raises Refused for what is no head, or another model's.
    """
    if wanted in WITHOUT_FILE:
        return 0
    if kind := kind_of(wanted):
        target = model_config(read_supported(directory), {})
        return plan_bytes(planned(kind, wanted, directory, target), target, dtype)
    if wanted.endswith(".gguf"):
        raise Refused(f"draft head {wanted}: of drafters in a GGUF, DFlash alone is read")
    return 2 * Path(wanted).stat().st_size
