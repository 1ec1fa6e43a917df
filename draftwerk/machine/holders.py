"""Who holds this machine's memory: the servers that run here, and their model processes."""

from pathlib import Path
from typing import NamedTuple

from draftwerk.machine.host import PROC

SERVER, WORKER = "serve", "draftwerk.model.worker"
KINDS = ("Pss_Anon", "Pss_Shmem", "Pss_File")


class Holder(NamedTuple):
    """One process, and its part of what it maps: what several share is divided among them."""

    process_id: int
    role: str
    """serve, or what its model is for."""
    own_bytes: int
    shared_bytes: int
    """Memory that a server shares with its models: pages and packed weights."""
    file_bytes: int

    @property
    def total_bytes(self) -> int:
        """The proportional set size (PSS)."""
        return self.own_bytes + self.shared_bytes + self.file_bytes


def holders(proc: Path = PROC) -> list[Holder]:
    """Return the processes of all servers that may be looked at; none where there is no /proc."""
    found: list[Holder] = []
    for folder in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            role = role_of(words)
            if role:
                found.append(Holder(int(folder.name), role, *_parts(folder)))
        except (OSError, ValueError):  # it has gone, or is another user's
            continue
    return found


def role_of(words: list[str]) -> str:
    """Return what a command line of this package is for; empty for any other."""
    if WORKER in words:
        return words[words.index(WORKER) + 1]
    is_ours = any(Path(word).name == "draftwerk" for word in words[:5])
    return SERVER if is_ours and SERVER in words[:6] else ""


def _parts(folder: Path) -> tuple[int, int, int]:
    sizes = dict.fromkeys(KINDS, 0)
    for line in (folder / "smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in sizes:
            sizes[name] = int(rest.split()[0]) * 1024
    return sizes["Pss_Anon"], sizes["Pss_Shmem"], sizes["Pss_File"]
