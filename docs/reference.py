"""`python -m docs.reference`: writes docs/reference.md from the schemas."""

import asyncio
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import Struct, inspect

from draftwerk.actors.monitoring.snapshot import ClusterFigures, Snapshot
from draftwerk.actors.text import TextTools
from draftwerk.api.core.config import PREFIX, Settings
from draftwerk.api.core.errors import CLOSE_CODES, CODES, KINDS
from draftwerk.api.core.handling import OneModel
from draftwerk.api.core.ports import EngineClient, ServedModel
from draftwerk.api.core.state import ServerState
from draftwerk.api.openai.responses import responses_events
from draftwerk.api.service.endpoints import ENDPOINTS
from draftwerk.api.service.metrics import MetricsCollector, shelving
from draftwerk.model.checkpoint.family_table import ANY_DRAFTS, family_rows
from draftwerk.settings.field_faults import alternatives, described, items
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
            *_models(),
            *_sources(),
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
    yield "## Settings\n"
    yield "`draftwerk serve --help` lists them with values and defaults; `draftwerk doctor` takes"
    yield "them too. The command line goes before the environment, that before the file named by"
    yield f"`--config` or `{PREFIX}CONFIG`, that before the defaults. `--kv-memory` is"
    yield f"`{PREFIX}KV_MEMORY` in the environment and `kv-memory` or `kv_memory` in a file, and so"
    yield "for all. A list is a repeated flag, a variable with commas, or a TOML list; a switch is"
    yield "also `--no-NAME`, `true` or `false`; a size is such as `512MiB`.\n"


def _models() -> Iterator[str]:
    yield "## Models\n"
    yield "What a config asks for is obeyed, or refused by the field's name. A GPU, and"
    yield "several ranks, take classes that are marked so, without windows. LongRoPE's long list is"
    yield "for all texts of a model whose `max_position_embeddings` are beyond the original ones,"
    yield "else the short one.\n"
    yield "`--backend transformers` serves causal models of other classes too, from a directory of"
    yield "safetensors on a CPU, in bf16 or fp32, slower: whatever calls its attention through"
    yield "Transformers' interface and passes a test at start. Refused by name are recurrent"
    yield "states, attention with arguments that are not obeyed (masks or biases of its own), keys"
    yield "of another size than the values, rotation by the longest text of a batch, and code"
    yield "beside the weights. Of a model with images or sound (Gemma 4, LLaVA) it serves the text;"
    yield "layers that attend to keys of others share their pages.\n"
    yield "A text ends at every token that the files name: `eos_token_id` of both configs, the"
    yield "tokenizer's `eos_token`, a GGUF's eos, eot and eom, and the end of a turn in the chat"
    yield "template. Chat templates render as Transformers has them; of several, `tool_use` is for"
    yield "conversations with tools. Tokenizers are `tokenizer.json`, SentencePiece's model file,"
    yield "Mistral's tekken, and tiktoken's ranks; a GGUF's are read from its metadata, or refused"
    yield "by the name of its split.\n"
    yield "For each of these families one seed is one text, bit for bit, with drafts or without, on"
    yield "any CPU, and on a GPU with `--exact`. Classes are named without `ForCausalLM`. All are"
    yield "read from safetensors, and from GGUF under the name given. A smaller model drafts for"
    yield "them (`--draft`), where no other drafts are named (`--draft-head mtp`). Speeds were"
    yield "measured of [Llama's layers](measurements.md#beside-llamacpp) and of"
    yield "[experts](measurements.md#experts) alone.\n"
    yield from table(
        ("class", "GGUF", "layers"),
        [
            (
                f"`{row.classes[0].removesuffix('ForCausalLM')}`"
                + "".join(f", text of `{each}`" for each in row.classes[1:]),
                row.gguf,
                row.layers
                + (f" ({row.devices})" if row.devices != "CPU" else "")
                + (f"; drafts: {row.drafts or 'no model'}" if row.drafts != ANY_DRAFTS else ""),
            )
            for row in family_rows()
        ],
    )


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


Rows = list[tuple[str, str]]
"""Fields, and what they may hold."""


def _endpoints() -> Iterator[str]:
    yield "## Endpoints\n"
    alike: dict[tuple[str, type[Struct] | None], list[str]] = {}
    for each in ENDPOINTS:
        same = alike.setdefault((f"{each.method} {each.sentence}", each.body), [])
        same.append(f"`{each.address}`" if same else f"`{each.method} {each.address}`")
    yield from table(
        ("endpoint", "what for"),
        [(", ".join(names), said.partition(" ")[2]) for (said, _), names in alike.items()],
    )
    yield "Every field may be `null`, which means absent. Fields that are not listed are ignored."
    yield "A socket at `/v1/responses` takes `response.create` with the body of the POST and, if"
    yield "wanted, `stream_id`; and `response.cancel` with `response_id` or `stream_id`. Names in"
    yield "capitals are [objects](#objects); a star marks what is required. A *text* is a string of"
    yield "at most 1,048,576 characters; a *name* matches `^[a-zA-Z0-9_.-]{1,64}$`; a *string to"
    yield "256* has at most so many characters. Numbers have their least and greatest value. Fields"
    yield "that are *refused* are so by name, unless they ask for nothing (`null`, `false`); the"
    yield "refusal says what to use instead. Of addresses with one body the first is named.\n"
    addresses: dict[type[Struct], str] = {}
    for each in ENDPOINTS:
        if each.body is not None:
            addresses.setdefault(each.body, each.address.removeprefix("/v1"))
    by_paths: dict[tuple[str, ...], list[Entry]] = {}
    owners: dict[Entry, list[str]] = {}
    for body, path in addresses.items():
        for entry in _entries(body):
            owners.setdefault(entry, []).append(path)
    for entry, paths in owners.items():
        by_paths.setdefault(tuple(paths), []).append(entry)
    for paths, found in sorted(by_paths.items(), key=lambda each: len(each[0]) == 1):
        yield f"In {', '.join(f'`{path}`' for path in paths)}:\n"
        yield from _described(found)
    sent = _collected(inspect.type_info(each) for each in addresses)
    own = {each.__name__ for each in addresses}
    told = {each.name for each, paths in owners.items() if each.kind == "refused" and paths[1:]}
    yield from _objects({name: kind for name, kind in sent.items() if name not in own}, told)


class Entry(NamedTuple):
    """What is said of a field: what it may hold, that it is refused, or why it has no effect."""

    kind: Literal["field", "refused", "hint"]
    name: str
    text: str


def _entries(body: type[Struct]) -> list[Entry]:
    kind = inspect.type_info(body)
    instead: dict[str, str] = getattr(body, "instead", {})
    hints: dict[str, str] = getattr(body, "hints", {})
    found = [Entry("field", *row) for row in _fields(kind)]
    refused = dict.fromkeys([*_refused(kind), *instead])
    found += [Entry("refused", name, "") for name in refused]
    return found + [Entry("hint", name, reason) for name, reason in hints.items()]


def _described(entries: list[Entry]) -> Iterator[str]:
    """Yield a table of the fields, and sentences on the others."""
    by_type: dict[str, list[str]] = {}
    for each in entries:
        if each.kind == "field":
            by_type.setdefault(each.text, []).append(each.name)
    if by_type:
        rows = ((", ".join(names), text) for text, names in by_type.items())
        yield from table(("fields", "what they may hold"), rows)
    refused = [f"`{each.name}`" for each in entries if each.kind == "refused"]
    if refused:
        yield f"Refused: {', '.join(refused)}.\n"
    hints = [f"`{each.name}` ({each.text})" for each in entries if each.kind == "hint"]
    if hints:
        yield f"Taken without effect: {', '.join(hints)}.\n"


def _objects(kinds: dict[str, inspect.StructType], told: set[str]) -> Iterator[str]:
    """Yield a row for each object, less the refused fields that are told already."""
    yield "### Objects\n"
    rows: Rows = []
    for name, kind in sorted(kinds.items()):
        cells = [f"{field} {values}" for field, values in _fields(kind)]
        refused = ", ".join(f"`{each}`" for each in _refused(kind) if each not in told)
        cells += [f"refused: {refused}"] if refused else []
        rows.append((f"`{name}`", "; ".join(cells)))
    yield from table(("object", "fields"), rows)


def _collected(kinds: Iterable[inspect.Type]) -> dict[str, inspect.StructType]:
    """Return all objects that types are made of, by name. Raises ValueError for a name of two."""
    found: dict[str, inspect.StructType] = {}
    for kind in kinds:
        _collect(kind, found)
    return found


def _collect(kind: inspect.Type, found: dict[str, inspect.StructType]) -> None:
    """Add the objects that a type is made of, by name."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            known = found.setdefault(cls.__name__, kind)
            if known.cls is not cls:
                raise ValueError(f"two objects are called {cls.__name__}")
            for field in fields if known is kind else ():
                _collect(field.type, found)
        case inspect.UnionType() | inspect.Metadata():
            for each in alternatives(kind):
                _collect(each, found)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            _collect(item, found)
        case _:
            pass


def _fields(kind: inspect.Type) -> Rows:
    """Return the fields of an object that may be sent."""
    assert isinstance(kind, inspect.StructType)
    return [
        (f"`{field.encode_name}`", _short(field.type) + ("*" if field.required else ""))
        for field in kind.fields
        if not _asks_nothing(field)
    ]


def _refused(kind: inspect.Type) -> list[str]:
    """Return the fields of an object that are refused by name."""
    assert isinstance(kind, inspect.StructType)
    return [field.encode_name for field in kind.fields if _asks_nothing(field)]


def _asks_nothing(field: inspect.Field) -> bool:
    """Whether a field is there to be refused: see api/openai/schema.py."""
    made = field.default_factory is not msgspec.NODEFAULT
    return made and isinstance(field.type, inspect.RawType)


SHORT = (
    (r"a string of at most 1048576 characters", "text"),
    (r"a string that matches \^\[a-zA-Z0-9_.-\]\{1,64\}\$", "a name"),
    (r"a non-empty string of at most (\d+) characters", r"string 1 to \1"),
    (r"a string of at most (\d+) characters", r"string to \1"),
    (r"an integer from 0 to 2147483647", "an integer"),
    (r"an integer from (\S+) to (\S+)", r"integer \1 to \2"),
    (r"a number from (\S+) to (\S+)", r"\1 to \2"),
    (r"a number above 0 to (\S+)", r"above 0 to \1"),
    (r"true or false", "boolean"),
    (r"one of (.*)$", r"\1"),
)
"""Types in fewer words: expressions, and what is said instead."""


def _short(kind: inspect.Type) -> str:
    """Describe a type, objects by their names."""
    match kind:
        case inspect.UnionType() | inspect.Metadata():
            return " or ".join(dict.fromkeys(_short(each) for each in alternatives(kind)))
        case inspect.StructType(cls=cls):
            return f"`{cls.__name__}`"
        case (
            inspect.ListType(item_type=item, min_length=least, max_length=most)
            | inspect.VarTupleType(item_type=item, min_length=least, max_length=most)
        ):
            count = items(least, most).removesuffix("items").replace("at most", "up to")
            return f"a list of {count}{_short(item)}"
        case _:
            words = described(kind)
            for pattern, shorter in SHORT:
                words = re.sub(pattern, shorter, words)
            return words


EVERYWHERE = ("sequence_number", "stream_id")
"""Fields of every event."""


def _events() -> Iterator[str]:
    yield "## Events of a response\n"
    yield "In this order, over SSE and WebSocket alike; deltas as often as there is text. Each has"
    yield "`sequence_number` and, on a socket, `stream_id`.\n"
    rows: list[tuple[str, str]] = []
    for event in vars(responses_events).values():
        if isinstance(event, type) and issubclass(event, Struct) and event.__struct_config__.tag:
            tag = event.__struct_config__.tag
            if event.__module__ == responses_events.__name__ and isinstance(tag, str):
                names = ", ".join(
                    f"`{name}`" for name in event.__struct_encode_fields__ if name not in EVERYWHERE
                )
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
        return Snapshot(cluster=ClusterFigures(replicas={"a": Snapshot()}))


async def _metrics() -> list[str]:
    nothing: Any = None
    state = ServerState(
        engine=cast(EngineClient, _Idle()),
        text_tools=cast(TextTools, nothing),
        model=ServedModel(name="", context_max=1),
        settings=Settings(),
    )
    by_kind: dict[str, Rows] = {}
    models = OneModel(state)
    for family in (*MetricsCollector(models).collect(), *shelving(models)):
        name = family.name + ("_total" if family.type == "counter" else "")
        given: tuple[str, ...] = getattr(family, "_labelnames", ())
        labels = ",".join(label for label in given if label != "model_name")
        shown = f"`{name}{{{labels}}}`" if labels else f"`{name}`"
        by_kind.setdefault(family.type, []).append((shown, family.documentation))
    lines = [
        "## Metrics\n",
        "Those of `vllm:` have the label `model_name` too; `process_*` is the server's own",
    ]
    lines += ["process, as prometheus-client has it.\n"]
    for kind, rows in by_kind.items():
        known = ", ".join(name for name, _ in rows if name.startswith("`vllm:"))
        lines += [f"As in vLLM, {kind}s: {known}.\n"]
        own = [row for row in rows if not row[0].startswith("`vllm:")]
        lines += table((kind, "what it counts"), own)
    return lines


def main() -> int:
    """Write the document."""
    PATH.write_text(reference(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
