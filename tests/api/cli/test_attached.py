"""What the packages beside draftwerk bring to its command."""

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from draftwerk.api.cli import attached
from draftwerk.machine.version import __version__
from draftwerk.settings.setting_fields import ConfigError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("folder", ["cluster", "tools"])
def test_a_package_beside_draftwerk_has_its_version_and_brings_what_is_said(folder: str) -> None:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert f"draftwerk=={__version__}" in project["dependencies"]
    brought = {name for name, where in attached.FOLDERS.items() if where == folder}
    assert project["entry-points"][attached.GROUP].keys() == brought


def test_commands_that_take_their_words_are_brought_by_a_package() -> None:
    assert attached.COMMANDS.keys() <= attached.FOLDERS.keys()


@pytest.mark.parametrize(
    "name", [name for name, folder in attached.FOLDERS.items() if folder == "tools"]
)
def test_what_the_tools_bring_is_there(name: str) -> None:
    assert attached.attached(name).__module__.startswith("draftwerk_tools.")


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "entry_points", lambda **_: [])
    with pytest.raises(ConfigError, match=r"^loadtest .*, pip install \./tools$"):
        attached.attached("loadtest")


def test_what_a_package_needs_and_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (point,) = entry_points(group=attached.GROUP, name="loadtest")

    class Broken:
        def load(self) -> None:
            raise ModuleNotFoundError("No module named 'ray'", name="ray")

    monkeypatch.setattr(attached, "entry_points", lambda **_: [Broken()])
    with pytest.raises(ConfigError, match=r"^loadtest needs ray: .*, pip install \./tools$"):
        attached.attached(point.name)


def test_a_fault_of_our_own_is_not_taken_for_a_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Faulty:
        def load(self) -> None:
            raise ModuleNotFoundError("No module named 'draftwerk.x'", name="draftwerk.x")

    monkeypatch.setattr(attached, "entry_points", lambda **_: [Faulty()])
    with pytest.raises(ModuleNotFoundError):
        attached.attached("loadtest")
