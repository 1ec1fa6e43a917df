"""Files of a hub, fetched into its own cache folder: resumed, checked, and never half there.

    listing (names, sizes, digests) ── HF_HUB_CACHE/models--org--name/blobs/DIGEST.incomplete
                                          │ all bytes there, and of that digest
                                          v
                          blobs/DIGEST <── snapshots/COMMIT/name     (links made by huggingface_hub)

A process that ends midway leaves `.incomplete` files, with which the next one goes on. The folder
is that of huggingface_hub, so that what other programs have fetched is found, and the reverse.
"""

import logging
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha1, sha256
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import HfApi, constants, hf_hub_url, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import (
    WeakFileLock,
    are_progress_bars_disabled,
    build_hf_headers,
    disable_progress_bars,
    enable_progress_bars,
)
from huggingface_hub.utils import (
    logging as hub_logging,
)

from draftwerk.model.checkpoint.files.byte_progress import ByteProgress, size_text
from draftwerk.model.checkpoint.hub_name import HubName, is_gguf, wanted_files
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.protocol.frames import OnProgress

CHUNK = 2**20
INCOMPLETE = ".incomplete"
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class HubFile(NamedTuple):
    """A file of a repository."""

    name: str
    size: int
    digest: str
    """sha256 of large files; of others sha1 as git has it, over a header and the bytes."""


def endpoint() -> str:
    """Return the hub's address."""
    return os.environ.get("HF_ENDPOINT") or constants.ENDPOINT


def repository_folder(repo: str) -> Path:
    """Return where a repository's files are kept."""
    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model")


def fetch(name: HubName, progress: OnProgress) -> Path:
    """Return a model's directory, or the first of its GGUF files, as the hub has it now.

    Raises Refused in one sentence, whatever keeps the hub's files from here.
    """
    with _sentences(name), _without_bars():
        held = {file.name: file for file in _listing(name)}
        files = wanted_files(name, held)
        folder = repository_folder(name.repo) / "blobs"
        missing = [held[each] for each in files if not (folder / held[each].digest).is_file()]
        if missing:
            _fetch_all(name, missing, folder, progress)
        directory = Path(_linked(name, files))
    return directory / files[0] if is_gguf(files) else directory


def find_local(name: HubName) -> Path | None:
    """Return what `fetch` has returned before, without asking the hub; None where it is not whole.

    Of files that were fetched one by one, all that the model needs must be there.
    """
    folder = repository_folder(name.repo)
    try:
        commit = (folder / "refs" / name.revision).read_text().strip()
    except OSError:
        commit = name.revision
    snapshot = folder / "snapshots" / commit
    held = [str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()]
    try:
        files = wanted_files(name, held)
        if is_gguf(files):
            return snapshot / files[0]
        return Path(_linked(name, files, local=True))
    except (Refused, LocalEntryNotFoundError):
        return None


def _listing(name: HubName) -> list[HubFile]:
    """Return a repository's files as the hub lists them."""
    api = HfApi(endpoint=endpoint())
    found = api.list_repo_tree(name.repo, recursive=True, revision=name.revision)
    files = [
        HubFile(each.path, each.size, each.blob_id if each.lfs is None else each.lfs.sha256)
        for each in found
        if isinstance(each, RepoFile)
    ]
    for file in files:
        if not DIGEST.fullmatch(file.digest):  # it becomes a file's name
            raise Refused(f"{name}: the hub has no digest for {file.name}")
    return files


def _linked(name: HubName, files: tuple[str, ...], local: bool = False) -> str:
    """Return the folder in which files have their names; those that are blobs are linked."""
    return snapshot_download(
        name.repo,
        revision=name.revision,
        allow_patterns=list(files),
        endpoint=endpoint(),
        cache_dir=constants.HF_HUB_CACHE,
        local_files_only=local,
    )


def _fetch_all(name: HubName, files: list[HubFile], folder: Path, progress: OnProgress) -> None:
    """Fetch blobs, the smallest first: what is amiss with a model shows early."""
    locks = Path(constants.HF_HUB_CACHE) / ".locks" / folder.parent.name
    for each in (folder, locks):
        each.mkdir(parents=True, exist_ok=True)
    total = sum(file.size for file in files)
    here = sum(_size(folder / (file.digest + INCOMPLETE)) for file in files)
    free = shutil.disk_usage(folder).free
    if total - here > free:
        raise Refused(
            f"{name}: it takes {size_text(total - here)} more in {folder}, and "
            f"{size_text(free)} are free; HF_HUB_CACHE names another place"
        )
    meter = ByteProgress(progress, f"pulling {name}", total)
    for file in sorted(files, key=lambda each: each.size):
        with WeakFileLock(locks / f"{file.digest}.lock"):
            if not (folder / file.digest).is_file():  # another process may have been first
                _fetch_blob(name, file, folder, meter)


def _fetch_blob(name: HubName, file: HubFile, folder: Path, meter: ByteProgress) -> None:
    """Fetch what is missing of a file, and keep it if it is what the hub says it is."""
    part = folder / (file.digest + INCOMPLETE)
    if _size(part) > file.size:
        part.unlink()
    before, resumed = meter.done, _size(part)
    with _CountedFile(part, meter, before) as target:
        target.seek(resumed)
        meter.reach(before + resumed)
        http_get(
            hf_hub_url(name.repo, file.name, revision=name.revision, endpoint=endpoint()),
            target,
            resume_size=resumed,
            headers={**build_hf_headers(), "accept-encoding": "identity"},
            expected_size=file.size,
        )
    meter.reach(before + file.size)
    if _digest(part, file) != file.digest:
        part.unlink()
        raise Refused(
            f"{name}: what came for {file.name} is not what the hub names: its digest is not "
            f"{file.digest[:12]}…; it was removed, try again"
        )
    part.replace(folder / file.digest)


class _CountedFile(FileIO):
    """A file that tells of its size."""

    def __init__(self, path: Path, meter: ByteProgress, before: int) -> None:
        super().__init__(path, "r+" if path.exists() else "w+")
        self._meter = meter
        self._before = before

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Write all of it. Raises OSError where the disk is full."""
        left = memoryview(data)
        while left:
            left = left[super().write(left) :]
        self._meter.reach(self._before + self.tell())
        return len(data)


def _digest(path: Path, file: HubFile) -> str:
    digest = sha256() if len(file.digest) == 64 else sha1(f"blob {file.size}\0".encode())
    with path.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


@contextmanager
def _without_bars() -> Generator[None]:
    """Keep huggingface_hub from drawing bars of its own, and from warning of each new attempt."""
    before, verbosity = are_progress_bars_disabled(), hub_logging.get_verbosity()
    disable_progress_bars()
    hub_logging.set_verbosity_error()
    for each in ("httpx", "httpx2"):  # one line a request
        logging.getLogger(each).setLevel(logging.WARNING)
    try:
        yield
    finally:
        hub_logging.set_verbosity(verbosity)
        if not before:
            enable_progress_bars()


@contextmanager
def _sentences(name: HubName) -> Generator[None]:
    """Turn what a hub or a network may raise into one sentence. Raises Refused."""
    hub = endpoint()
    try:
        yield
    except GatedRepoError as error:
        raise Refused(
            f"{name}: the model is gated: accept its terms at {hub}/{name.repo}, and set HF_TOKEN"
        ) from error
    except RepositoryNotFoundError as error:
        raise Refused(
            f"{name}: {hub} has no model {name.repo}, or it is private and HF_TOKEN must be set"
        ) from error
    except RevisionNotFoundError as error:
        raise Refused(f"{name}: {name.repo} has no revision {name.revision}") from error
    except OfflineModeIsEnabled as error:
        raise Refused(f"{name}: HF_HUB_OFFLINE is set, so no hub is asked") from error
    except HfHubHTTPError as error:
        raise Refused(f"{name}: {hub} answers {_answer(name, error)}") from error
    except OSError as error:
        raise Refused(f"{name}: {_system(error)}") from error
    except Exception as error:
        if not type(error).__module__.startswith(("httpx", "httpcore")):
            raise
        raise Refused(f"{name}: {_broken(error, hub)}") from error


def _answer(name: HubName, error: HfHubHTTPError) -> str:
    status = error.response.status_code
    if status == 401:
        return f"401: it has no model {name.repo}, or one for which HF_TOKEN must be set"
    if status == 403:
        return "403: this HF_TOKEN may not read it"
    return f"{status}: {_first_line(error)}"


def _broken(error: Exception, hub: str) -> str:
    """Return what a failure of the connection comes to."""
    if type(error).__name__ in ("ConnectError", "ConnectTimeout"):
        return f"no hub is reachable at {hub} ({_first_line(error)}); HF_ENDPOINT names another"
    return (
        f"the connection to {hub} broke off ({_first_line(error)}); what came is kept, and "
        "pulling again goes on from there"
    )


def _system(error: OSError) -> str:
    where = "" if error.filename is None else f"{error.filename}: "
    return where + (error.strerror or _first_line(error))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
