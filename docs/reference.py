"""`python -m docs.reference`: writes docs/reference.md and docs/fields.txt from the schemas."""

import asyncio
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from docs.markdown import Rows, listed
from docs.request_fields import addresses, fields
from draftwerk.actors.monitoring.snapshot import ClusterFigures, Snapshot
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.api.admin.metrics import MetricsCollector, shelving
from draftwerk.api.cli.flag_groups import FLAG_GROUPS
from draftwerk.api.openai.responses import responses_events
from draftwerk.api.shared.config import PREFIX, Settings
from draftwerk.api.shared.errors import CLOSE_CODES, CODES, KINDS
from draftwerk.api.shared.models import OneModel
from draftwerk.api.shared.ports import EngineClient, ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.model.checkpoint.family_table import family_rows
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
    yield 'What is `--kv-memory 1GiB` on the command line is `kv-memory = "1GiB"` in the file that'
    yield f"`--config` or `{PREFIX}CONFIG` names, and `{PREFIX}KV_MEMORY=1GiB` in the environment."
    yield "The command line goes before the environment, that before the file. A list is a"
    yield "repeated flag, a variable with commas, or a TOML list; a switch is also `--no-NAME`,"
    yield "`true` or `false`. `draftwerk serve --help NAME` tells about one setting.\n"
    fields = fields_of(Settings)
    for title, names in FLAG_GROUPS.items():
        yield f"### {title.capitalize()}\n"
        yield "| flag | default | what it does |"
        yield "|---|---|---|"
        yield from (_setting(fields[name]) for name in names)
        yield ""


def _setting(field: SettingField) -> str:
    """Return a row of the table of settings."""
    flag = "MODEL" if field.name == "model" else field.flag
    default = "" if field.default in ("", ()) or field.default is False else str(field.default)
    meaning = re.sub(r"[|]", r"\\|", field.description)
    return f"| `{flag}` | {default} | {meaning} |"


def _models() -> Iterator[str]:
    yield "## Models\n"
    yield "Each key of a `config.json`, a `quantization_config`, an adapter's config and of a GGUF"
    yield "under its architecture is obeyed, known to have no effect on the text, or refused by its"
    yield "name. A field that is left out has the default of Transformers' class. `--dtype fp32`"
    yield "computes with a GGUF's own values. Models whose tokens see later ones are refused."
    yield "LongRoPE's long list is for all texts of a model whose `max_position_embeddings` are"
    yield "beyond the original ones, else the short one.\n"
    yield "`--backend transformers` serves other causal models too, from a directory of"
    yield "safetensors on a CPU, in bf16 or fp32, slower: whatever calls its attention through"
    yield "Transformers' interface and passes a test at start. Refused by name are recurrent"
    yield "states, attention with masks or biases of its own, keys of another size than the values,"
    yield "rotation by the longest text of a batch, and code beside the weights. Of a model with"
    yield "images or sound (Gemma 4) it serves the text.\n"
    yield "*Pictures* are read on a CPU by a server of one model in safetensors: LLaVA, Mistral 3,"
    yield "Idefics 3, SmolVLM, InternVL, Gemma 3, Qwen2-VL to 3; or in GGUF with an `mmproj` file"
    yield "beside it: Idefics 3, SmolVLM. They are base64 or from `--image-hosts`: PNG, JPEG, WebP,"
    yield "BMP, GIF, 20 MiB and 2²⁵ pixels at most, 32 a request. `detail` has no effect. Not"
    yield "beside `blend`, `prompt_logprobs`, `return_token_ids` or `suffix`. Features are torch's:"
    yield "the same bytes on one machine and version. Receipts name both by digest; `/v1/verify`"
    yield "needs the `pictures` again.\n"
    yield "A text ends at every token that the files name: `eos_token_id` of both configs, the"
    yield "tokenizer's `eos_token`, a GGUF's eos, eot and eom, and the end of a turn in the chat"
    yield "template. Chat templates render as Transformers has them; of several, `tool_use` is for"
    yield "conversations with tools. Tokenizers are `tokenizer.json`, SentencePiece's model,"
    yield "Mistral's tekken, tiktoken's ranks; a GGUF's are read from its metadata, or refused"
    yield "by the name of its split.\n"
    yield "These classes are served, named without what follows `For`: from safetensors, and from"
    yield "GGUF where its name for them stands in brackets. One seed is one text, bit for bit, on"
    yield "any CPU, and on a GPU with `--exact`. *Ranks* are for `--tensor-parallel` and"
    yield "`--pipeline-parallel`. What is marked CPU alone has no [kernels on a GPU](gpu.md): torch"
    yield "computes it there. `draftwerk models --families` tells what drafts for each.\n"
    by_devices: dict[str, list[str]] = {}
    for row in family_rows():
        name = ", text of ".join(f"`{each.partition('For')[0]}`" for each in row.classes)
        name += f" ({row.gguf})" if row.gguf else ""
        by_devices.setdefault(row.devices, []).append(name)
    yield from listed((devices, ", ".join(names)) for devices, names in by_devices.items())


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
    yield "Over SSE and WebSocket alike; deltas as often as there is text. Each has"
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
    yield from listed(_alike(rows))


def _alike(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield rows of which the same is said as one."""
    names: dict[str, list[str]] = {}
    for name, said in rows:
        names.setdefault(said, []).append(name)
    yield from ((", ".join(alike), said) for said, alike in names.items())


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield 'Everywhere `{"error": {"message", "type", "param", "code"}}`; `param` names the field.\n'
    by_type: dict[str, list[str]] = {}
    for status, kind in KINDS.items():
        by_type.setdefault(kind, []).append(str(status))
    yield from listed((", ".join(each), f"`{kind}`") for kind, each in by_type.items())
    yield "By `code`:\n"
    yield from listed(_alike((f"`{code}`", said) for code, said in CODES.items()))
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
        "`model_name`. `GET /metrics` says of each what it is, and has more of each replica.",
        "`process_*` is the server's own process, as prometheus-client has it.\n",
    ]
    for kind, rows in by_kind.items():
        known = [name.replace("vllm:", "") for name, _ in rows if name.startswith("`vllm:")]
        others = [name for name, _ in rows if not name.startswith(("`vllm:", "`replica_"))]
        lines += [
            f"{kind.capitalize()}s, as in vLLM: {', '.join(known)}; and {', '.join(others)}.\n"
        ]
    return lines


def main() -> int:
    """Write the document, and the list of fields."""
    PATH.write_text(reference(), encoding="utf-8")
    FIELDS.write_text(fields(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
