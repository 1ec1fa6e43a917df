"""Memory that large bodies take of a server, and give back."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from textwrap import dedent

import pytest

from draftwerk.machine.child_python import child_environment
from draftwerk.model.checkpoint.hub import locate

CHARACTERS = 900_000
HELD_MAX_MIB, KEPT_MAX_MIB = 250, 120
"""After four texts at a time, and after the server's next look at its memory. Where each thread
has a heap of its own 389 are held, and 175 kept."""
PROGRAM = """
    import json, sys
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from tokenizers import Tokenizer
    from draftwerk.machine.host import return_freed_memory, share_one_heap

    def resident():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))

    assert share_one_heap()
    tokenizer = Tokenizer.from_file(sys.argv[1])
    texts = json.load(sys.stdin)
    before = resident()
    with ThreadPoolExecutor(4) as threads:
        counts = list(threads.map(lambda text: len(tokenizer.encode(text).ids), texts))
        held = resident() - before
        return_freed_memory()
        print(held, resident() - before, min(counts))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_large_texts_took_is_given_back() -> None:
    random = Random(1)
    texts = ["".join(random.choices("abcdefghij klmnop", k=CHARACTERS)) for _ in range(4)]
    tokenizer = locate(None).directory / "tokenizer.json"
    assert Path(tokenizer).is_file()
    ended = subprocess.run(
        [sys.executable, "-P", "-c", dedent(PROGRAM), str(tokenizer)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        env=child_environment(),
        timeout=300,
    )
    held_mib, kept_mib, tokens = map(int, ended.stdout.split())
    assert tokens > CHARACTERS / 5
    assert held_mib < HELD_MAX_MIB
    assert kept_mib < KEPT_MAX_MIB
