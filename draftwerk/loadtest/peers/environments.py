"""One virtual environment per peer, made on request."""

import os
import subprocess
import sys
from pathlib import Path

from draftwerk.loadtest.peers.catalogue import Peer


def installed(peer: Peer, venv: Path) -> bool:
    """Whether the peer can be started as things are."""
    return peer.own or (venv / "installed").exists()


def install(peer: Peer, venv: Path) -> None:
    """Make the environment and run the peer's pip calls; `ValueError` if one fails."""
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    for arguments in peer.install:
        call = [str(venv / "bin" / "python"), "-m", "pip", *arguments]
        if subprocess.run(call, env={**os.environ, **peer.install_env}).returncode:
            raise ValueError(f"could not install into {venv}: {' '.join(call)}")
    # Its presence means that every call succeeded.
    (venv / "installed").touch()
