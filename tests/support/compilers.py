"""Compilers that tests put in place of real ones."""

from pathlib import Path


def hanging_compiler(folder: Path) -> tuple[Path, Path]:
    """Return a compiler that never ends, and where the process that it starts is written down."""
    command, started = folder / "hangs", folder / "started"
    command.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && exec echo hangs 1\n'
        f"sh -c 'echo $$ > {started}.new && mv {started}.new {started} && exec sleep 1000'\n"
        "echo it goes on\n"
    )
    command.chmod(0o755)
    return command, started


def is_running(process_id: int) -> bool:
    """Return whether a process runs, and is not one that has ended and waits for its parent."""
    try:
        status = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
