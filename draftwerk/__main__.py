"""The `draftwerk` command, which is also `python -m draftwerk`."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftwerk.api.cli.arguments import LOADTEST, chat_command, parser, settings_of
from draftwerk.api.core.config import Settings
from draftwerk.settings.setting_fields import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

    from draftwerk.assembly.build import RunningEngine

TPOT_MS = 50.0
"""What a report takes as promised unless told."""
# What a command needs is imported when it runs: `--help` and `chat` load no model code.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] == LOADTEST:
        from draftwerk.loadtest.__main__ import main as loadtest

        return loadtest(list(words[1:]))
    parsed = vars(parser().parse_args(arguments))
    command = parsed.pop("command")
    try:
        return COMMANDS[command](parsed)
    except ConfigError as error:
        print(f"draftwerk: {error}", file=sys.stderr)
        return 2


def serve_command(parsed: dict[str, Any]) -> int:
    """Serve until a signal to stop."""
    settings = settings_of(parsed)
    if settings.replicas:
        return extra_cluster().serve_replicas(settings)

    from draftwerk.api.serving.server import serve

    return serve(settings, build)


def build(
    settings: Settings, report: Callable[[str], None]
) -> AbstractAsyncContextManager["RunningEngine"]:
    """Run the engine; its imports take half a second, in which the socket is already bound."""
    from draftwerk.assembly.build import build_engine

    return build_engine(settings, report)


def extra_cluster() -> "ModuleType":
    """Return what runs replicas. Raises ConfigError where Ray is not installed."""
    try:
        return import_module("draftwerk.cluster.ray_serve.cluster_commands")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise ConfigError(
            "replicas need Ray Serve: in draftwerk's clone, pip install '.[cluster]'"
        ) from None


def cluster_command(parsed: dict[str, Any]) -> int:
    """Deploy to a Ray cluster, or look at what runs there."""
    return extra_cluster().run(parsed)


def doctor_command(parsed: dict[str, Any]) -> int:
    """Look at the machine, and at what the model does on it."""
    from draftwerk.assembly.build import measure
    from draftwerk.assembly.cached_files import cached_files
    from draftwerk.assembly.doctor import doctor
    from draftwerk.assembly.kernels import compare_fingerprints, describe

    wanted, writes = parsed.pop("fingerprint", False), parsed.pop("write", False)
    target = parsed.pop("report", "")
    price, tpot_ms = parsed.pop("price_per_hour", None), parsed.pop("tpot_ms", None)
    prompts = parsed.pop("blend", "")
    settings = settings_of(parsed)
    if prompts:
        from draftwerk.assembly.blend_doctor import show_blending

        return show_blending(settings, Path(prompts))
    if target:
        from draftwerk.assembly.build import surveyed
        from draftwerk.assembly.hardware_report import write_report

        return write_report(Path(target), settings, surveyed, price, tpot_ms or TPOT_MS)
    if price is not None or tpot_ms is not None:
        raise ConfigError("--price-per-hour and --tpot-ms go with --report")
    if wanted:
        return compare_fingerprints(settings, writes)
    if writes:
        raise ConfigError("--write goes with --fingerprint")
    return doctor(settings, describe, measure, cached_files)


def pull_command(parsed: dict[str, Any]) -> int:
    """Fetch a model from a hub."""
    from draftwerk.assembly.model_files import pull

    return pull(parsed["model"])


def models_command(parsed: dict[str, Any]) -> int:
    """List the models that were pulled."""
    from draftwerk.assembly.model_files import list_models

    return list_models()


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
    "cluster": cluster_command,
    "pull": pull_command,
    "models": models_command,
    "rm": rm_command,
    "cache": cache_command,
}


if __name__ == "__main__":
    sys.exit(main())
