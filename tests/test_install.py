"""Set-up: which build of torch is taken from which index, and what is said on the way."""

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
CUDA = (
    "nvidia-cublas==13.0; platform_system == 'Linux'",
    "triton==3.7.1; platform_system == 'Linux'",
)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script's packages, over this environment's pip, without a user's settings."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    module = importlib.reload(importlib.import_module("packages"))
    monkeypatch.setattr(module, "BIN", sys.executable)
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("UV_NO_CONFIG", "UV_NO_CACHE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(module, "has_own_index", lambda: False)
    return module


@pytest.fixture
def install(packages: ModuleType) -> ModuleType:
    """The script as a module."""
    return importlib.reload(importlib.import_module("install"))


def save_wheel(folder: Path, version: str, needs: Sequence[str] = (), name: str = "torch") -> None:
    """Write a wheel, of torch for example, that holds an empty module."""
    folder.mkdir(parents=True, exist_ok=True)
    name = name.replace("-", "_")
    stem = f"{name}-{version}.dist-info"
    with ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {need}" for need in needs]
        wheel.writestr(f"{stem}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{stem}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}/RECORD", "")
        wheel.writestr(f"{name}.py", "")


class Quiet(SimpleHTTPRequestHandler):
    """Folders as package indexes."""

    def log_message(self, *args: object) -> None:
        """Leave the terminal alone."""


@pytest.fixture
def indexes(
    tmp_path: Path, packages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Generator[tuple[Path, str]]:
    """A folder whose subfolders are indexes, and its address; pip knows no other index."""
    handler = partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/configured")
        monkeypatch.setattr(packages, "CPU_INDEX", f"{address}/cpu")
        yield tmp_path, address
        server.shutdown()
        thread.join()


UV = pytest.param("uv", marks=pytest.mark.skipif(not shutil.which("uv"), reason="no uv is here"))


@pytest.fixture(params=["pip", UV])
def installer(
    request: pytest.FixtureRequest, packages: ModuleType, indexes: object,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:  # fmt: skip
    """Each installer, with the indexes as pip's settings have them."""
    if request.param == "pip":
        monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    return packages.Installer()


def version_of(packages: ModuleType) -> str:
    return packages.pinned("torch").partition("==")[2]


def save_builds(packages: ModuleType, folder: Path, *tags: str) -> None:
    """Write a folder's builds of torch, of which those for CUDA need other packages."""
    for tag in tags:
        needs = () if tag.startswith("+cpu") else CUDA
        save_wheel(folder / "torch", version_of(packages) + tag, needs)
    for need in CUDA:
        name, _, version = need.partition(";")[0].partition("==")
        save_wheel(folder / name, version, name=name)


@pytest.mark.parametrize(
    "others",
    [
        ("", "+cu130"),
        *(pytest.param(each, marks=pytest.mark.grid) for each in [("",), ("+cu130",)]),
    ],
)
def test_a_cpu_build_of_the_configured_index_is_taken(
    packages: ModuleType, indexes: tuple[Path, str], installer: Any, others: tuple[str, ...]
):
    save_builds(packages, indexes[0] / "configured", "+cpu", *others)
    what, size, wanted, index = packages.choose_torch(installer)
    assert what == "torch for CPUs, from the configured index"
    assert size in ("0 MB", "about 200 MB")
    assert (wanted, index) == (f"torch=={version_of(packages)}+cpu", "")


def test_modules_are_installed_without_bytecode(
    packages: ModuleType, indexes: tuple[Path, str], installer: Any, tmp_path: Path
):
    save_builds(packages, indexes[0] / "configured", "+cpu")
    target = tmp_path / "target"
    installer.install("--target", str(target), f"torch=={version_of(packages)}+cpu")
    assert [path.name for path in target.rglob("*.py*")] == ["torch.py"]


@pytest.mark.grid
def test_a_build_is_told_from_another_of_its_version(
    packages: ModuleType, indexes: tuple[Path, str], installer: Any
):
    version, folder = version_of(packages), indexes[0] / "configured"
    save_builds(packages, folder, "+cu130")
    assert not installer.offer(f"torch=={version}").is_for_cpus
    assert installer.offer(f"torch==={version}") is None
    save_wheel(folder / "torch", version)
    assert not installer.offer(f"torch=={version}").is_for_cpus
    assert installer.offer(f"torch==={version}").is_for_cpus
    assert installer.offer(f"torch=={version}", f"{indexes[1]}/none") is None


@pytest.mark.grid
def test_a_file_of_pip_and_links_beside_the_index_count(
    packages: ModuleType, indexes: tuple[Path, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    save_builds(packages, tmp_path / "configured", "")
    save_builds(packages, tmp_path / "more", "+cpu")
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    settings = {"extra-index-url": f"{indexes[1]}/more", "find-links": f"{tmp_path}/more/torch"}
    for name, value in settings.items():
        config = tmp_path / "pip.conf"
        config.write_text(f"[global]\n{name} =\n    {indexes[1]}/none\n    {value}\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
        assert "configured index" in packages.choose_torch(packages.Installer())[0]


class Offers:
    """An installer whose indexes have builds by their tags."""

    def __init__(self, packages: ModuleType, **builds: Sequence[str]) -> None:
        self.packages, self.builds = packages, builds

    def offer(self, wanted: str, index: str = "") -> Any:
        tags = sorted(self.builds.get(index or "configured", ()))
        version = version_of(self.packages)
        if "+" in wanted or "===" in wanted:
            tags = [tag for tag in tags if wanted.endswith(f"={version}{tag}")]
        if not tags:
            return None
        needs = CUDA if tags[-1] in ("", "+cu130") else ()
        return self.packages.Build(version + tags[-1].removesuffix("!"), needs)


@pytest.mark.parametrize(
    ("builds", "wishes", "words", "wanted", "index"),
    [
        ({"configured": ["+cpu"]}, {}, "torch for CPUs, from the configured", "==V+cpu", ""),
        ({"configured": ["", "+cpu", "+cu130"]}, {}, "CPUs, from the configured", "==V+cpu", ""),
        ({"configured": ["!"]}, {}, "for CPUs, from the configured", "==V", ""),
        ({"configured": [""], "cpu": ["+cpu"]}, {}, "PyTorch's own index", "==V+cpu", "cpu"),
        ({"configured": [], "cpu": ["!"]}, {}, "PyTorch's own index", "==V", "cpu"),
        ({"configured": [""]}, {}, "no index of CPU builds answers; TORCH_INDEX=", "==V", ""),
        ({"x": ["+cpu"]}, {"index": "x"}, "torch for CPUs, from x", "==V+cpu", "x"),
        ({"x": ["+cu130"], "configured": ["+cpu"]}, {"index": "x"}, "torch from x", "==V", "x"),
        ({"x": ["+cu130", "+cpu"]}, {"index": "x", "device": "cuda"}, "CUDA", "==V", "x"),
        ({"configured": ["", "+cpu"]}, {"device": "cuda"}, "as DEVICE=cuda asks", "===V", ""),
        ({"configured": ["", "+cpu"]}, {"device": "cpu"}, "torch for CPUs", "==V+cpu", ""),
    ],
)  # fmt: skip
def test_which_build_is_taken(
    packages: ModuleType, monkeypatch: pytest.MonkeyPatch, builds: dict[str, list[str]],
    wishes: dict[str, str], words: str, wanted: str, index: str,
):  # fmt: skip
    monkeypatch.setattr(packages, "CPU_INDEX", "cpu")
    monkeypatch.setattr(packages, "answers", builds.__contains__)
    what, size, *chosen = packages.choose_torch(Offers(packages, **builds), **wishes)
    assert words in what
    assert chosen == [f"torch{wanted}".replace("V", version_of(packages)), index]
    assert size == ("several GB" if "no index" in what else "")


@pytest.mark.parametrize(
    ("builds", "wishes", "words"),
    [
        ([], {}, "no index has torch"),
        (["+cpu"], {"device": "cuda"}, "for CPUs alone; TORCH_INDEX=ADDRESS names another"),
        (["+cpu"], {"device": "gpu"}, "DEVICE is cpu or cuda, and not gpu"),
    ],
)
def test_what_is_not_there_is_told(
    packages: ModuleType, monkeypatch: pytest.MonkeyPatch, builds: list[str],
    wishes: dict[str, str], words: str,
):  # fmt: skip
    monkeypatch.setattr(packages, "answers", lambda address: False)
    with pytest.raises(packages.Failed, match=words):
        packages.choose_torch(Offers(packages, configured=builds), **wishes)


def test_an_index_that_says_nothing_is_not_waited_for(
    packages: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    """As where the names of a network are not answered."""
    left = Event()
    monkeypatch.setattr(packages, "urlopen", lambda *_, **__: left.wait())
    monkeypatch.setattr(packages, "PROBE_S", 0.05)
    assert not packages.answers("http://nowhere")
    left.set()


def test_uv_gets_the_indexes_and_the_certificates_of_pip(
    packages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nextra-index-url =\n  http://a/x\n  http://b/x\nindex-url = http://file/x\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_INDEX_URL", "http://environment/x")
    monkeypatch.setenv("PIP_CERT", "/a.pem")
    monkeypatch.setenv("SSL_CERT_FILE", "")  # so that it is as before at the end
    monkeypatch.delenv("SSL_CERT_FILE")
    options = packages.uv_options()
    assert {"--extra-index-url=http://a/x", "--extra-index-url=http://b/x"} <= {*options}
    named = [each for each in options if each.startswith("--index-url")]
    assert named == ["--index-url=http://environment/x"]
    assert os.environ["SSL_CERT_FILE"] == "/a.pem"


def test_an_index_of_uvs_own_goes_before_pips(
    packages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    packages = importlib.reload(packages)
    monkeypatch.setattr(packages, "BIN", sys.executable)
    monkeypatch.setenv("PIP_INDEX_URL", "http://pip/x")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "--index-url=http://pip/x" in packages.uv_options()
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/uv.toml").write_text('[[index]]\nurl = "http://uv/x"\ndefault = true\n')
    assert packages.uv_options() == []
    (tmp_path / "uv/uv.toml").unlink()
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://uv/x")
    assert packages.uv_options() == []


def test_torchs_own_index_has_torch_alone(
    install: ModuleType, packages: ModuleType, indexes: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """Its libraries come from the configured one, which has them in the versions that are asked."""
    ran: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(packages, "run", lambda words, env=None: ran.append((words, env)))
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    monkeypatch.setattr(install, "installed_torch", lambda: "")
    monkeypatch.setenv("TORCH_INDEX", f"{indexes[1]}/own")
    save_builds(packages, indexes[0] / "own", "+cpu")
    install.install_torch(packages.Installer())
    (first, alone), (second, all_of_it) = ran
    assert (
        first[-2:]
        == ["--no-deps", f"torch=={version_of(packages)}+cpu"]
        == ["--no-deps", second[-1]]
    )
    assert {alone[f"PIP_{name}"] for name in ("INDEX_URL", "EXTRA_INDEX_URL")} == {
        f"{indexes[1]}/own"
    }
    assert all_of_it["PIP_INDEX_URL"] == f"{indexes[1]}/configured"


def test_a_wish_is_obeyed_where_another_build_is_there(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(install, "VENV", str(tmp_path))
    install.write_stamp(".setup")
    assert install.has_wishes(".setup")
    monkeypatch.setenv("DEVICE", "cuda")
    assert not install.has_wishes(".setup")
    install.write_stamp(".setup")
    assert install.has_wishes(".setup")
    monkeypatch.delenv("DEVICE")
    assert install.has_wishes(".setup")


def test_libraries_of_another_processor_are_none_of_a_build(
    packages: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    """As PyPI's builds for ARM are, which bring no CUDA."""
    needs = ["nvidia-cublas==13.0; platform_machine == 'x86_64' and platform_system == 'Linux'"]
    metadata = {"version": "2.0", "requires_dist": needs}
    report = {"install": [{"metadata": metadata, "download_info": {"url": "file:///none"}}]}
    for machine, is_for_cpus in (("aarch64", True), ("x86_64", False)):
        monkeypatch.setattr(packages.platform, "machine", lambda machine=machine: machine)
        assert packages.Build.reported_by_pip(report).is_for_cpus == is_for_cpus


def test_a_package_whose_installation_was_cut_is_installed_again(
    packages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(packages, "VENV", str(tmp_path))
    for name, files in {
        "torch-2.0": ["METADATA", "RECORD"],
        "numpy-2.0": ["INSTALLER", "RECORD"],
    }.items():
        folder = tmp_path / f"lib/python3.12/site-packages/{name}.dist-info"
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).touch()
    packages.remove_halves()
    assert packages.installed_torch() == ""
    assert len(packages.site_packages("*")) == 1


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 10, 13)])
def test_a_python_that_is_too_old_is_one_sentence(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int]
):
    monkeypatch.setattr(install.sys, "version_info", version)
    with pytest.raises(install.Failed) as refused:
        install.check_python()
    assert str(refused.value).startswith("draftwerk needs Python 3.11 or newer, and this is 3.")
    assert "\n" not in str(refused.value)


def test_a_newer_python_is_named_only_if_it_starts(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    for minor, ends in ((13, 127), (12, 0)):
        command = tmp_path / f"python3.{minor}"
        command.write_text(f"#!/bin/sh\nexit {ends}\n")
        command.chmod(0o755)
    assert install.newer_python() == "python3.12"
    (tmp_path / "python3.12").unlink()
    assert install.newer_python() == ""


@pytest.mark.parametrize("minor", [9, 10])
def test_older_pythons_read_the_script(minor: int):
    found = [*Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
    if not found:
        pytest.skip(f"no Python 3.{minor} is here")
    run = subprocess.run(
        [found[0], ROOT / "deploy/install.py"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr.startswith("draftwerk needs Python 3.11 or newer")
    assert run.stderr.count("\n") == 1


def test_an_environment_of_another_python_is_made_anew(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/pip").touch()
    (venv / "pyvenv.cfg").write_text("version = 3.9.18\n")
    made: list[list[str]] = []
    monkeypatch.setattr(install, "VENV", str(venv))
    monkeypatch.setattr(install, "PIP", str(venv / "bin/pip"))
    monkeypatch.setattr(install, "run", made.append)
    install.make_venv(install.Steps(5))
    assert made == [[sys.executable, "-m", "venv", str(venv)]]
    assert not (venv / "pyvenv.cfg").exists()
    assert "in place of one of Python 3.9.18" in capsys.readouterr().out


def test_one_without_pip_is_made_anew(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "pyvenv.cfg").write_text(f"version_info = {sys.version.split()[0]}\n")
    monkeypatch.setattr(install, "VENV", str(tmp_path))
    monkeypatch.setattr(install, "PIP", str(tmp_path / "pip"))
    assert not install.has_own_python()
    (tmp_path / "pip").touch()
    assert install.has_own_python()


def test_a_step_that_lasts_says_so_and_one_that_fails_shows_its_output(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(install, "TELL_S", 0.1)
    steps = install.Steps(1)
    code = "import time; print('compiling: 2 of 5', flush=True); time.sleep(1); print('noise: 3')"
    with steps.step("something", "3 MB") as notes:
        install.run([sys.executable, "-c", code], tell=install.tell_parts(notes))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[1/1] something (3 MB)"
    assert re.fullmatch(r" {6}\d+ s", lines[-1])
    assert any(re.fullmatch(r" {6}\.\.\. \d+ s \(2 of 5\)", line) for line in lines)
    assert "noise" not in "".join(lines)
    with pytest.raises(install.Failed, match="the reason"), steps.step("more"):
        install.run([sys.executable, "-c", "raise SystemExit('the reason')"])


def test_what_is_compiled_meanwhile_is_told_at_the_end_and_ends_with_a_failed_step(
    install: ModuleType, tmp_path: Path
):
    done, told = tmp_path / "done", list[str]()
    code = f"import pathlib; print('1 of 2'); pathlib.Path({str(done)!r}).touch()"
    with install.Command([sys.executable, "-c", code]) as running:
        while not done.exists():
            assert not told
        running.finish(told.append)
    assert told == ["1 of 2"]
    endless = install.Command([sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(install.Failed, match="no torch"), endless:
        raise install.Failed("no torch")
    assert endless.process.returncode == -signal.SIGKILL
