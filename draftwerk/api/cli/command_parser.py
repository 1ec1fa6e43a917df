"""argparse as the command uses it: answers in one line, and a help that is short."""

import argparse
from typing import Any, NoReturn, cast

from draftwerk.api.cli.elsewhere import hint_for_command, hint_for_flag, is_elsewhere
from draftwerk.api.cli.flag_groups import FLAG_GROUPS
from draftwerk.api.shared.config import PREFIX, Settings
from draftwerk.settings.setting_fields import fields_of

NO_COMMAND = "argument command: invalid choice: "
"""How argparse begins what it says of a command that is none."""
INVALID = ": invalid choice: "
NO_FLAG = "unrecognized arguments: "


class ShortHelp(argparse.HelpFormatter):
    """A line for each flag: the first clause of what it does."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)

    def _split_lines(self, text: str, width: int) -> list[str]:
        first = text.partition(";")[0]
        return [first if len(first) <= width else first[: width - 1] + "…"]


class Help(argparse.Action):
    """`--help` shows all flags in short, and `--help NAME` one flag or group whole."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: Any = None
    ) -> None:
        if not values:
            parser.print_help()
            parser.exit()
        fields, name = fields_of(Settings), values.lstrip("-")
        if name.replace(".", "").isdigit():
            parser.error(f"-h is --help; an address is --host {name}")
        for each in FLAG_GROUPS.get(name, (name.replace("-", "_"),)):
            if each not in fields:
                flag = f"-h{name}"  # such as -hff, which is another server's
                parser.error(NO_FLAG + (flag if is_elsewhere(flag) else f"--{name}"))
            field = fields[each]
            print(f"{field.flag}: {field.description}")
            print(f"    default {field.default!r}; environment {PREFIX}{each.upper()}; file {each}")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse with one line for an error, which says what was probably meant.

    Flags are written out: an abbreviation may be another server's flag.
    """

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.allow_abbrev = False

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] (its overloads)
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """Refuse what a command does not know, so that the answer is of its own flags."""
        namespace, rest = super().parse_known_args(args, namespace)
        if rest and not self.commands():
            self.error(NO_FLAG + " ".join(rest))
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        hint = ""
        if message.startswith(NO_COMMAND):
            command = message.removeprefix(NO_COMMAND).split("'")[1]
            message = f"there is no command {command}"
            hint = hint_for_command(command, self.commands())
        elif message.startswith(NO_FLAG):
            words = message.removeprefix(NO_FLAG).split()
            word = next((word for word in words if word.startswith("-")), words[0])
            flag = word.partition("=")[0]
            message = f"there is no {flag}"
            hint = hint_for_flag(flag, self._option_string_actions)
        elif INVALID in message:
            hint = f"see {self.prog} --help {message.split(':')[0].removeprefix('argument --')}"
        self.exit(2, f"{self.prog}: {message}; {hint or f'see {self.prog} --help'}\n")

    def commands(self) -> "dict[str, Parser]":
        """Return the parsers of commands, by name."""
        none: dict[str, Parser] = {}
        choices = (cast(Any, action.choices) for action in self._actions)
        return next((named for named in choices if hasattr(named, "values")), none)
