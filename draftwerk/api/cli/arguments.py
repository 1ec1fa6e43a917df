"""What the `draftwerk` command understands; the flags of `serve` are the fields of Settings."""

import argparse
import os
import sys
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from draftwerk.api.cli.attached import COMMANDS
from draftwerk.api.cli.command_parser import Help, Parser, ShortHelp
from draftwerk.api.cli.flag_groups import FLAG_GROUPS
from draftwerk.api.shared.config import Settings, load
from draftwerk.machine.version import __version__
from draftwerk.settings.setting_fields import ConfigError, SettingField, fields_of

DEFAULT_URL = "http://127.0.0.1:8000"


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    root = Parser(
        prog="draftwerk", description="An LLM server that decodes speculatively and exactly."
    )
    root.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = root.add_subparsers(dest="command", required=True)
    absent = argparse.SUPPRESS
    _add_settings(_with_short_help(commands, "serve", "serve a model"))
    _add_chat(commands.add_parser("chat", help="talk to a server", argument_default=absent))
    _add_doctor(
        commands.add_parser(
            "doctor", help="tell whether this machine can serve", argument_default=absent
        )
    )
    _add_pull(commands.add_parser("pull", help="fetch a model from a hub, or go on fetching it"))
    _add_models(commands.add_parser("models", help="list the models that were pulled"))
    _add_rm(commands.add_parser("rm", help="remove models that were pulled"))
    _add_cache(commands.add_parser("cache", help="list what is kept on disk, or clear it"))
    for name, sentence in COMMANDS.items():
        commands.add_parser(name, help=sentence)
    return root


def _with_short_help(commands: Any, name: str, sentence: str) -> Parser:
    """Return a command's parser whose `--help` may name a flag or a group."""
    command = commands.add_parser(
        name,
        help=sentence,
        argument_default=argparse.SUPPRESS,
        add_help=False,
        formatter_class=ShortHelp,
        usage="%(prog)s [MODEL ...] [--FLAG VALUE ...]; %(prog)s --help NAME tells a flag whole",
    )
    command.add_argument(
        "-h", "--help", nargs="?", action=Help, metavar="NAME", help="this, or one flag or group"
    )
    return command


def settings_of(parsed: dict[str, Any]) -> Settings:
    """Return the settings of a parsed command, the file and the environment beneath them."""
    words: list[str] = parsed.pop("model", [])
    if words:
        parsed["model"] = words[0]
    if words[1:]:
        parsed["also"] = [*words[1:], *parsed.get("also", [])]
    config = parsed.pop("config", None) or os.environ.get("DRAFTWERK_CONFIG")
    return load(parsed, os.environ, Path(config) if config else None)


def chat_command(parsed: dict[str, Any]) -> int:
    """Talk in the terminal."""
    from draftwerk.api.cli.chat import ChatSession, chat

    fields = {name: parsed[name] for name in ("model", "temperature", "max_tokens", "seed")
              if name in parsed}  # fmt: skip
    if not parsed.get("speculation", True):
        fields["speculation"] = {"enabled": False}
    system = parsed.get("system")
    conversation = ChatSession(
        url=server_url(parsed.get("url", DEFAULT_URL)),
        api_key=parsed.get("api_key", os.environ.get("OPENAI_API_KEY", "")),
        fields=fields,
        messages=[{"role": "system", "content": system}] if system else [],
        colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ,
    )
    return chat(conversation, parsed.get("text"))


def server_url(url: str) -> str:
    """Return a server's URL without /v1. Raises ConfigError for what is none."""
    root = url.rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(root)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        is_url = False
    if not is_url:
        raise ConfigError(f"{root!r} is no URL; write for example {DEFAULT_URL}")
    return root


def _number(text: str) -> float:
    """Return a number that JSON has."""
    with suppress(ValueError):
        if isfinite(value := float(text)):
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is no number")


def _add_chat(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="?", help="one question; without it, a conversation")
    command.add_argument("--url", help=f"the server (default: {DEFAULT_URL})")
    command.add_argument("--api-key", metavar="KEY", help="or $OPENAI_API_KEY")
    command.add_argument("-m", "--model", help="the model's name, where a server has several")
    command.add_argument("--system", metavar="TEXT", help="the system message")
    command.add_argument("--temperature", type=_number, metavar="N")
    command.add_argument("--max-tokens", type=int, metavar="N")
    command.add_argument("--seed", type=int, metavar="N", help="the same seed, the same answer")
    command.add_argument(
        "--speculation",
        action=argparse.BooleanOptionalAction,
        help="guess ahead; the answer is the same without",
    )


def _add_doctor(command: Parser) -> None:
    command.add_argument(
        "--fingerprint",
        action="store_true",
        help="compare digests of the model's logits, in each format, with those of other machines",
    )
    command.add_argument(
        "--write",
        action="store_true",
        help="with --fingerprint: keep the digests found as those expected from now on",
    )
    command.add_argument(
        "--needle",
        type=int,
        action="append",
        metavar="TOKENS",
        help="with --approximate: of a text in which a number is to be found; may be repeated",
    )
    _add_settings(command)


def _add_pull(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "model", metavar="NAME", help="org/name, org/name-GGUF:Q4_K_M, or org/name/file.gguf"
    )


def _add_cache(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", nargs="?", choices=("list", "clear"), default="list")
    command.add_argument(
        "names", nargs="*", metavar="NAME", help="of clear: entries, models or kinds; else all"
    )
    command.add_argument(
        "--max", default="", metavar="SIZE", help="of clear: keep so much, what was used last"
    )
    command.add_argument(
        "--old", action="store_true", help="of clear: only what no start of this version uses"
    )


def _add_models(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--families", action="store_true", help="list the families that are served instead"
    )
    command.add_argument(
        "--drafters", metavar="MODEL", help="list what --draft-head may name for a model instead"
    )


def _add_rm(command: argparse.ArgumentParser) -> None:
    command.add_argument("models", nargs="+", metavar="NAME", help="as `draftwerk models` has them")


def _add_settings(command: Parser) -> None:
    """Add the flags of all settings by groups, and a help that tells one of them whole."""
    fields = fields_of(Settings)
    command.add_argument("--config", metavar="FILE.toml", help="a file of these settings")
    for title, names in FLAG_GROUPS.items():
        group = command.add_argument_group(title)
        for name in names:
            field = fields[name]
            if name == "model":
                more = "; a folder of models, or several words, are several models"
                group.add_argument(
                    "model", nargs="*", metavar="MODEL", help=field.description + more
                )
            else:
                group.add_argument(field.flag, **_flag(field))


def _flag(field: SettingField) -> dict[str, Any]:
    """Return argparse's description of one setting; values are checked later, with the rest."""
    default = "" if field.default in ("", (), False) else f" (default: {field.default})"
    help_text = (field.description + default).replace("%", "%%")
    if field.type is bool:
        return {"action": argparse.BooleanOptionalAction, "help": help_text}
    if get_origin(field.type) is tuple:
        return {"action": "append", "help": help_text, "metavar": field.metavar}
    if get_origin(field.type) is Literal:
        return {"choices": get_args(field.type), "help": help_text}
    metavar = field.metavar or {int: "N", float: "N"}.get(field.type)
    return {"help": help_text, "metavar": metavar}
