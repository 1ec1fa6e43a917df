"""Names of models on a hub, and which of a repository's files each stands for.

    org/name                     the safetensors, or a GGUF where there are none
    org/name:Q4_K_M              the GGUF of that type
    org/name/folder/file.gguf    that file, and the others that it is a part with
    org/name@revision:Q4_K_M     of a branch, a tag or a commit

A hub's address may stand before each (https://huggingface.co/, hf.co/, hf://), and its `blob/main`
and `resolve/main` between the name and a file.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import NamedTuple

from draftwerk.model.checkpoint.files.shard_names import SHARD_NAME
from draftwerk.model.checkpoint.unsupported import Refused

PATTERNS = ("*.safetensors", "*.json", "tokenizer*", "*.tiktoken", "*.jinja")
"""All that is ever fetched from a hub beside GGUF files: no pickles, no code."""
PREFIX = re.compile(r"^(https?://[^/]+/|hf\.co/|huggingface\.co/|hf://)")
NAME = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?"
    r"(/(blob|resolve)/(?P<branch>[^/]+))?(/(?P<file>.+\.gguf)(\?.*)?)?(:(?P<tag>[\w.-]+))?"
)
DEFAULT_TAGS = ("Q4_K_M", "Q4_0")
"""The tags that a name without one stands for, where there are several types."""
LATEST = "latest"
"""As Ollama calls the tag of a name without one."""
TOWER = "mmproj"
NO_MODEL = (TOWER, "imatrix")
"""The beginnings of the names of GGUF files that are no language model."""


class HubName(NamedTuple):
    """The file that is wanted of a repository."""

    repo: str
    revision: str = "main"
    file: str = ""
    tag: str = ""

    @property
    def is_tower(self) -> bool:
        """Whether the file is what reads pictures for the models that it lies beside."""
        return PurePosixPath(self.file).name.startswith(TOWER)

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        file = f"/{self.file}" if self.file else ""
        return f"{self.repo}{revision}{file}{':' + self.tag if self.tag else ''}"


def hub_name(text: str) -> HubName | None:
    """Return what a name stands for; None for what no hub has."""
    found = NAME.fullmatch(PREFIX.sub("", text.rstrip("/")))
    if found is None or text.startswith((".", "/", "~")):
        return None
    tag = found["tag"] or ""
    revision = found["revision"] or found["branch"] or "main"
    return HubName(found["repo"], revision, found["file"] or "", "" if tag == LATEST else tag)


def wanted_files(name: HubName, held: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a repository that make the model. Raises Refused where there is none."""
    files = sorted(held)
    models = gguf_models(files)
    if name.is_tower and name.file in files:
        return (name.file,)
    if name.file:
        found = next((parts for parts in models.values() if name.file in parts), None)
        if found is None:
            raise Refused(f"{name}: the repository has no such file; {_listed(models)}")
        return found
    if not name.tag and any(fnmatch(file, "*.safetensors") for file in files):
        return tuple(file for file in files if any(fnmatch(file, each) for each in PATTERNS))
    return models[_chosen(name, models)]


def is_gguf(files: tuple[str, ...]) -> bool:
    return bool(files) and files[0].endswith(".gguf")


def gguf_models(files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the parts of each GGUF model by its name, folder included."""
    found: dict[str, list[str]] = {}
    for file in files:
        path = PurePosixPath(file)
        if path.suffix == ".gguf" and not path.name.startswith(NO_MODEL):
            part = SHARD_NAME.fullmatch(path.name)
            stem = path.stem if part is None else part["stem"]
            found.setdefault(str(path.with_name(stem)), []).append(file)
    return {name: tuple(parts) for name, parts in found.items()}


def _chosen(name: HubName, models: dict[str, tuple[str, ...]]) -> str:
    """Return the one that a tag, or its lack, stands for."""
    if not name.tag and len(models) == 1:
        return next(iter(models))
    for tag in (name.tag,) if name.tag else DEFAULT_TAGS:
        found = [each for each in models if _has_tag(each, tag)]
        if len(found) == 1:
            return found[0]
        if found:
            raise Refused(f"{name}: {tag} may be {', '.join(found)}; name the file")
    if not models:
        raise Refused(f"{name}: the repository has neither safetensors nor a GGUF file")
    raise Refused(f"{name}: which GGUF? {_listed(models)}")


def _has_tag(model: str, tag: str) -> bool:
    """Whether a file's name has a tag as a word of its own, in any case."""
    return re.search(rf"(^|[-._/]){re.escape(tag)}([-._/]|$)", model, re.IGNORECASE) is not None


def _listed(models: dict[str, tuple[str, ...]]) -> str:
    return f"it has {', '.join(models)}" if models else "it has no GGUF file"
