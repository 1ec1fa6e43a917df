"""Clients' packages as npm and PyPI have them, each installed into a folder of its own."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
INSTALL_S = 900


@dataclass(frozen=True, slots=True)
class Package:
    """A client's package, and what is installed with it."""

    name: str
    """Whose version is shown."""
    is_npm: bool = False
    requirements: str = ""
    """What to install, if more than the package."""

    def install(self, folder: Path) -> None:
        """Install it if it is not there."""
        requirements = (self.requirements or self.name).split()
        if self.is_npm:
            if not (folder / "node_modules" / self.name).exists():
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "package.json").write_text("{}")
                _run(["npm", "install", "--silent", *requirements], folder)
            return
        if not self.python(folder).exists():
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(self.python(folder)), "-m", "pip", "install", "--quiet", *requirements])

    def version(self, folder: Path) -> str:
        """Return the version that was installed."""
        if self.is_npm:
            card = folder / "node_modules" / self.name / "package.json"
            return json.loads(card.read_text())["version"]
        code = f"from importlib.metadata import version; print(version({self.name!r}))"
        return subprocess.check_output([self.python(folder), "-c", code], text=True).strip()

    def python(self, folder: Path) -> Path:
        return folder / "bin" / "python"

    def program(self, folder: Path, name: str) -> list[str]:
        """Return the command that runs a program that the package brings."""
        return [str(folder / "node_modules" / ".bin" / name)]

    def script(self, folder: Path, name: str) -> list[str]:
        """Return the command that runs a script of `scripts/` with the package."""
        if not self.is_npm:
            return [str(self.python(folder)), str(SCRIPTS / name)]
        for each in (name, "harness.mjs"):  # Node looks for packages beside the script
            shutil.copy(SCRIPTS / each, folder)
        return ["node", str(folder / name)]


def _run(command: list[str], folder: Path | None = None) -> None:
    subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_S)
