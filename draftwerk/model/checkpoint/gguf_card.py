"""A GGUF's entry in the cache folder: config, tokenizer, and where its tensors are.

    ~/.cache/draftwerk/NAME-8-IDENTITY/   config.json, tokenizer.json, ..., gguf.json

The weights stay in the file. The identity is the files' paths and status, so that a file that was
written since has another folder; it is checked again when all is read.
"""

from collections import Counter
from hashlib import sha256
from math import prod
from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.files.content import DIGITS, Hashed
from draftwerk.model.checkpoint.unsupported import Refused

CARD = "gguf.json"
WHOLE = ("F32", "F16", "BF16", "F64")
"""Types of numbers that are not quantised."""


class CardTensor(msgspec.Struct, frozen=True, array_like=True):
    """Where a tensor is, under the name that Transformers has for it."""

    file: int
    """Which of the files."""
    kind: str
    """GGUF's name of its type."""
    shape: tuple[int, ...]
    begin: int
    size: int
    """Bytes."""
    heads: int = 0
    """The heads of a query or key projection whose rows are in the order of neighbours that turn;
    else 0."""
    rotary_size: int = 0
    """The number of each head's rows that turn."""


class GgufCard(msgspec.Struct, frozen=True):
    """A GGUF model, for those who read its tensors."""

    name: str
    file_type: str
    """The file's name for its mix of types, such as Q4_K_M; empty where it does not say."""
    paths: tuple[str, ...]
    statuses: tuple[Hashed, ...]
    tensors: dict[str, CardTensor]
    method: str = ""
    """By what `draftwerk quantise` rounded it, where not each number by itself."""

    @property
    def kinds(self) -> dict[str, int]:
        """Bytes of the matrices in each type, the most first."""
        found = Counter[str]()
        for tensor in self.tensors.values():
            if len(tensor.shape) > 1:
                found[tensor.kind] += tensor.size
        return dict(found.most_common())

    @property
    def is_quantised(self) -> bool:
        """Whether most matrices have fewer bits than bf16."""
        kinds = self.kinds
        return 2 * sum(kinds.get(kind, 0) for kind in WHOLE) < sum(kinds.values())

    @property
    def elements(self) -> int:
        return sum(prod(tensor.shape) for tensor in self.tensors.values())

    def check_unchanged(self) -> None:
        """Raise Refused if a file is no longer the one that was looked at."""
        for path, status in zip(self.paths, self.statuses, strict=True):
            try:
                is_same = Hashed.of(Path(path)) == status
            except OSError as error:
                raise Refused(f"{path}: {error.strerror}") from error
            if not is_same:
                raise Refused(f"{path}: it was written while it was read; start again")


def identity(paths: tuple[Path, ...]) -> str:
    """Return a name that files keep while they are not written, moved or replaced."""
    words = [msgspec.json.encode([str(path), Hashed.of(path)]) for path in paths]
    return sha256(b"\n".join(words)).hexdigest()[:DIGITS]


def read_card(directory: Path) -> GgufCard | None:
    """Return the card in a folder; None where there is none, as beside safetensors."""
    try:
        data = (directory / CARD).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=GgufCard)
    except msgspec.MsgspecError as error:
        raise Refused(f"{directory / CARD}: {error}; remove the folder") from error


def write_card(card: GgufCard, directory: Path) -> None:
    (directory / CARD).write_bytes(msgspec.json.encode(card))
