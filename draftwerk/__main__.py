"""The `draftwerk` command, which is also `python -m draftwerk`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import Any

    from draftwerk.api.shared.config import Settings
    from draftwerk.api.shared.ports import RunningServer

PROMPTS = ".jsonl"
"""How the name of a file of prompts ends, among the words of `doctor`."""
NEEDLE_TOKENS = (2048,)

# What a command needs is imported when it runs: `--help` and `chat` load no model code, and an
# interrupt of an import is caught. This file imports what every interpreter has imported before it.
INTERRUPTED = 128 + 2
"""The exit code of a program that SIGINT ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        if arguments is None and not reads_utf8():
            os.environ["PYTHONUTF8"] = "1"
            os.execv(sys.executable, [sys.executable, "-m", "draftwerk", *sys.argv[1:]])
        open_closed_streams()
        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def run(words: Sequence[str]) -> int:
    """Run a command by its words; returns the exit code."""
    from draftwerk.api.cli import attached
    from draftwerk.api.cli.arguments import parser
    from draftwerk.api.cli.elsewhere import translated
    from draftwerk.settings.setting_fields import ConfigError

    words = translated(words)
    try:
        if words and words[0] in attached.COMMANDS:
            return attached.attached(words[0])(list(words[1:]))
        parsed = vars(parser().parse_args(words))
        return COMMANDS[parsed.pop("command")](parsed)
    except ConfigError as error:
        print(f"draftwerk: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # of `draftwerk doctor | head`
        from draftwerk.api.cli.progress_line import drop_output

        drop_output(sys.stdout)
        return 1


def open_closed_streams() -> None:
    """Open what of the standard streams the parent closed: sockets would get their numbers."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(opened, True)
    os.close(opened)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def reads_utf8() -> bool:
    """Whether this process takes words, paths and files as UTF-8, as its children will too."""
    import codecs
    import locale

    encodings = (sys.getfilesystemencoding(), locale.getpreferredencoding(do_setlocale=False))
    return {codecs.lookup(encoding).name for encoding in encodings} == {"utf-8"}


def serve_command(parsed: dict[str, Any]) -> int:
    """Serve until a signal to stop."""
    from draftwerk.api.cli.arguments import settings_of

    settings = settings_of(parsed)
    if settings.replicas:
        from draftwerk.api.cli.attached import attached

        return attached("replicas")(settings)

    from draftwerk.api.app.server import serve

    return serve(settings, build)


def build(
    settings: Settings, report: Callable[[str], None]
) -> AbstractAsyncContextManager[RunningServer]:
    """Run the engine; its imports take half a second, in which the socket is already bound."""
    from draftwerk.assembly.model_entries import serves_several
    from draftwerk.assembly.several_models import build_models
    from draftwerk.pictures.attach import build_pictured

    if serves_several(settings):
        return build_models(settings, report)
    return build_pictured(settings, report)


def chat_command(parsed: dict[str, Any]) -> int:
    """Talk to a server."""
    from draftwerk.api.cli.arguments import chat_command as chat

    return chat(parsed)


def doctor_command(parsed: dict[str, Any]) -> int:
    """Look at the machine, and at what the model does on it."""
    from pathlib import Path

    from draftwerk.api.cli.arguments import settings_of
    from draftwerk.api.cli.attached import attached
    from draftwerk.assembly.build import measure
    from draftwerk.assembly.cache_commands import cached_files
    from draftwerk.assembly.doctor import doctor
    from draftwerk.assembly.kernels import describe
    from draftwerk.settings.setting_fields import ConfigError

    wanted, writes = parsed.pop("fingerprint", False), parsed.pop("write", False)
    asked, needles = parsed.get("approximate", []), parsed.pop("needle", [])
    files = [word for word in parsed.get("model", []) if word.endswith(PROMPTS)]
    parsed["model"] = [word for word in parsed.get("model", []) if word not in files]
    blends = asked == ["blend"]
    if blends:
        del parsed["approximate"]
    settings = settings_of(parsed)
    if settings.also or settings.models:
        raise ConfigError("doctor looks at one model at a time")
    if blends:
        return attached("blend-trial")(settings, Path(files[0]) if files else None)
    if asked:
        path = Path(files[0]) if files else None
        return attached("approximation-trial")(settings, path, needles or NEEDLE_TOKENS)
    if wanted:
        return attached("fingerprint-trial")(settings, writes)
    if writes:
        raise ConfigError("--write goes with --fingerprint")
    return doctor(settings, describe, measure, cached_files)


def pull_command(parsed: dict[str, Any]) -> int:
    """Fetch a model from a hub."""
    from draftwerk.assembly.model_files import pull

    return pull(parsed["model"])


def models_command(parsed: dict[str, Any]) -> int:
    """List the models that were pulled, the families that are served, or what drafts for one."""
    from draftwerk.assembly.drafter_list import list_drafters
    from draftwerk.assembly.model_files import list_families, list_models

    if model := parsed.get("drafters"):
        return list_drafters(model)
    return list_families() if parsed.get("families") else list_models()


def rm_command(parsed: dict[str, Any]) -> int:
    """Remove models that were pulled."""
    from draftwerk.assembly.model_files import remove

    return remove(parsed["models"])


def cache_command(parsed: dict[str, Any]) -> int:
    """List what is kept on disk, or clear it."""
    from draftwerk.assembly.cache_commands import cache_files

    return cache_files(parsed["action"], parsed["names"], parsed["max"], parsed["old"])


COMMANDS: dict[str, Callable[[dict[str, Any]], int]] = {
    "serve": serve_command,
    "chat": chat_command,
    "doctor": doctor_command,
    "pull": pull_command,
    "models": models_command,
    "rm": rm_command,
    "cache": cache_command,
}


if __name__ == "__main__":
    sys.exit(main())
