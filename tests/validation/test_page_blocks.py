"""Blocks of a page are found with their commands, and printed text is compared with the shown."""

from pathlib import Path

import pytest

from draftwerk.api.cli.arguments import parser
from validation.page_blocks import (
    NOT_RUN,
    blocks_of,
    commands_of,
    is_as_shown,
    is_server,
    without_comment,
)
from validation.pages import PAGES

ROOT = Path(__file__).parents[2]
PAGE = """# A
<!-- not run: no such thing -->
```sh
one
```
- item
  ```toml file.toml
  a = 1
  ```
"""


def test_blocks_have_a_line_a_kind_a_file_and_a_note():
    heading, shell, file = blocks_of(PAGE)
    assert (heading.kind, heading.text) == ("heading", "# A")
    assert (shell.kind, shell.text, shell.note) == ("sh", "one\n", NOT_RUN + "no such thing")
    assert (file.kind, file.text, file.file) == ("toml", "a = 1\n", "file.toml")


def test_a_command_goes_on_over_lines_and_quotes():
    block = "one 'a\nb' \\\n  -c\ntwo <<< x | cat\n"
    assert list(commands_of(block)) == ["one 'a\nb' \\\n  -c", "two <<< x | cat"]
    with pytest.raises(ValueError, match="no whole command"):
        list(commands_of("one 'a"))


@pytest.mark.parametrize(
    ("printed", "shown", "is_same"),
    [
        ("x\nTrue\n2.5\n", "True\n…", True),
        ('{"name": "A", "people": 3}', '{"name": "…", "people": …}', True),
        ("False\n2.5", "True\n…", False),
    ],
)
def test_output_is_as_shown_but_for_placeholders(printed: str, shown: str, is_same: bool):
    assert is_as_shown(printed, shown) is is_same


@pytest.mark.parametrize("page", PAGES)
def test_every_server_of_a_page_is_a_command_line_of_ours(page: str):
    """Whole runs are by hand: `python -m validation.pages`."""
    blocks = [
        block
        for block in blocks_of((ROOT / page).read_text(encoding="utf-8"))
        if block.kind == "sh"
    ]
    commands = [line for block in blocks for line in commands_of(block.text)]
    servers = [line for line in commands if is_server(line) and "make" not in line]
    for line in servers:
        words = line.partition("#")[0].partition("draftwerk serve")[2].split()
        assert parser().parse_args(["serve", *words]).command == "serve"
    assert commands


def test_a_comment_behind_a_command_hides_nothing_that_is_added() -> None:
    assert without_comment("draftwerk serve --port 1   # a # b") == "draftwerk serve --port 1"
    assert without_comment("curl http://a/#part") == "curl http://a/#part"
