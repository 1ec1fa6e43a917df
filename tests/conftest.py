"""What every test shares: a marker by its file, one OpenMP thread, and no torch among the fast.

Folders whose tests need torch have a conftest of their own that imports tests/support/one_thread.
"""

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis  # before trio, which would warn where nothing else imports it
import pytest

from tests.support.cache_home import leave_own_cache, use_own_cache

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
"""Before torch is imported, here or in a child: two pools of spinning threads block each other.

Where a test asks for two threads, they wait asleep: a busy machine makes each meeting long.
"""

if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")
"""No verdict depends on how busy a machine is."""

HERE = Path(__file__).parent
MARKERS = {
    "actors/test_simulation.py": "simulation",
    "actors/test_planted_bugs.py": "simulation",
    "api/cli/test_mistakes.py": "model",
    "api/http/test_http_protocol.py": "slow",
    "api/http/test_real_disconnects.py": "model",
    "api/openai/test_response_format.py": "model",
    "api/page": "slow",
    "assembly/test_cache_commands.py": "model",
    "assembly/test_drafter_list.py": "model",
    "assembly/test_lora_adapters.py": "model",
    "assembly/test_model_reading.py": "model",
    "assembly/test_several_models.py": "model",
    "cluster/test_ray_deploy.py": "processes",
    "cluster/test_ray_serve.py": "processes",
    "model/checkpoint/test_default_model.py": "default_model",
    "model/gpu": "gpu_interpreter",
    "model": "model",
    "python_api/test_async_llm.py": "processes",
    "python_api/test_llm.py": "processes",
    "pictures": "model",
    "quantising": "model",
    "speculative/test_distribution.py": "slow",
    "system/test_default_model.py": "default_model",
    "system": "processes",
    "training": "model",
    "trials": "model",
}
"""By file or folder, the first that matches; all others are `fast`."""
LONGEST_FIRST = ("default_model", "simulation", "gpu_interpreter", "model", "fast")
"""In what order workers take files that compute, so that none has a long one left at the end."""
WAITING = ("processes", "slow")
"""Files that wait are taken among the others, one after another: beside them the cores compute."""


def marker(path: Path) -> str:
    """Return the marker of the tests in a file."""
    name = path.relative_to(HERE).as_posix()
    found = (
        mark for start, mark in MARKERS.items() if name == start or name.startswith(start + "/")
    )
    return next(found, "fast")


def in_turn(files: dict[Path, str]) -> dict[Path, float]:
    """Return where each file stands, by its marker: 0 to 1 for all but the fast, which come last.

    Files that wait are spread evenly among those that compute.
    """
    computing = sorted(
        (file for file, mark in files.items() if mark not in WAITING),
        key=lambda file: LONGEST_FIRST.index(files[file]),
    )
    waiting = sorted(
        (file for file, mark in files.items() if mark in WAITING),
        key=lambda file: WAITING.index(files[file]),
    )
    before_fast = [file for file in computing if files[file] != "fast"]
    places = {file: number / len(before_fast) for number, file in enumerate(before_fast)}
    places |= {file: number / len(waiting) for number, file in enumerate(waiting)}
    return dict.fromkeys(files, 1.0) | places


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marks = {item: marker(item.path) for item in items}
    for item, mark in marks.items():
        item.add_marker(mark)
    if hasattr(config, "workerinput"):
        # Each worker has read them in another order.
        items.sort(key=lambda item: item.path)
        places = in_turn({item.path: marks[item] for item in items})
        items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have each worker read folders from another place on: what one has compiled, others load."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker and isinstance(collector, pytest.Directory):
        number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        first = len(report.result) * number // count
        report.result = [*report.result[first:], *report.result[:first]]
    return report


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a cache folder; the workers of one inherit it."""
    gc.disable()  # until all is imported and collected: a quarter of that time
    if not hasattr(config, "workerinput"):
        before = os.environ.get("XDG_CACHE_HOME")
        home = use_own_cache()
        config.add_cleanup(lambda: leave_own_cache(home, before))


def pytest_collection_finish() -> None:
    """Let the collector look at what tests make, never again at what they import."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much was walked, by whatever workers: the sums of what tests have recorded."""
    sums = Counter[str]()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        sums.update({name: count for name, count in report.user_properties if count})
    for name, count in sums.items():
        terminalreporter.write_line(f"{count:,} {name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-torch", action="store_true", help="the fast tests; fail with torch")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--no-torch`, do not even import the tests that are not fast."""
    if config.getoption("--no-torch") and collection_path.name.startswith("test_"):
        return marker(collection_path) != "fast" or None
    return None


@pytest.fixture(autouse=True, scope="session")
def kept_tokenizers() -> Generator[None]:
    """Have the texts of a worker's tests parse each tokenizer once, and try none in a process."""
    from draftwerk.model.text import tokenizer
    from tests.support.kept_tokenizers import kept_tokenizer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "read_tokenizer", kept_tokenizer)
        patch.setattr(tokenizer, "try_tokenizer", lambda directory: None)
        yield


@pytest.fixture
def tried_tokenizers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each tokenizer tried as a server does, half a second long, before it is read."""
    from draftwerk.model.text import tokenizer
    from draftwerk.model.text.guarded.tokenizer_trial import try_tokenizer

    monkeypatch.setattr(tokenizer, "try_tokenizer", try_tokenizer)


@pytest.fixture(autouse=True)
def without_torch(request: pytest.FixtureRequest) -> None:
    """With `--no-torch`: no test, nor what it tests, has imported torch up to here."""
    if request.config.getoption("--no-torch"):
        assert "torch" not in sys.modules, "torch is imported in a run that shall do without it"
