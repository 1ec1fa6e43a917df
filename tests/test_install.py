"""Set-up: which build of torch is taken from which index, and what is said on the way."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Generator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
CUDA = (
    "nvidia-cublas==13.0; platform_system == 'Linux'",
    "triton==3.7; platform_system == 'Linux'",
)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, over this environment's pip."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "deploy/install.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BIN", sys.executable)
    return module


def save_wheel(folder: Path, version: str, needs: Sequence[str] = ()) -> None:
    """Write a wheel of torch that holds nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"torch-{version}.dist-info"
    with ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        lines = ["Metadata-Version: 2.1", "Name: torch", f"Version: {version}"]
        lines += [f"Requires-Dist: {need}" for need in needs]
        wheel.writestr(f"{stem}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{stem}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}/RECORD", "")


class Quiet(SimpleHTTPRequestHandler):
    """Folders as package indexes."""

    def log_message(self, *args: object) -> None:
        """Leave the terminal alone."""


@pytest.fixture
def indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Path, str]]:
    """A folder whose subfolders are indexes, and its address; pip knows no other index."""
    handler = partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/configured")
        yield tmp_path, address
        server.shutdown()
        thread.join()


def version_of(install: ModuleType) -> str:
    return install.pinned("torch").partition("==")[2]


def test_a_cpu_build_of_the_configured_index_is_taken(
    install: ModuleType, indexes: tuple[Path, str]
):
    folder, _ = indexes
    version = version_of(install)
    save_wheel(folder / "configured/torch", version, CUDA)
    save_wheel(folder / "configured/torch", f"{version}+cpu")
    what, size, options = install.choose_torch()
    assert "configured index" in what
    assert size == "0 MB"
    assert options == []


def test_so_is_one_without_a_tag(install: ModuleType, indexes: tuple[Path, str]):
    save_wheel(indexes[0] / "configured/torch", version_of(install), ["numpy"])
    assert "configured index" in install.choose_torch()[0]


def test_where_the_configured_index_has_cuda_alone_pytorchs_own_is_asked(
    install: ModuleType, indexes: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
):
    folder, address = indexes
    save_wheel(folder / "configured/torch", version_of(install), CUDA)
    save_wheel(folder / "cpu/torch", f"{version_of(install)}+cpu")
    monkeypatch.setattr(install, "CPU_INDEX", f"{address}/cpu")
    what, _, options = install.choose_torch()
    assert "PyTorch's own index" in what
    assert options == ["--index-url", f"{address}/cpu"]


def test_where_no_index_of_cpu_builds_answers_the_size_of_the_other_is_told(
    install: ModuleType, indexes: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
):
    folder, address = indexes
    save_wheel(folder / "configured/torch", version_of(install), CUDA)
    monkeypatch.setattr(install, "CPU_INDEX", f"{address}/cpu")
    what, size, options = install.choose_torch()
    assert "TORCH_INDEX=ADDRESS" in what
    assert "GB" in size
    assert options == []


def test_uv_gets_the_index_and_the_certificates_of_pip(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nextra-index-url = http://a/x http://b/x\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_CERT", "/a.pem")
    monkeypatch.setenv("SSL_CERT_FILE", "")  # so that it is as before at the end
    monkeypatch.delenv("SSL_CERT_FILE")
    options = install.pip_index()
    assert {"--extra-index-url=http://a/x", "--extra-index-url=http://b/x"} <= {*options}
    assert os.environ["SSL_CERT_FILE"] == "/a.pem"


def test_uv_gets_one_index_the_environments(
    install: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = http://file/x\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_INDEX_URL", "http://environment/x")
    options = [each for each in install.pip_index() if each.startswith("--index-url")]
    assert options == ["--index-url=http://environment/x"]


@pytest.mark.parametrize("device", ["", "cuda"])
def test_torchs_own_index_takes_the_place_of_the_configured_one(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, device: str
):
    ran: list[list[str]] = []
    own = [] if device else ["--index-url", "http://torch/x"]
    monkeypatch.setattr(install, "installed_torch", lambda: "")
    monkeypatch.setattr(install, "choose_torch", lambda *_: ("torch", "", own))
    monkeypatch.setattr(install, "run", ran.append)
    install.install_torch(["uv", "--index-url=http://configured/x"])
    (command,) = ran
    indexes = [word for word in command if "http" in word]
    assert indexes == (["--index-url=http://configured/x"] if device else ["http://torch/x"])


def test_what_is_asked_for_is_taken(install: ModuleType, indexes: tuple[Path, str]):
    folder, address = indexes
    save_wheel(folder / "configured/torch", version_of(install), CUDA)
    assert install.choose_torch(index=address)[2] == ["--index-url", address]
    what, _, options = install.choose_torch(device="cuda")
    assert "DEVICE=cuda" in what
    assert options == []


def test_an_index_without_torch_is_told(
    install: ModuleType, indexes: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(install, "CPU_INDEX", f"{indexes[1]}/cpu")
    with pytest.raises(install.Failed, match="no index has torch"):
        install.choose_torch()


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
    with steps.step("something", "3 MB"):
        install.run([sys.executable, "-c", "import time; time.sleep(1); print('noise')"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[1/1] something (3 MB)"
    assert re.fullmatch(r" {6}\d+ s", lines[-1])
    assert any(line.startswith("      ... ") for line in lines)
    assert "noise" not in lines
    with pytest.raises(install.Failed, match="the reason"), steps.step("more"):
        install.run([sys.executable, "-c", "raise SystemExit('the reason')"])
