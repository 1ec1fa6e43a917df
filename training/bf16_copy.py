"""A model as Transformers reads it: the weights of a GGUF as safetensors in bf16."""

from contextlib import suppress
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory

from safetensors.torch import save_file

from draftwerk.model.checkpoint.files.listing import LISTING
from draftwerk.model.checkpoint.gguf_card import CARD, GgufCard, read_card
from draftwerk.model.checkpoint.gguf_names import STATES
from draftwerk.model.checkpoint.gguf_tensors import GgufFiles, tensor_values
from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.inventory import STACKED
from draftwerk.model.checkpoint.unsupported import Refused

ENDS = {f"{STACKED[2]}.weight": "experts", STATES["ssm_a"]: "recurrent layers"}
"""Of tensors' names, and what is named and divided otherwise in safetensors."""


def bf16_copy(location: Location) -> Path:
    """Return a model's directory for programs that read safetensors; of a GGUF it is written once.

    Raises Refused.
    """
    card = read_card(location.directory)
    if card is None:
        return location.directory
    target = location.directory.with_name(f"{location.directory.name}-bf16")
    if not target.is_dir():
        with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
            write_copy(card, location.directory, Path(folder) / target.name)
            with suppress(OSError):  # another process was first
                (Path(folder) / target.name).rename(target)
    return target


def write_copy(card: GgufCard, directory: Path, target: Path) -> None:
    """Write the weights of a card beside what else its directory holds. Raises Refused."""
    for end, what in ENDS.items():
        if any(name.endswith(end) for name in card.tensors):
            raise Refused(f"{card.paths[0]}: {what} cannot be written as safetensors")
    copytree(directory, target, ignore=ignore_patterns(CARD, LISTING))
    files = GgufFiles(card)
    values = {name: tensor_values(files, each).bfloat16() for name, each in card.tensors.items()}
    save_file(values, target / "model.safetensors", {"format": "pt"})
