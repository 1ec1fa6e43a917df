"""The wheel in an environment of its own, run from folders whose files bear our modules' names."""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile, copytree, ignore_patterns
from zipfile import ZipFile

import httpx
import pytest

from draftwerk.machine.version import __version__
from draftwerk.model.native.build import obtain, ready_path
from tests.support.runners import require_kernels

ROOT = Path(__file__).parents[2]
JUNK = ignore_patterns("__pycache__", "*.pyc", "ready", "*.egg-info", "build")
READY = "draftwerk/model/native/ready/"
"""Where a wheel has libraries; those of the tree are left out."""
POISON = "raise SystemExit('a file of the working directory was imported')\n"
PATIENT_S = 300.0
"""For a program that hangs; a machine may be busy."""
OPTIONS = {"dtype": "fp32", "kv_memory": "64MiB"}
SCRIPT = """
from draftwerk import LLM, SamplingParams
llm = LLM({model!r}, **{options!r})
print(llm.chat("Hello", SamplingParams(seed=7, max_tokens=20, n=2)).choices[1].text, end="")
"""
"""It closes nothing: the end of the program does."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it from a copy: setuptools leaves files in the tree it builds.

    It holds the kernels of this machine, compiled as for the tests.
    """
    require_kernels()
    source = tmp_path_factory.mktemp("source")
    copytree(ROOT / "draftwerk", source / "draftwerk", ignore=JUNK)
    kernels = obtain()
    (source / READY).mkdir()
    copyfile(kernels.path, source / READY / ready_path(kernels.isa).name)
    for name in ("pyproject.toml", "README.md"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    for name in re.findall(r'"(LICENSE[^"]*)"', (source / "pyproject.toml").read_text()):
        (source / name).write_bytes((ROOT / name).read_bytes())
    return packed(source, tmp_path_factory.mktemp("wheel"))


def packed(source: Path, folder: Path) -> Path:
    """Return the wheel of a package's sources."""
    offline = ("--no-deps", "--no-index", "--no-build-isolation")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", *offline, "-w", folder, source]
    subprocess.run(command, check=True, timeout=PATIENT_S)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def binaries(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it into an empty environment, with what it depends on in a folder further back."""
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=PATIENT_S
    )
    offline = ("--quiet", "--no-deps", "--no-index")
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin/python", "install", *offline, wheel]
    # On a path of the shell's, pip would find the project, and install nothing.
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(pip, check=True, timeout=PATIENT_S, env=bare)
    (site,) = venv.glob("lib/python*/site-packages")
    # A folder on a .pth file's line is searched, but its own .pth files are not run: the project's
    # editable install, if this interpreter has one, stays out.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin"


def poisoned(folder: Path, *more: str) -> Path:
    """Fill a folder with modules and folders that must not be imported."""
    for name in ("api", "model", "actors", "draft", *more):
        (folder / f"{name}.py").write_text(POISON)
    for name in ("cache", "speculative", "loadtest"):
        (folder / name).mkdir()
    return folder


def environment(**more: str) -> dict[str, str]:
    """Return this one's, with no path of ours in it, and `more`."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more


def test_it_holds_one_package_of_real_files(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        info = f"draftwerk-{__version__}.dist-info"
        record = archive.read(f"{info}/RECORD").decode().splitlines()
        named = {line.split(",")[0] for line in record}
        assert named == set(archive.namelist())
        assert {name.split("/")[0] for name in named} == {"draftwerk", info}
        files = {name for name in named if not name.startswith((info, READY))}
        packed = {name: archive.read(name) for name in files}
    (kernels,) = (name.removeprefix(READY) for name in named if name.startswith(READY))
    assert kernels == ready_path(obtain().isa).name
    there = {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for path in (ROOT / "draftwerk").rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.parent.name != "ready"
    }
    assert packed.keys() == there.keys()
    assert packed == there
    kinds = {Path(name).suffix for name in packed}
    code = {".py", ".typed", ".json", ".safetensors", ".cpp", ".h"}
    assert kinds == code | {".html", ".css", ".js"}


@pytest.mark.parametrize("folder", ["cluster", "tools"])
def test_a_package_beside_it_has_a_wheel_of_its_own(folder: str, tmp_path: Path) -> None:
    copytree(ROOT / folder, tmp_path / folder, ignore=JUNK)
    with ZipFile(packed(tmp_path / folder, tmp_path)) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = ROOT / folder / f"draftwerk_{folder}"
    there = {path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert files == {path.relative_to(ROOT / folder).as_posix() for path in there}


def test_a_command_of_another_package_is_named_where_it_is_not_installed(binaries: Path) -> None:
    done = subprocess.run(
        [binaries / "draftwerk", "loadtest", "run", "http://127.0.0.1:1"],
        **{"cwd": "/", "env": environment(), "timeout": PATIENT_S},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.endswith("pip install ./tools\n")


def test_the_server_runs_beside_files_of_any_name(
    binaries: Path, model: Path, tmp_path: Path
) -> None:
    """The Python API gives its text from such a folder as well."""
    (tmp_path / "serve").mkdir()
    (tmp_path / "script").mkdir()
    with serving(binaries, model, poisoned(tmp_path / "serve", "queue", "json")) as (url, _):
        # A script's own folder is on its path; of those files, Python itself needs some.
        folder = poisoned(tmp_path / "script")
        (folder / "use.py").write_text(SCRIPT.format(model=str(model), options=OPTIONS))
        done = subprocess.run(
            [binaries / "python", "-W", "error", "use.py"],
            **{"cwd": folder, "env": environment(), "timeout": PATIENT_S},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        body = {"messages": [{"role": "user", "content": "Hello"}], "seed": 7, "max_tokens": 20}
        reply = httpx.post(
            f"{url}/v1/chat/completions", json=body | {"n": 2}, timeout=PATIENT_S
        ).json()
        assert done.stdout == reply["choices"][1]["message"]["content"] != ""


def test_without_a_compiler_it_serves_with_the_kernels_that_it_brought(
    binaries: Path, model: Path, tmp_path: Path
) -> None:
    alone = {"PATH": str(binaries), "XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": ""}
    with serving(binaries, model, tmp_path, **alone) as (_, said):
        assert f"kernels: {obtain().isa.name}, ready-made, from the package" in said
    assert not [*tmp_path.glob("cache/draftwerk/native-*")]


@contextmanager
def serving(binaries: Path, model: Path, folder: Path, **more: str) -> Generator[tuple[str, str]]:
    """Run `draftwerk serve` in a folder; yields its URL, and what it said up to there."""
    options = (f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items())
    with subprocess.Popen(
        [binaries / "draftwerk", "serve", str(model), "--port", "0", *options],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            said = ""
            while not (url := re.search(r"http://[\d.]+:\d+", said)):
                line = process.stdout.readline()
                assert line, said
                said += line
            yield url[0], said
        finally:
            process.terminate()
            assert process.wait(timeout=PATIENT_S) == 0


def test_it_prints_its_version(binaries: Path) -> None:
    for command in ([binaries / "draftwerk"], [binaries / "python", "-m", "draftwerk"]):
        printed = subprocess.check_output([*command, "--version"], cwd="/", env=environment())
        assert printed.decode() == f"draftwerk {__version__}\n"
    code = "import draftwerk; print(draftwerk.__version__, draftwerk.__file__)"
    printed = subprocess.check_output([binaries / "python", "-c", code], cwd="/", env=environment())
    version, file = printed.decode().split()
    assert version == __version__ and Path(file).is_relative_to(binaries.parent)
