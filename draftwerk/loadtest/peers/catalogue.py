"""Which servers there are, and what starts each of them."""

import math
import os
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

HERE = Path(__file__).parent
CONTEXT_TOKENS = 2048


class Peer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server: `install` are pip calls, `own` marks one that needs no environment of its own.

    Several may share a `venv`. Each competes within its `group` with those of another `family`;
    above `load_max` it is not measured. `drafts` names its draft source, for the table.
    """

    command: list[str]
    group: str = ""
    family: str = ""
    drafts: str = ""
    load_max: float | None = None
    own: bool = False
    venv: str = ""
    install: list[list[str]] = []
    install_env: dict[str, str] = {}
    env: dict[str, str] = {}
    extra: dict[str, object] = {}


class Entrant(Struct, frozen=True):
    """A peer that can be started: every word of its command is filled in."""

    name: str
    peer: Peer
    command: list[str]
    env: dict[str, str]


def read_catalogue(path: Path | None) -> dict[str, Peer]:
    """Read a TOML file of peers, the built-in one if none is given."""
    content = (path or HERE / "catalogue.toml").read_bytes()
    try:
        return msgspec.toml.decode(content, type=dict[str, Peer])
    except msgspec.MsgspecError as error:
        raise ValueError(f"the catalogue of peers: {error}") from error


def pick(catalogue: Mapping[str, Peer], names: str) -> dict[str, Peer]:
    """Return the named peers in the order asked for, or all."""
    wanted = [name.strip() for name in names.split(",") if name.strip()] or list(catalogue)
    unknown = [name for name in wanted if name not in catalogue]
    if unknown:
        raise ValueError(f"no peer {', '.join(unknown)}; there are {', '.join(catalogue)}")
    return {name: catalogue[name] for name in wanted}


def definitions(given: Sequence[str]) -> dict[str, str]:
    """Read `NAME=VALUE` words."""
    pairs = [text.partition("=") for text in given]
    if any(not sign for _, sign, _ in pairs):
        raise ValueError("--define wants NAME=VALUE")
    return {name: value for name, _, value in pairs}


def missing_words(peer: Peer, words: Mapping[str, str]) -> list[str]:
    """Return the words of the command and its environment that nothing defines."""
    texts = [*peer.command, *peer.env.values()]
    parts = (part for text in texts for part in string.Formatter().parse(text))
    return sorted({name for _, name, _, _ in parts if name and name not in words})


def entrant(name: str, peer: Peer, venv: Path, words: Mapping[str, str]) -> Entrant:
    """Fill in a command but for its port; call it only when no word is missing."""
    filled = {**venv_words(venv), **words}
    return Entrant(
        name,
        peer,
        [argument.format_map(filled) for argument in peer.command],
        {variable: value.format_map(filled) for variable, value in peer.env.items()},
    )


def machine_words(users: float) -> dict[str, str]:
    """Describe the machine, and room for so many users at once with 2048 tokens each."""
    cores = os.cpu_count() or 1
    slots = max(1, math.ceil(users))
    return {
        "threads": str(cores),
        "cores": f"0-{cores - 1}",
        "slots": str(slots),
        "context": str(slots * CONTEXT_TOKENS),
    }


def venv_words(venv: Path) -> dict[str, str]:
    return {
        "bin": str(venv / "bin"),
        "python": str(venv / "bin" / "python"),
        "here": sys.executable,
        "shim": str(HERE / "shim.py"),
    }
