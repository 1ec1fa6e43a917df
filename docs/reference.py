"""`python -m docs.reference`: writes docs/reference.md and docs/fields.txt from the schemas."""

import asyncio
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from docs.markdown import Rows, listed
from docs.request_fields import addresses, fields
from draftwerk.actors.monitoring.snapshot import ClusterFigures, Snapshot
from draftwerk.actors.text import TextTools
from draftwerk.api.cli.flag_groups import FLAG_GROUPS
from draftwerk.api.core.config import PREFIX, Settings
from draftwerk.api.core.errors import CLOSE_CODES, CODES, KINDS
from draftwerk.api.core.models import OneModel
from draftwerk.api.core.ports import EngineClient, ServedModel
from draftwerk.api.core.state import ServerState
from draftwerk.api.openai.responses import responses_events
from draftwerk.api.service.metrics import MetricsCollector, shelving
from draftwerk.model.checkpoint.family_table import ANY_DRAFTS, family_rows
from draftwerk.settings.setting_fields import SettingField, fields_of
from draftwerk.speculative.sources.registry import SOURCES

PATH = Path("docs/reference.md")
FIELDS = Path("docs/fields.txt")
HEAD = """# Reference

Written by `python -m docs.reference` from the code that checks requests and words replies; a test
holds that it is up to date. How things are used is in [how-to.md](how-to.md).
Commands need `source .venv/bin/activate` first.
"""


def reference() -> str:
    """Return the whole document."""
    return "\n".join(
        [
            HEAD,
            *_settings(),
            *_models(),
            *_sources(),
            *addresses(),
            *_events(),
            *_errors(),
            *asyncio.run(_metrics()),
        ]
    )


def _settings() -> Iterator[str]:
    yield "## Settings\n"
    yield "The command line goes before the environment, that before the file named by"
    yield f"`--config` or `{PREFIX}CONFIG`, that before the defaults; `draftwerk doctor` takes"
    yield "all of it too. A list is a repeated flag, a variable with commas, or a TOML list; a"
    yield "switch is also `--no-NAME`, `true` or `false`; a size is such as `512MiB`. Each variable"
    yield f"begins with `{PREFIX}`.\n"
    fields = fields_of(Settings)
    for title, names in FLAG_GROUPS.items():
        yield f"### {title.capitalize()}\n"
        yield "| key in a file | flag | variable | default | what it does |"
        yield "|---|---|---|---|---|"
        yield from (_setting(fields[name]) for name in names)
        yield ""


def _setting(field: SettingField) -> str:
    """Return a row of the table of settings."""
    flag = "MODEL" if field.name == "model" else field.flag
    default = "" if field.default in ("", ()) else str(field.default)
    cells = (f"`{field.flag[2:]}`", f"`{flag}`", f"`{field.name.upper()}`", default)
    meaning = re.sub(r"[|]", r"\\|", field.description)
    return f"| {' | '.join((*cells, meaning))} |"


def _models() -> Iterator[str]:
    yield "## Models\n"
    yield "What a config asks for is obeyed, or refused by the field's name: each key of a"
    yield "`config.json`, a `quantization_config`, an adapter's config and of a GGUF under its"
    yield "architecture is read, known to have no effect on the text, or refused. A field that is"
    yield "left out has the default of Transformers' class. `--dtype fp32` computes with a GGUF's"
    yield "own values. Models whose tokens see those behind them are refused.\n"
    yield "A GPU, and several ranks, take classes that are marked so, without windows. LongRoPE's"
    yield "long list is for all texts of a model whose `max_position_embeddings` are beyond the"
    yield "original ones, else the short one.\n"
    yield "`--backend transformers` serves other causal models too, from a directory of"
    yield "safetensors on a CPU, in bf16 or fp32, slower: whatever calls its attention through"
    yield "Transformers' interface and passes a test at start. Refused by name are recurrent"
    yield "states, attention with masks or biases of its own, keys of another size than the values,"
    yield "rotation by the longest text of a batch, and code beside the weights. Of a model with"
    yield "images or sound (Gemma 4, LLaVA) it serves the text.\n"
    yield "A text ends at every token that the files name: `eos_token_id` of both configs, the"
    yield "tokenizer's `eos_token`, a GGUF's eos, eot and eom, and the end of a turn in the chat"
    yield "template. Chat templates render as Transformers has them; of several, `tool_use` is for"
    yield "conversations with tools. Tokenizers are `tokenizer.json`, SentencePiece's model,"
    yield "Mistral's tekken, tiktoken's ranks; a GGUF's are read from its metadata, or refused"
    yield "by the name of its split.\n"
    yield "For each of these families one seed is one text, bit for bit, on any CPU, and on a GPU"
    yield "with `--exact`. Classes are named without what follows `For`. All are read from"
    yield "safetensors, and from GGUF where a name is given. A smaller model drafts for them"
    yield "(`--draft`), where no others are named.\n"
    alike: dict[str, list[str]] = {}
    for row in family_rows():
        name = f"`{row.classes[0].removesuffix('ForCausalLM')}`"
        name += "".join(
            f", text of `{each.removesuffix('ForConditionalGeneration')}`"
            for each in row.classes[1:]
        )
        layers = row.layers + (f" ({row.devices})" if row.devices != "CPU" else "")
        layers += f"; drafts: {row.drafts or 'no model'}" if row.drafts != ANY_DRAFTS else ""
        alike.setdefault(layers, []).append(name + (f" ({row.gguf})" if row.gguf else ""))
    yield from listed((", ".join(names), layers) for layers, names in alike.items())


def _sources() -> Iterator[str]:
    yield "## Draft sources\n"
    yield "`speculate` chooses from them by name, and so does `speculation.methods` of a request."
    yield "Token origins and metrics have the same names.\n"
    yield from listed(
        (f"`{spec.name}`" + ("" if spec.is_setting else " (a field of the request)"), spec.meaning)
        for spec in SOURCES
    )


EVERYWHERE = ("sequence_number", "stream_id", "item_id", "output_index", "content_index")
"""Fields that tell where an event belongs."""


def _events() -> Iterator[str]:
    yield "## Events of a response\n"
    yield "In this order, over SSE and WebSocket alike; deltas as often as there is text. Each has"
    yield "`sequence_number` and, on a socket, `stream_id`; what concerns an item has"
    yield "`output_index`, its parts `item_id`, and those of texts `content_index`.\n"
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
    yield from listed(rows)


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield 'Everywhere `{"error": {"message", "type", "param", "code"}}`; `param` names the field.\n'
    by_type: dict[str, list[str]] = {}
    for status, kind in KINDS.items():
        by_type.setdefault(kind, []).append(str(status))
    yield from listed((", ".join(each), f"`{kind}`") for kind, each in by_type.items())
    yield "By `code`:\n"
    yield from listed((f"`{code}`", said) for code, said in CODES.items())
    yield "A WebSocket closes with\n"
    yield from listed((str(code), said) for code, said in CLOSE_CODES.items())


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
        shown = name.removeprefix("draftwerk_") + (f"{{{labels}}}" if labels else "")
        by_kind.setdefault(family.type, []).append((f"`{shown}`", family.documentation))
    lines = [
        "## Metrics\n",
        "Names begin with `draftwerk_`, or with `vllm:`; what is of a model has the label",
        "`model_name`. `process_*` is the server's own process, as prometheus-client has it.\n",
    ]
    for kind, rows in by_kind.items():
        known = [name.replace("vllm:", "") for name, _ in rows if name.startswith("`vllm:")]
        lines += [f"{kind.capitalize()}s, as in vLLM: {', '.join(known)}; and\n"]
        lines += listed(row for row in rows if not row[0].startswith(("`vllm:", "`replica_")))
        of_each = [name for name, _ in rows if name.startswith("`replica_")]
        lines += [f"Of each replica: {', '.join(of_each)}.\n"] if of_each else []
    return lines


def main() -> int:
    """Write the document, and the list of fields."""
    PATH.write_text(reference(), encoding="utf-8")
    FIELDS.write_text(fields(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
