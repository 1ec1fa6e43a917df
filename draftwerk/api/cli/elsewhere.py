"""Flags and commands of other servers: obeyed where ours mean the same, else answered by name."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from draftwerk.api.cli.other_servers import (
    MODEL,
    OTHER_COMMANDS,
    OTHER_FLAGS,
    SAME_COMMANDS,
    SAME_FLAGS,
    SAME_VALUES,
)

ONE_MODEL = "a model is named once; --also MODEL adds another"
ONE_VALUE = "a flag takes one value, and is repeated for more"


def _by_flag(hints: Mapping[str, str]) -> dict[str, str]:
    return {flag: hint for flags, hint in hints.items() for flag in flags.split()}


SAME, OTHER = _by_flag(SAME_FLAGS), _by_flag(OTHER_FLAGS)
FAMILIES = {name: hint for name, hint in OTHER.items() if "*" in name}
"""Hints for families of flags."""

ALIKE, NEAR = 0.85, 0.7
"""How much of a word's letters a flag has that was certainly meant, and one that may have been."""


def translated(words: Sequence[str]) -> list[str]:
    """Return a command line with other servers' flags and commands by our names."""
    if not words:
        return []
    command = SAME_COMMANDS.get(words[0], words[0])
    if command not in ("serve", "doctor"):
        return [command, *words[1:]]
    return [command, *_own_flags(words[1:])]


def _own_flags(words: Sequence[str]) -> Iterator[str]:
    flag, names_model = "", False
    for word in words:
        if not word.startswith("-"):
            yield SAME_VALUES.get(flag, {}).get(word, word)
            continue
        flag, equals, value = word.partition("=")
        flag = SAME.get(flag, flag)
        value = SAME_VALUES.get(flag, {}).get(value, value)
        if flag != MODEL:
            yield flag + equals + value
        elif names_model:
            yield word
        elif equals:
            yield value
        names_model |= flag == MODEL


def hint_for_flag(flag: str, known: Collection[str]) -> str:
    """Return what to write in place of a flag that is none, or nothing."""
    if SAME.get(flag) == MODEL:
        return ONE_MODEL
    if not flag.startswith("-"):
        return ONE_VALUE
    flag = flag.replace("_", "-")
    if flag in known or flag in SAME:
        return f"did you mean {flag}?"
    return (
        OTHER.get(flag)
        or _nearest(flag, known, ALIKE)
        or _of_family(flag)
        or _nearest_elsewhere(flag)
        or _nearest(flag, known)
    )


def is_elsewhere(flag: str) -> bool:
    """Return whether a flag is another server's."""
    return flag in SAME or flag in OTHER or bool(_of_family(flag))


def hint_for_command(command: str, known: Collection[str]) -> str:
    """Return what to write in place of a command that is none, or nothing."""
    if (hint := OTHER_COMMANDS.get(command)) is not None:
        return hint
    return _nearest(command, [*known, *SAME_COMMANDS])


def _of_family(flag: str) -> str:
    return next((hint for name, hint in FAMILIES.items() if fnmatchcase(flag, name)), "")


def _nearest_elsewhere(flag: str) -> str:
    """Return what to write in place of another server's flag that is misspelt, or nothing."""
    names = [name for name in (*SAME, *OTHER) if name not in FAMILIES]
    for name in get_close_matches(flag, names, n=1, cutoff=ALIKE):
        return f"did you mean {name}? {OTHER.get(name, '')}".rstrip()
    return ""


def _nearest(word: str, known: Collection[str], cutoff: float = NEAR) -> str:
    """Return the question whether a word of the same parts or of alike letters was meant."""
    parts = sorted(word.split("-"))
    near = [name for name in known if sorted(name.split("-")) == parts]
    near += get_close_matches(word, known, n=1, cutoff=cutoff)
    return f"did you mean {SAME_COMMANDS.get(near[0], near[0])}?" if near else ""
