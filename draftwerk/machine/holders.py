"""Who holds this machine's memory: the servers that run here, and their model processes."""

from pathlib import Path
from typing import NamedTuple

from draftwerk.machine.host import PROC

SERVER, WORKER, FORK_SERVER = (
    "serve",
    "draftwerk.model.process.worker",
    "draftwerk.model.process.fork_server",
)
FORKED = "dw "
"""How the names begin that a fork server's processes have: they share its command line."""
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
            if role := process_role(folder):
                found.append(Holder(int(folder.name), role, *_parts(folder)))
        except (OSError, ValueError):  # it has gone, or is another user's
            continue
    return found


def process_role(folder: Path) -> str:
    """Return what the process of a folder of /proc is for; empty for a stranger.

    Raises OSError for one that has gone.
    """
    words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    return role_of(words, (folder / "comm").read_text().strip() if FORK_SERVER in words else "")


def role_of(words: list[str], name: str = "") -> str:
    """Return what a command line and a name of this package are for; empty for any other."""
    if FORK_SERVER in words:
        return name.removeprefix(FORKED) if name.startswith(FORKED) else "fork_server"
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
