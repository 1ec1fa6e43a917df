"""How a checkpoint says that vectors are made: sentence-transformers' files, or a GGUF's field."""

from pathlib import Path
from typing import Any, get_args

import msgspec

from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.requests.pooling import Pooling, VectorForm

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
RERANK_FILE = "rerank_template.txt"
"""Where a GGUF's own template for rerankers is kept."""
POOLING_FIELD = "pooling_type"
"""Where `config.json` has what a GGUF says."""
GGUF_POOLING = {1: "mean", 2: "cls", 3: "last"}
"""By llama.cpp's numbers; 0 says nothing, and 4 is a reranker."""
MODES = {"pooling_mode_lasttoken": "last", "pooling_mode_mean_tokens": "mean"}
KINDS = ("Transformer", "Pooling", "Normalize", "LogitScore", "CausalScoreHead")
"""Modules that are obeyed; vectors are normalised in any case."""


class StoredModule(msgspec.Struct):
    """A row of `modules.json`."""

    path: str
    type: str


class StoredPrompts(msgspec.Struct):
    """The prompts of `config_sentence_transformers.json`."""

    prompts: dict[str, str] = {}
    default_prompt_name: str | None = None


def vector_form(directory: Path, config: Json, asked: str = "auto") -> VectorForm:
    """Return how vectors are made; `asked` is the pooling to be used, or auto.

    Raises Refused for a form that is not served, where none is asked for.
    """
    stored = read_prompts(directory)
    found = {
        "width": config["hidden_size"],
        "prompts": stored.prompts,
        "prompt_name": stored.default_prompt_name or "",
    }
    if asked != "auto":
        return msgspec.convert({**found, "pooling": asked, "source": "--pooling"}, VectorForm)
    pooling, source = _stored_pooling(directory, config)
    if pooling and pooling not in get_args(Pooling):
        said = f"{directory / source}: pooling {pooling!r} is not supported"
        raise Refused(f"{said}; --pooling last or mean takes another")
    return msgspec.convert({**found, "pooling": pooling or "last", "source": source}, VectorForm)


def read_modules(directory: Path) -> list[StoredModule]:
    """Return the modules that follow one another, of a sentence-transformers checkpoint."""
    return _read(directory / MODULES, list[StoredModule], [])


def read_prompts(directory: Path) -> StoredPrompts:
    """Return the prompts that a checkpoint comes with."""
    return _read(directory / PROMPTS, StoredPrompts, StoredPrompts())


def _read(path: Path, kind: Any, missing: Any) -> Any:
    if not path.is_file():
        return missing
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {error}") from error


def _stored_pooling(directory: Path, config: Json) -> tuple[str, str]:
    """Return what is pooled, and the file that says it; empty where none does."""
    modules = read_modules(directory)
    for each in modules:
        kind = each.type.rsplit(".", 1)[-1]
        if kind not in KINDS:
            said = f"{directory / MODULES}: module {kind} is not supported"
            raise Refused(f"{said}; --pooling last or mean leaves it away")
    for each in modules:
        if each.type.endswith(".Pooling"):
            file = f"{each.path}/config.json"
            return _mode(directory / file, read_json(directory / file) or {}), file
    number = config.get(POOLING_FIELD)
    found = GGUF_POOLING.get(number, "") if isinstance(number, int) else ""
    return found, found and POOLING_FIELD


def _mode(path: Path, stored: Json) -> str:
    """Return the one mode that is on; modes that are joined have no name here."""
    if stored.get("include_prompt") is False and not stored.get("pooling_mode_lasttoken"):
        raise Refused(f"{path}: include_prompt false is not supported; --pooling takes another")
    named = stored.get("pooling_mode")
    if isinstance(named, str):
        return named.removesuffix("token")
    on = [name for name, is_on in stored.items() if name.startswith("pooling_mode_") and is_on]
    return "+".join(MODES.get(name, name.removeprefix("pooling_mode_")) for name in on)
