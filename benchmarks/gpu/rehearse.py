"""A visit rehearsed from what travels alone: the repository's files and the carried folders.

    python -m benchmarks.gpu rehearse [--python PATH] [--minutes 6]

PATH is a Python with torch and Triton, of the version that the card's machine has; by default this
one. The visit gets an environment of its packages without those that such a machine lacks, a home
of its own, and no card: every stage must come to its end, with device times pending alone.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from benchmarks.gpu.carry import FOLDERS, MODEL_PACKAGE, PACKAGES, ROOT, UNPINNED
from benchmarks.gpu.carry import main as carry

LACKING = (*PACKAGES, *UNPINNED, MODEL_PACKAGE, "draftwerk", "flash-attn", "vllm")
"""What such a machine has not, and what would lead back to this checkout."""
LIST_PACKAGES = """
import json, sys, sysconfig
from importlib.metadata import distributions
tops = {}
for each in distributions():
    tops.setdefault(each.name.lower().replace("-", "_"), []).extend(
        {str(path).split("/")[0] for path in each.files or () if not str(path).startswith(".")})
paths = sysconfig.get_paths()
version = ".".join(map(str, sys.version_info[:2]))
print(json.dumps([paths["purelib"], paths["include"], version, tops]))
"""
CHECK = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n)))"
SPARED = ("__pycache__", "__editable__", "_virtualenv")


def environment(python: str, target: Path) -> tuple[Path, str]:
    """Make an environment of a Python's packages without those that are LACKING.

    Return its interpreter and its version. Raises SystemExit where one of them is found all the
    same.
    """
    printed = subprocess.run(
        [python, "-c", LIST_PACKAGES], check=True, capture_output=True, text=True
    ).stdout
    folder, _, version, tops = json.loads(printed)
    subprocess.run([python, "-m", "venv", "--without-pip", str(target)], check=True)
    site = target / "lib" / f"python{version}" / "site-packages"
    names = {name.lower().replace("-", "_") for name in LACKING}
    left_out = {top for name in names for top in tops.get(name, ())}
    for path in Path(folder).iterdir():
        if path.name not in left_out and not path.name.startswith(SPARED) and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    interpreter = target / "bin" / "python"
    found = subprocess.run(
        [interpreter, "-P", "-c", CHECK, *sorted(names)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    if found:
        sys.exit(f"rehearse: the environment has {', '.join(found)}, which a card's machine lacks")
    return interpreter, version


def checkout(target: Path, carried: Path) -> None:
    """Lay out the repository's files, as they are, and the carried folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    for folder in FOLDERS:
        shutil.copytree(carried / folder, target / folder)


def rehearse(python: str, root: Path, carried: Path | None, minutes: float) -> bool:
    """Rehearse a visit below `root`; return whether every stage has come to its end in time."""
    interpreter, version = environment(python, root / "environment")
    if carried is None:
        carried = root / "carried"
        if carry(["--python", version, "--root", str(carried), "--without-flash-attention"]):
            return False
    tree, home, out = (root / name for name in ("tree", "home", "out"))
    checkout(tree, carried)
    home.mkdir()
    command = [interpreter, "-m", "benchmarks.gpu", "visit", "--smoke"]
    kept = ("PATH", "LANG", "OMP_NUM_THREADS", "LD_LIBRARY_PATH")
    variables = {name: value for name in kept if (value := os.environ.get(name))}
    began = monotonic()
    ended = subprocess.run(
        [*command, "--minutes", str(minutes), "--out", str(out)],
        cwd=tree,
        env=variables | {"HOME": str(home), "TMPDIR": str(home)},
        check=False,
    )
    print(f"{monotonic() - began:.0f} s on Python {version}")
    for log in sorted(out.glob("*.log")) if ended.returncode else ():
        print(f"\n{log.name}\n{log.read_text('utf-8')[-2000:]}")
    return ended.returncode == 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu rehearse",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--python", default=sys.executable, help="whose packages are taken")
    parser.add_argument("--carried", type=Path, help="where `carry --root` laid them out")
    parser.add_argument("--minutes", type=float, default=6.0, help="for the visit")
    parser.add_argument("--keep", type=Path, help="a new folder for all of it; else it goes")
    given = parser.parse_args(arguments)
    if given.keep is not None:
        given.keep.mkdir(parents=True)
        return (
            0 if rehearse(given.python, given.keep.absolute(), given.carried, given.minutes) else 1
        )
    with TemporaryDirectory() as root:
        return 0 if rehearse(given.python, Path(root), given.carried, given.minutes) else 1
