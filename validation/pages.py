"""Runs what the README, the tutorial and the how-to show, as it stands.

    python -m validation.pages [PAGE ...] [--port 8000] [--install] [--from LINE]

Each page runs in a clone of the last commit, in one shell and one Python, block after block. A
server that a page starts serves until the next one; where a heading needs one and starts none, it
is the built-in model's. JSON is added to a request's body; a file that is shown is written; `text`
is what the block before prints, but for what stands for anything. Models of a hub come from one on
this machine. Blocks that cannot run here are marked in the page, with the reason.
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from validation.page_blocks import (
    ANSWERS,
    NOT_RUN,
    PageBlock,
    blocks_of,
    commands_of,
    is_as_shown,
    is_server,
)
from validation.page_stage import (
    PageFailure,
    PagePython,
    PageServer,
    PageShell,
    clone,
    environment,
    placeholders,
    substituted,
)

PAGES = ("README.md", "docs/tutorial.md", "docs/how-to.md")


class PageRun:
    """A page that is being run."""

    def __init__(self, folder: Path, meanings: dict[str, str], hub: str, port: int) -> None:
        variables = environment(folder, hub, port)
        self.port, self.meanings, self.folder = port, meanings, folder
        self.shell = PageShell(folder, variables)
        self.python = PagePython(folder, variables, folder / ".venv/bin/python")
        self.server = PageServer(self.shell, port)
        self.printed = ""

    def run(self, block: PageBlock) -> None:
        """Run a block. Raises PageFailure where it does not do what it shows."""
        match block.kind:
            case "heading":
                if block.text.startswith("### "):
                    self.server.stop()
            case "sh":
                for command in commands_of(block.text):
                    self._command(command, block.note)
            case "python":
                self._serve()
                self.printed = self.python.run(substituted(block.text, {}, self.port))
            case "json":
                self._serve()
                for line in block.text.splitlines():
                    self.server.ask(json.loads(line))
            case "text":
                if not is_as_shown(self.printed, block.text):
                    raise PageFailure(f"printed:\n{self.printed}\nshown:\n{block.text}")
            case _ if block.file:
                (self.folder / block.file).write_text(block.text, encoding="utf-8")
            case _:
                pass

    def _command(self, command: str, note: str) -> None:
        command = substituted(command, self.meanings, self.port)
        if is_server(command):
            self.server.start(command)
            return
        if "127.0.0.1" in command:
            self._serve()
        code, self.printed = self.shell.run(command)
        is_refused = '"error":' in self.printed and command.startswith("curl")
        if code or is_refused != note.startswith(ANSWERS):
            raise PageFailure(f"{command}\nexit code {code}:\n{self.printed[-2000:]}")

    def _serve(self) -> None:
        if not self.server.is_up:
            self.server.start("draftwerk serve")

    def close(self) -> None:
        self.server.stop()
        self.python.close()
        self.shell.close()


def run_page(page: str, given: argparse.Namespace) -> int:
    """Run a page in a clone of its own; returns how many blocks failed."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "draftwerk"
        clone(folder, None if given.install else Path(sys.prefix))
        with placeholders(folder) as (meanings, hub):
            run = PageRun(folder, meanings, hub.url, given.port)
            text = (folder / page).read_text(encoding="utf-8")
            chosen = [block for block in blocks_of(text) if block.line >= given.first or block.file]
            try:
                return sum(shown(run, page, block) for block in chosen)
            finally:
                run.close()


def shown(run: PageRun, page: str, block: PageBlock) -> int:
    """Run a block and print how it went; returns 1 for a failure."""
    if block.note.startswith(NOT_RUN):
        print(f"{page}:{block.line}: {block.note}", flush=True)
        return 0
    try:
        run.run(block)
    except (PageFailure, ValueError, OSError) as error:
        print(f"{page}:{block.line}: FAILED\n{error}", flush=True)
        return 1
    if block.kind != "heading":
        print(f"{page}:{block.line}: {block.kind}: as shown", flush=True)
    return 0


def main() -> int:
    """Run the pages; returns the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("pages", nargs="*", default=PAGES, metavar="PAGE")
    parser.add_argument("--port", type=int, default=8000, help="in place of 8000")
    parser.add_argument("--install", action="store_true", help="set up anew, with `make`")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="LINE")
    given = parser.parse_args()
    return int(sum(run_page(page, given) for page in given.pages) > 0)


if __name__ == "__main__":
    sys.exit(main())
