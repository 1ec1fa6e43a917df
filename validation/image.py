"""Builds what deploy/Dockerfile builds, without Docker, and serves from it.

    python -m validation.image [--reuse] [--python python3.12] [--torch-index URL]

Each RUN step is executed in a folder of its own with none of the caller's variables, on what COPY
puts there (.dockerignore obeyed); /opt, /etc and /source lie below that folder. Then the image's
command is started with its config and a key, its HEALTHCHECK is asked, and SIGTERM must end it with
0. With --reuse packages of the interpreter that runs this are found where a step would fetch them,
and kernels are not compiled: what is then left is in seconds.
"""

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from draftwerk_tools.loadtest.server.launcher import free_port

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "deploy/Dockerfile"
STEP_S, READY_S, END_S = 3600.0, 300.0, 60.0
SKIPPED = ("useradd",)
"""Commands of the system that nothing here depends on."""
COMPILED = "-m draftwerk.model.native.ready"
PLACES = ("/opt/", "/etc/", "/source")


def instructions() -> Iterator[tuple[str, str]]:
    """Yield the instructions of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        word, _, rest = line.partition(" ")
        if word:
            yield word, rest


class ImageBuild:
    """The folder that stands for the image, and how steps run in it."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.folder, self.given = folder, given
        self.source = folder / "source"
        base = folder / "base"
        subprocess.run([given.python, "-m", "venv", base], check=True)
        kept = {name: os.environ[name] for name in os.environ if name.startswith("PIP_")}
        self.variables = {
            **kept,
            "PATH": f"{base / 'bin'}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(folder / "home"),
            "TORCH_INDEX": given.torch_index or _own_index(),
        }
        (folder / "home").mkdir()

    def build(self) -> list[str]:
        """Follow the instructions; returns the words of CMD."""
        command: list[str] = []
        for word, rest in instructions():
            match word:
                case "RUN":
                    for step in rest.split("&&"):
                        self._step(step.strip())
                case "COPY" if "--from" not in rest:
                    self._copy(*shlex.split(rest))
                case "CMD" | "HEALTHCHECK":
                    command = json.loads(rest[rest.index("[") :])
                    if word == "HEALTHCHECK":
                        self.health = command
                case "ENV":
                    self._env(rest)
                case _:
                    pass
        return [self._placed(part) for part in command]

    def _step(self, step: str) -> None:
        if step.startswith(SKIPPED):
            print(f"skipped: {step}", flush=True)
            return
        if self.given.reuse:
            step = step.replace(COMPILED, "-c 'import draftwerk.model.native.ready'")
            step = step.replace(" ziglang ", " ")  # 100 MB, for kernels alone
        started = time.monotonic()
        subprocess.run(
            ["sh", "-ec", self._placed(step)],
            cwd=self.source, env=self.variables, check=True, timeout=STEP_S,
        )  # fmt: skip
        if self.given.reuse and "-m venv" in step:
            self._share_packages(Path(self._placed(shlex.split(step)[-1])))
        print(f"{time.monotonic() - started:6.1f} s: {step}", flush=True)

    def _share_packages(self, venv: Path) -> None:
        """Have a virtual environment find the packages of this interpreter, but not ours."""
        (site,) = venv.glob("lib/python*/site-packages")
        (site / "reused.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    def _copy(self, source: str, target: str) -> None:
        if source == ".":
            shutil.copytree(ROOT, self.source, ignore=_ignored, symlinks=True)
            return
        place = Path(self._placed(target))
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, place)

    def _env(self, rest: str) -> None:
        for name, value in (each.split("=", 1) for each in shlex.split(rest)):
            value = self._placed(value).replace("$PATH", self.variables["PATH"])
            self.variables[name] = value.replace("/var/lib", str(self.folder / "var"))

    def _placed(self, text: str) -> str:
        """Return a text with the image's places below the folder."""
        for place in PLACES:
            text = re.sub(rf"(?<![\w.]){place}", f"{self.folder}{place}", text)
        return text

    def serve(self, command: list[str]) -> None:
        """Start the image's command, ask for its health, and stop it."""
        port = free_port()
        variables = {
            **self.variables, "DRAFTWERK_API_KEY": "alice:KEY1",
            "DRAFTWERK_PORT": str(port),
            **({"DRAFTWERK_ISA": "none"} if self.given.reuse else {}),
        }  # fmt: skip
        words = [*command, "--host", "127.0.0.1", "--port", str(port)]
        child = subprocess.Popen(words, cwd=self.folder / "home", env=variables)
        try:
            health = [part.replace(":8000", f":{port}") for part in self.health]
            last = time.monotonic() + READY_S
            while subprocess.run(
                health, env=variables, capture_output=True, check=False
            ).returncode:
                if child.poll() is not None or time.monotonic() > last:
                    raise SystemExit("the image's command is not healthy")
                time.sleep(0.5)
            print("healthy", flush=True)
            child.send_signal(signal.SIGTERM)
            if code := child.wait(END_S):
                raise SystemExit(f"SIGTERM ended it with {code}")
        finally:
            child.kill()


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Return what .dockerignore keeps from the build, of a folder's names."""
    patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    is_root = Path(folder) == ROOT
    return {
        name
        for name in names
        for pattern in patterns
        if (is_root or pattern.startswith("**/"))
        and fnmatch.fnmatch(name, pattern.removeprefix("**/"))
    }


def _own_index() -> str:
    """Return the index that pip takes by itself: PyTorch's own may be out of reach."""
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main() -> int:
    """Build and serve; returns the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--reuse", action="store_true", help="packages of this interpreter")
    parser.add_argument("--python", default=sys.executable, metavar="COMMAND")
    parser.add_argument("--torch-index", default="", metavar="URL")
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        build = ImageBuild(Path(name), given)
        build.serve(build.build())
    return 0


if __name__ == "__main__":
    sys.exit(main())
