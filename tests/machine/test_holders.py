"""Which processes are a server's, and what each holds."""

from pathlib import Path

import pytest

from draftwerk.machine.holders import FORKED, Holder, holders, role_of


@pytest.mark.parametrize(
    ("words", "role"),
    [
        ("python -P -m draftwerk serve --port 1", "serve"),
        ("/usr/bin/python /usr/bin/draftwerk serve", "serve"),
        ("python -P -m draftwerk.model.process.worker target {}", "target"),
        ("python -P -m draftwerk.model.process.worker rank {}", "rank"),
        ("vim draftwerk.md", ""),
    ],
)
def test_a_command_line_says_what_a_process_is_for(words: str, role: str) -> None:
    assert role_of(words.split()) == role


def test_what_a_nursery_forked_goes_by_its_name() -> None:
    words = ["python", "-P", "-m", "draftwerk.model.process.fork_server", "{}"]
    assert role_of(words, "python3") == "fork_server"
    assert role_of(words, FORKED + "target") == "target"


def test_what_is_shared_is_told_apart(tmp_path: Path) -> None:
    commands = {
        7: "python\0-m\0draftwerk\0serve",
        12: "bash",
        30: "x\0draftwerk.model.process.worker\0target",
    }
    for number, command in commands.items():
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "cmdline").write_text(command)
        if number != 30:
            (folder / "smaps_rollup").write_text(
                "0-1 ---p [rollup]\nPss: 60 kB\nPss_Anon: 10 kB\nPss_File: 20 kB\n"
                "Pss_Shmem: 30 kB\n"
            )
    assert holders(tmp_path) == [Holder(7, "serve", 10240, 30720, 20480)], "one has gone meanwhile"
    assert holders(tmp_path)[0].total_bytes == 60 * 1024
    assert holders(tmp_path / "none") == []
