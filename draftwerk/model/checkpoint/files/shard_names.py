"""Names of the files that a GGUF model is divided into."""

import re
from pathlib import Path

from draftwerk.model.checkpoint.unsupported import Refused

SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def model_name(path: Path) -> str:
    """Return what a file's model is called, without which part of it the file is."""
    found = SHARD_NAME.fullmatch(path.name)
    return path.stem if found is None else found["stem"]


def shard_paths(path: Path) -> tuple[Path, ...]:
    """Return all files of the model that a file is one of. Raises Refused for one missing."""
    found = SHARD_NAME.fullmatch(path.name)
    if found is None:
        return (path,)
    count = found["count"]
    names = [f"{found['stem']}-{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1)]
    paths = tuple(path.with_name(name) for name in names)
    for number, each in enumerate(paths, 1):
        if not each.is_file():
            raise Refused(f"{each}: it is missing, part {number} of {len(paths)}")
    return paths
