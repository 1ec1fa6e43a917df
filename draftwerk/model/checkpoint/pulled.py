"""Models that were fetched from a hub: listed by the names they are served by, and removed."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import CachedRepoInfo, constants, scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from draftwerk.model.checkpoint.architectures import is_declared
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.hub_files import INCOMPLETE, repository_folder
from draftwerk.model.checkpoint.hub_name import HubName, gguf_models, hub_name, wanted_files
from draftwerk.model.checkpoint.unsupported import Refused


class PulledModel(NamedTuple):
    """A model in the hub's cache folder."""

    name: str
    size: int
    """Bytes on disk."""
    used: float
    """When its files were read last, in seconds since 1970."""
    is_whole: bool = True
    is_declared: bool = True
    """Whether its architecture is one of the table."""


class _Held(NamedTuple):
    """A file of a repository: its name there, where it is, and what it is a link to."""

    name: str
    path: Path
    blob: Path


def pulled_models() -> list[PulledModel]:
    """Return all that could be served, and what was fetched in part."""
    found: list[PulledModel] = []
    for repository in sorted(_repositories(), key=lambda each: each.repo_id):
        held = _held(repository)
        for parts in gguf_models(sorted({each.name for each in held})).values():
            blobs = {each.blob for each in held if each.name in parts}
            found.append(_model(f"{repository.repo_id}/{parts[0]}", blobs))
        plain = {each.blob for each in held if not each.name.endswith(".gguf")}
        if any(each.name.endswith(".safetensors") for each in held):
            model = _model(repository.repo_id, plain)
            found.append(model._replace(is_declared=_is_declared(held)))
    return found + _partial()


def pulled_paths() -> list[Path]:
    """Return the folders of safetensors, and the GGUF files, that were pulled."""
    held = [each.path for repository in _repositories() for each in _held(repository)]
    folders = {each.parent for each in held if each.suffix == ".safetensors"}
    return sorted({*folders, *(each for each in held if each.suffix == ".gguf")})


def _is_declared(held: Iterable[_Held]) -> bool:
    """Whether a repository's `config.json`, as far as it is readable, has a declared class."""
    for each in held:
        if each.name == "config.json":
            with suppress(Refused):
                return is_declared(read_json(each.path) or {})
    return True


def _partial() -> list[PulledModel]:
    """Return the repositories of which something was fetched in part."""
    blobs: dict[str, list[Path]] = {}
    for path in sorted(Path(constants.HF_HUB_CACHE).glob(f"models--*/blobs/*{INCOMPLETE}")):
        blobs.setdefault(path.parts[-3], []).append(path)
    return [
        _model(folder.removeprefix("models--").replace("--", "/"), paths)._replace(is_whole=False)
        for folder, paths in blobs.items()
    ]


def remove_pulled(text: str) -> int:
    """Remove a model and return the bytes that this has freed; a bare name is all of a repository.

    Raises Refused where there is no such model.
    """
    name = hub_name(text)
    folder = None if name is None else repository_folder(name.repo)
    if name is None or folder is None or not folder.is_dir():
        raise Refused(f"{text}: no such model was pulled; `draftwerk models` lists them")
    if not name.file and not name.tag:
        freed = sum(path.stat().st_size for path in (folder / "blobs").glob("*"))
        shutil.rmtree(folder)
        return freed
    repository = next(each for each in _repositories() if each.repo_path == folder)
    return _remove_files(name, _held(repository))


def _remove_files(name: HubName, held: list[_Held]) -> int:
    """Remove the links of a GGUF's files, and the blobs that nothing else links to."""
    gone = set(wanted_files(name, {each.name for each in held}))
    kept = {each.blob for each in held if each.name not in gone}
    blobs = {each.blob for each in held if each.name in gone} - kept
    freed = sum(path.stat().st_size for path in blobs)
    for path in [*(each.path for each in held if each.name in gone), *blobs]:
        path.unlink(missing_ok=True)
    return freed


def _repositories() -> list[CachedRepoInfo]:
    try:
        scanned = scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return []
    return [each for each in scanned.repos if each.repo_type == "model"]


def _held(repository: CachedRepoInfo) -> list[_Held]:
    return [
        _Held(
            str(file.file_path.relative_to(revision.snapshot_path)), file.file_path, file.blob_path
        )
        for revision in repository.revisions
        for file in revision.files
    ]


def _model(name: str, blobs: Iterable[Path]) -> PulledModel:
    size, used = 0, 0.0
    for blob in blobs:
        with suppress(OSError):  # removed meanwhile
            status = blob.stat()
            size, used = size + status.st_size, max(used, status.st_atime, status.st_mtime)
    return PulledModel(name, size, used)
