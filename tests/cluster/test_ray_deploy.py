"""`draftwerk cluster deploy | status | drain` and `serve run`, on a Ray that runs already."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import openai
import pytest

from draftwerk_tools.loadtest.server.launcher import free_port
from tests.cluster.ray_head import ray_head
from tests.support.tiny_models import save_tiny_with_text

pytest.importorskip("ray", reason="Ray is not installed: pip install ./cluster")

ROOT = Path(__file__).parents[2]
COMMAND_S = 240.0
WORDS = "Once upon a time there was a small town by the sea, and"
CONFIG = """
model = "{model}"
port = {port}
replicas = 2
doors = 1
dtype = "fp32"
kv-memory = "32MiB"
spare = "off"
"""


@dataclass
class Deployed:
    """An application that was deployed, seen from a folder that has nothing to do with it."""

    address: str
    folder: Path
    model: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run `draftwerk cluster …`."""
        return subprocess.run(
            [sys.executable, "-m", "draftwerk", "cluster", *words, "--address", self.address],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment(),
            timeout=COMMAND_S,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        # Only for a cluster that it finds by itself does Ray take the token that is there.
        return {**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "token"}

    def text(self, prefix: str = "") -> str:
        """Return what the stock client streams."""
        with openai.OpenAI(base_url=f"{self.url}{prefix}/v1", api_key="none") as client:
            stream = client.completions.create(
                model=self.model.name, prompt=WORDS, max_tokens=40, seed=5, stream=True
            )
            parts = [chunk.choices[0].text for chunk in stream if chunk.choices]
        assert len(parts) > 3
        return "".join(parts)

    def replicas(self) -> list[str]:
        """Return the names in what `cluster status` prints."""
        lines = self.command("status").stdout.splitlines()
        return [line.split()[0] for line in lines if " pool " in line]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("elsewhere")
    model = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(model, seed=3)
    with ray_head() as address:
        found = Deployed(address, folder, model, free_port())
        (folder / "cluster.toml").write_text(CONFIG.format(model=model, port=found.port))
        done = found.command("deploy", "--config", "cluster.toml")
        assert done.returncode == 0, done.stderr
        assert "draftwerk: deployed, 2 replicas" in done.stdout
        yield found


def test_status_names_what_runs(deployed: Deployed) -> None:
    done = deployed.command("status")
    assert done.returncode == 0, done.stderr
    assert "draftwerk: RUNNING" in done.stdout and "doors: 1" in done.stdout
    assert done.stdout.count(" pool ") == 2 and "away" not in done.stdout


def test_deploying_again_changes_nothing(deployed: Deployed) -> None:
    before = deployed.replicas()
    assert deployed.command("deploy", "--config", "cluster.toml").returncode == 0
    assert set(deployed.replicas()) == set(before)


def test_a_drained_replica_is_replaced(deployed: Deployed) -> None:
    text, before = deployed.text(), deployed.replicas()
    done = deployed.command("drain", before[0])
    assert done.returncode == 0, done.stderr
    assert f"{before[0]}: replaced by" in done.stdout
    after = deployed.replicas()
    assert len(after) == 2 and before[0] not in after and before[1] in after
    assert deployed.text() == text


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("drain", "nobody"), "nobody"),
        (("drain",), "--all"),
        (("deploy",), "--config"),
        (("deploy", "--config", "missing.toml"), "missing.toml"),
    ],
)
def test_a_mistake_is_named(deployed: Deployed, words: tuple[str, ...], named: str) -> None:
    done = deployed.command(*words)
    assert done.returncode == 2 and named in done.stderr


def test_serves_own_command_runs_it_under_another_path(deployed: Deployed) -> None:
    """The last: Serve's command ends all of Serve with itself."""
    text = deployed.text()
    values = {
        "model": deployed.model,
        "replicas": 1,
        "app-name": "second",
        "route-prefix": "/second",
        "kv-memory": "32MiB",
        "dtype": "fp32",
        "spare": "off",
    }
    command = [str(Path(sys.executable).parent / "serve"), "run", "--address", deployed.address]
    command += ["--name", "second", "--route-prefix", "/second", "draftwerk_cluster:app"]
    command += [f"{name}={value}" for name, value in values.items()]
    process = subprocess.Popen(
        command, cwd=deployed.folder, env=deployed.environment(), stdout=sys.stderr
    )
    try:
        end = time.monotonic() + COMMAND_S
        while not _answers(deployed.url + "/second/ready"):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.5)
        assert deployed.text("/second") == text
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(COMMAND_S)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False
