"""`mmproj` files: the vision tower of a GGUF model, which llama.cpp keeps in a file beside it.

Here is what can be told without torch: which file belongs to a model, and whether it is served.
Names of keys and tensors are llama.cpp's: https://github.com/ggml-org/llama.cpp (gguf-py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from draftwerk.model.checkpoint.files.gguf_header import GgufHeader, read_gguf_header
from draftwerk.model.checkpoint.unsupported import Refused

ARCHITECTURE, NAME = "clip", "general.name"
VISION = f"{ARCHITECTURE}.vision"
WORD = "mmproj"
"""In the names of such files."""
OF_ALL = {
    "clip.has_vision_encoder": True,
    "clip.projector_type": "",
    "clip.use_gelu": True,
    f"{VISION}.image_size": 0,
    f"{VISION}.patch_size": 0,
    f"{VISION}.embedding_length": 0,
    f"{VISION}.feed_forward_length": 0,
    f"{VISION}.projection_dim": 0,
    f"{VISION}.block_count": 0,
    f"{VISION}.attention.head_count": 0,
    f"{VISION}.attention.layer_norm_epsilon": 0.0,
    f"{VISION}.image_mean": [0.0],
    f"{VISION}.image_std": [0.0],
}
"""Keys that every file has, with values of their types."""


class MmprojFamily(NamedTuple):
    """A family of towers that are read from such files."""

    kind: str
    """The class of Transformers."""
    picture: str
    """The token that stands for a row."""
    tokens: tuple[str, ...]
    """Other tokens that its layout needs."""
    keys: dict[str, Any]
    """Keys that its files have besides, with values of their types."""
    optional: dict[str, Any]
    """Keys that some of its files have."""


FAMILIES = {
    "idefics3": MmprojFamily(
        "Idefics3ForConditionalGeneration",
        "<image>",
        ("<fake_token_around_image>", "<global-img>"),
        {f"{VISION}.projector.scale_factor": 0},
        {f"{VISION}.preproc_image_size": 0},
    ),
}
"""By llama.cpp's name of the projector; SmolVLM's is Idefics 3's."""


class Mmproj(NamedTuple):
    """A file that is served."""

    header: GgufHeader
    family: MmprojFamily

    @property
    def path(self) -> Path:
        """The file."""
        return self.header.path

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key of the vision tower."""
        return self.header.fields.get(f"{VISION}.{key}", default)


def beside(paths: Sequence[str]) -> list[Path]:
    """Return the files beside a GGUF model's that may be its tower's."""
    folders = {Path(path).parent: None for path in paths}
    return [
        path
        for folder in folders
        for path in sorted(folder.glob("*.gguf"))
        if WORD in path.name.lower() and str(path) not in paths
    ]


def tower_file(paths: Sequence[str], width: int) -> Mmproj | None:
    """Return the file that has the tower of a GGUF model so wide; None where there is none.

    Raises Refused for one that is not served, and where it is not known which is the model's.
    """
    found = beside(paths)
    if not found:
        return None
    headers = [read_gguf_header(path) for path in found]
    names = {str(header.fields.get(NAME, "")) for header in headers}
    own = str(read_gguf_header(Path(paths[0])).fields.get(NAME, ""))
    fit = [each for each in headers if len(names) == 1 or each.fields.get(NAME) == own]
    if not fit:
        listed = ", ".join(path.name for path in found)
        raise Refused(f"{listed}: none says that it is of {own!r}; leave the one that is")
    # Of several types of one tower: the largest has rounded least.
    chosen = read_mmproj(max(fit, key=lambda each: each.path.stat().st_size).path)
    if (wanted := chosen.get("projection_dim")) != width:
        raise Refused(f"{chosen.path}: it is of a model {wanted} wide, and this one is {width}")
    return chosen


def read_mmproj(path: Path) -> Mmproj:
    """Return a file whose family is served, all of its keys known. Raises Refused."""
    header = read_gguf_header(path)
    fields = header.fields
    if fields.get("general.architecture") != ARCHITECTURE:
        raise Refused(f"{path}: its general.architecture is not {ARCHITECTURE!r}")
    named = [fields[key] for key in sorted(fields) if key.endswith("projector_type")]
    family = FAMILIES.get(str(named[0])) if len(named) == 1 else None
    if family is None:
        families = " and ".join(map(repr, named)) or "of none that it names"
        raise Refused(
            f"{path}: its family is {families}; of such files {', '.join(FAMILIES)} are read"
        )
    known = OF_ALL | family.keys | family.optional
    for key, value in fields.items():
        if not key.startswith(f"{ARCHITECTURE}."):
            continue
        if key not in known or (isinstance(value, bool) and value is not known[key]):
            raise Refused(f"{path}: {key} = {value!r} is not supported")
        _check(path, key, value, known[key])
    for key in OF_ALL | family.keys:
        if key not in fields:
            raise Refused(f"{path}: {key} is missing")
    return Mmproj(header, family)


def _check(path: Path, key: str, value: Any, example: Any) -> None:
    """Refuse a value of another type, and a size that is none."""
    is_list = isinstance(example, list)
    values, kind = (value, type(example[0])) if is_list else ([value], type(example))
    if not isinstance(values, list) or not all(type(each) is kind for each in values):
        raise Refused(f"{path}: {key} is {value!r}, of another type than {kind.__name__}")
    if (kind is int and not 0 < value < 2**20) or (is_list and len(values) != 3):
        raise Refused(f"{path}: {key} is {value!r}")
