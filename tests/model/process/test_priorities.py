"""How nice model processes are, as they load and as they serve."""

import os
import subprocess
import sys

import msgspec
import pytest

from draftwerk.machine.host import NICENESS
from draftwerk.model.checkpoint.model_options import ModelOptions

if not sys.platform.startswith("linux"):
    pytest.skip("a niceness of single threads is Linux's", allow_module_level=True)
if os.getpriority(os.PRIO_PROCESS, 0) > NICENESS:
    pytest.skip("these tests are behind other programs themselves", allow_module_level=True)

THREADS = """
import os, threading, time
from draftwerk.machine.host import lower_priority
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
lower_priority({niceness})
print(*(os.getpriority(os.PRIO_PROCESS, int(name)) for name in os.listdir("/proc/self/task")))
os._exit(0)
"""
LOADING = """
import os
from draftwerk.model.process import role

def build(*_, **__):
    print(os.getpriority(os.PRIO_PROCESS, 0), flush=True)
    os._exit(0)

role.build = build
role.build_role("target", {options!r}, lambda line: None)
"""


def printed(code: str) -> list[int]:
    """Return the numbers that a Python process prints which begins as nice as others."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(map(int, done.stdout.split()))


def test_all_threads_of_a_process_go_behind() -> None:
    own, *others = printed(THREADS.format(niceness=NICENESS + 1))
    assert others
    assert {own, *others} == {NICENESS + 1}


@pytest.mark.parametrize("behind", [False, True])
def test_a_successor_loads_as_any_program_and_a_spare_behind(behind: bool) -> None:
    options = msgspec.json.encode(ModelOptions(loads_behind=behind))
    (before,) = printed("import os; print(os.getpriority(os.PRIO_PROCESS, 0))")
    (while_loading,) = printed(LOADING.format(options=options))
    assert while_loading == (NICENESS if behind else before)
