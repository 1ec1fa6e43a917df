"""`python -m docs.reference`: writes docs/reference.md from the schemas."""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
from msgspec import Struct, inspect

from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.actors.text import TextTools
from draftwerk.api.cli.arguments import parser
from draftwerk.api.core.config import PREFIX, Settings
from draftwerk.api.core.errors import CLOSE_CODES, CODES, KINDS
from draftwerk.api.core.ports import EngineClient, ServedModel
from draftwerk.api.core.state import ServerState
from draftwerk.api.openai import responses_events
from draftwerk.api.service.metrics import MetricsCollector
from draftwerk.api.service.openapi import OPERATIONS, Operation
from draftwerk.settings.field_faults import alternatives, described, items
from draftwerk.settings.setting_fields import SettingField, fields_of
from draftwerk.speculative.sources.registry import SOURCES

PATH = Path("docs/reference.md")
HEAD = """# Reference

Written by `python -m docs.reference` from the code that checks requests and words replies; a test
holds that it is up to date. How things are used is in [how-to.md](how-to.md).
Commands are for a terminal in which `source .venv/bin/activate` was run once, in the clone.
"""


def reference() -> str:
    """Return the whole document."""
    return "\n".join(
        [
            HEAD,
            *_settings(),
            *_sources(),
            *_commands(),
            *_endpoints(),
            *_events(),
            *_errors(),
            *asyncio.run(_metrics()),
        ]
    )


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a Markdown table, and an empty line behind it."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def _settings() -> Iterator[str]:
    yield "## Settings of `draftwerk serve`\n"
    yield "The command line goes before the environment, that before the file named by `--config`"
    yield f"or `{PREFIX}CONFIG`, that before the defaults. A list is a repeated flag, a variable"
    yield "with commas, or a TOML list; a switch is also `--no-NAME`, `true` or `false`.\n"
    rows = [
        (
            "`MODEL`" if field.name == "model" else f"`--{field.name.replace('_', '-')}`",
            f"`{PREFIX}{field.name.upper()}`",
            f"`{field.name}`",
            _values(field),
            "" if field.default in ("", ()) else f"`{field.default}`",
            field.description,
        )
        for field in fields_of(Settings).values()
    ]
    yield from table(("flag", "variable", "key", "values", "default", "meaning"), rows)


def _sources() -> Iterator[str]:
    yield "## Draft sources\n"
    yield "`speculate` chooses from them by name, and so does `speculation.methods` of a request."
    yield "Token origins and metrics have the same names.\n"
    yield from table(
        ("name", "what it drafts", "chosen by"),
        [
            (
                f"`{spec.name}`",
                spec.meaning,
                "`speculate`" if spec.is_setting else "a field of the request",
            )
            for spec in SOURCES
        ],
    )


def _values(field: SettingField) -> str:
    if field.type is bool:
        return "switch"
    if get_origin(field.type) is tuple:
        return "list"
    if get_origin(field.type) is Literal:
        return ", ".join(f"`{each}`" for each in get_args(field.type))
    if field.metavar == "SIZE":
        return "a size such as `512MiB`"
    (info,) = (each for each in msgspec.structs.fields(Settings) if each.name == field.name)
    return described(inspect.type_info(info.type))


def _commands() -> Iterator[str]:
    (commands,) = (
        action
        for action in parser()._actions
        if isinstance(action.choices, dict)  # pyright: ignore[reportPrivateUsage]
    )
    chat = cast("dict[str, argparse.ArgumentParser]", commands.choices)["chat"]
    yield "## Options of `draftwerk chat`\n"
    yield from table(
        ("option", "meaning"),
        [
            (f"`{', '.join(action.option_strings) or action.dest.upper()}`", action.help or "")
            for action in chat._actions  # pyright: ignore[reportPrivateUsage]
            if action.dest != "help"
        ],
    )
    yield "`draftwerk doctor` takes the settings of `serve`.\n"


def _endpoints() -> Iterator[str]:
    yield "## Endpoints\n"
    yield from table(
        ("endpoint", "what for"),
        [(f"`{each.method.upper()} {each.path}`", each.summary) for each in OPERATIONS],
    )
    yield "Every field may be `null`, which means absent. Fields that are not listed are ignored."
    yield "A socket at `/v1/responses` takes `response.create` with the body of the POST and, if"
    yield "wanted, `stream_id`; and `response.cancel` with `response_id` or `stream_id`.\n"
    for operation in OPERATIONS:
        if operation.body is not None:
            yield from _body(operation, operation.body)
    replies = {each.reply.__name__: each.reply for each in OPERATIONS if each.reply is not None}
    for name, reply in replies.items():
        yield f"### The reply {name}\n"
        yield from table(("field", "what it holds"), fields_in(inspect.type_info(reply)))


def _body(operation: Operation, body: type[Struct]) -> Iterator[str]:
    yield f"### `{operation.method.upper()} {operation.path}`\n"
    raw = [each.encode_name for each in msgspec.structs.fields(body) if each.type is msgspec.Raw]
    rows = [row for row in fields_in(inspect.type_info(body)) if row[0].strip("`") not in raw]
    yield from table(("field", "what it may hold"), rows)
    if raw:
        yield f"Refused by name unless they ask for nothing: {', '.join(f'`{n}`' for n in raw)}.\n"
    instead: dict[str, str] = getattr(body, "instead", {})
    if instead:
        yield from table(
            ("refused", "use"), [(f"`{name}`", said) for name, said in instead.items()]
        )
    hints: dict[str, str] = getattr(body, "hints", {})
    if hints:
        yield from table(
            ("taken without effect", "because"),
            [(f"`{name}`", said) for name, said in hints.items()],
        )


def fields_in(kind: inspect.Type, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (field, what it may hold) of a type, the fields of objects in it by their path."""
    match kind:
        case inspect.StructType(fields=fields):
            for field in fields:
                place = f"{path}.{field.encode_name}" if path else field.encode_name
                refused = field.default_factory is not msgspec.NODEFAULT  # see api/openai/schema.py
                if path and refused and isinstance(field.type, inspect.RawType):
                    yield f"`{place}`", "refused unless it asks for nothing"
                    continue
                needed = " **required**" if field.required and not path else ""
                yield f"`{place}`", _short(field.type) + needed
                yield from fields_in(field.type, place)
        case inspect.UnionType() | inspect.Metadata():
            for each in alternatives(kind):
                yield from fields_in(each, path)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            yield from fields_in(item, path + "[]")
        case _:
            pass


def _short(kind: inspect.Type) -> str:
    """Describe a type, leaving to the next rows what is in its objects."""
    match kind:
        case inspect.UnionType() | inspect.Metadata():
            return " or ".join(_short(each) for each in alternatives(kind))
        case inspect.StructType():
            return "an object"
        case (
            inspect.ListType(item_type=item, min_length=least, max_length=most)
            | inspect.VarTupleType(item_type=item, min_length=least, max_length=most)
        ):
            return f"a list of {items(least, most)}, each {_short(item)}"
        case _:
            return described(kind)


def _events() -> Iterator[str]:
    yield "## Events of a response\n"
    yield "In this order, over SSE and WebSocket alike; deltas as often as there is text.\n"
    rows: list[tuple[str, str]] = []
    for event in vars(responses_events).values():
        if isinstance(event, type) and issubclass(event, Struct) and event.__struct_config__.tag:
            tag = event.__struct_config__.tag
            if event.__module__ == responses_events.__name__ and isinstance(tag, str):
                names = ", ".join(f"`{name}`" for name in event.__struct_encode_fields__)
                if "." in tag or tag == "error":
                    rows.append((f"`{tag}`", names))
    yield from table(("event", "fields"), rows)


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield 'Everywhere `{"error": {"message", "type", "param", "code"}}`; `param` names the field.\n'
    yield from table(("status", "type"), [(str(each), f"`{kind}`") for each, kind in KINDS.items()])
    yield from table(("code", "meaning"), [(f"`{code}`", said) for code, said in CODES.items()])
    yield "A WebSocket closes with\n"
    yield from table(("code", "when"), [(str(code), said) for code, said in CLOSE_CODES.items()])


@dataclass(frozen=True, slots=True)
class _Idle:
    """An engine that has done nothing."""

    def snapshot(self) -> Snapshot:
        return Snapshot(replicas={"a": Snapshot()})


async def _metrics() -> list[str]:
    nothing: Any = None
    state = ServerState(
        engine=cast(EngineClient, _Idle()),
        text_tools=cast(TextTools, nothing),
        model=ServedModel(name="", context_max=1),
        settings=Settings(),
    )
    rows: list[tuple[str, ...]] = []
    for family in MetricsCollector(state).collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        labels: tuple[str, ...] = getattr(family, "_labelnames", ())
        shown = ", ".join(f"`{label}`" for label in labels)
        rows.append((f"`{name}`", family.type, shown, family.documentation))
    rows.append(("`process_*`", "", "", "The server's own process, as prometheus-client has it."))
    return ["## Metrics\n", *table(("metric", "type", "labels", "what it counts"), rows)]


def main() -> int:
    """Write the document."""
    PATH.write_text(reference(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
