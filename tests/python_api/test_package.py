"""The package's front: its names, its version, and what importing it costs."""

import subprocess
import sys
import typing
from collections.abc import Sequence
from importlib import import_module
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

import draftwerk
from draftwerk.__main__ import main
from draftwerk.python_api.engine_keywords import EngineKeywords, StrPath
from draftwerk.settings.engine_settings import EngineSettings

HEAVY = {"anyio", "asyncio", "numpy", "starlette", "tokenizers", "torch", "uvicorn", "uvloop"}


def test_every_public_name_is_there() -> None:
    assert set(draftwerk.__all__) <= set(dir(draftwerk))
    for name in draftwerk.__all__:
        found = getattr(draftwerk, name)
        if isinstance(found, type):
            assert getattr(import_module(found.__module__), name) is found
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = draftwerk.Nonsense  # pyright: ignore


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("import draftwerk", {"msgspec", "importlib.metadata"}),
        ("from draftwerk import SamplingParams; SamplingParams(seed=1)", set[str]()),
        ("from draftwerk import RequestError, ConfigError, Speculation", set[str]()),
    ],
)
def test_importing_it_imports_nothing_heavy(code: str, more: set[str]) -> None:
    check = f"import sys; {code}; print(*{HEAVY | more!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_an_engine_imports_no_torch_here() -> None:
    check = "import sys, draftwerk.python_api.llm; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_its_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"draftwerk {draftwerk.__version__}\n"


def test_keywords_are_the_settings_of_the_engine() -> None:
    """The TypedDict is there for editors and type checkers; the Struct is the truth."""
    hints = get_type_hints(EngineKeywords)
    settings = {each.name: each.type for each in msgspec.structs.fields(EngineSettings)}
    settings.pop("model")
    assert list(hints) == list(settings)
    for name, kind in settings.items():
        bare = get_args(kind)[0] if get_origin(kind) is typing.Annotated else kind
        if name in ("draft", "draft_head", "kv_store", "kv_key", "weight_store"):
            assert hints[name] == StrPath
        elif name in ("served_model_name", "lora", "lora_merge", "kv_peers", "approximate"):
            assert (hints[name], bare) == (Sequence[str], tuple[str, ...])
        elif get_origin(bare) is Literal:
            assert get_args(hints[name]) == get_args(bare)
        else:
            assert hints[name] == bare


def test_a_fork_of_the_program_has_no_engine_and_says_so() -> None:
    code = """
import asyncio, os
from draftwerk.python_api.errors import ClosedError
from draftwerk.python_api.loop_thread import LoopThread
loop = LoopThread()
child = os.fork()
try:
    loop.run(asyncio.sleep(0))
except ClosedError as error:
    os._exit(7 if "process that made it" in str(error) else 8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
loop.run(asyncio.sleep(0))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
