"""What `draftwerk doctor MODEL` says of a model's files, which are read and not loaded.

What it is, what of it is obeyed, what has no effect, what is missing, and what refuses it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from draftwerk.assembly.drafter_list import drafters
from draftwerk.assembly.model_findings import Finding
from draftwerk.model.checkpoint.hf_config import model_config, read_generation, read_supported
from draftwerk.model.checkpoint.hub import Location, locate
from draftwerk.model.checkpoint.info import ModelInfo, read_info
from draftwerk.model.checkpoint.keys.generation_keys import GENERATION
from draftwerk.model.checkpoint.keys.known_keys import KnownKeys
from draftwerk.model.checkpoint.keys.tokenizer_keys import TOKENIZER
from draftwerk.model.checkpoint.pulled import pulled_paths
from draftwerk.model.checkpoint.recommended import recommended, suppressed
from draftwerk.model.checkpoint.supported import GENERATION_FILE
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import CONFIG, read_tokenizer_config
from draftwerk.model.process.drafters.drafter_table import draft_head_bytes
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.engine_settings import EngineSettings


def model_files(settings: EngineSettings) -> Iterator[Finding]:
    """Yield what is found of a model that is a file or a directory here; nothing of another."""
    if not settings.model or not Path(settings.model).expanduser().exists():
        return
    try:
        location = locate(settings.model)
    except Refused as refused:
        yield Finding("bad", "model files", str(refused))
        return
    yield from _weights(location, settings)
    yield from _drafters(location, settings.draft_head)
    yield from _texts(location, settings)


def _weights(location: Location, settings: EngineSettings) -> Iterator[Finding]:
    """Yield what the config and the tensors say, and how texts are sampled and end."""
    try:
        info = read_info(location, settings.pooling)
    except Refused as refused:
        yield Finding("bad", "weights", str(refused))
        return
    stored = info.stored_text or f"{info.stored_bytes / 1e6:.0f} MB of safetensors"
    words = f"{info.family}, {info.elements / 1e6:.0f} million numbers, {stored}"
    yield Finding("good", "weights", f"{words}, context {info.context_max} tokens")
    if info.vectors.sees_all:
        words = "vectors alone: each token sees those behind it too"
        yield Finding("good", "what it makes", words)
    ends = ", ".join(map(str, info.eos_token_ids))
    yield Finding(
        "good" if ends else "poor",
        "end of a text",
        f"tokens {ends}" if ends else "no file names a token: texts end at max_tokens",
    )
    if settings.generation_config != "none":
        yield from _sampling(location, info)


def _drafters(location: Location, wanted: str) -> Iterator[Finding]:
    """Yield the drafters that are here for the model, and why the one that is wanted does not fit.

    A model that is refused has none.
    """
    try:
        target = model_config(read_supported(location.directory), {})
    except Refused:
        return
    try:
        draft_head_bytes(wanted, location.directory, "bf16")
    except Refused as refused:
        yield Finding("bad", "draft head", str(refused))
        return
    for found in drafters(location.directory, target, pulled_paths()):
        if found.fits:
            yield Finding("good", "drafter", f"{found.words}: --draft-head {found.wanted}")


def _sampling(location: Location, info: ModelInfo) -> Iterator[Finding]:
    try:
        sampling, source = recommended(location.directory, "")
        barred = suppressed(location.directory, info.vocab_size)
    except Refused as refused:
        yield Finding("bad", "sampling", str(refused))
        return
    given = [f"{name} {value:g}" for name, value in sampling.given().items()]
    given += [f"never {len(barred)} tokens"] if barred else []
    if given:
        yield Finding(
            "good", "sampling", f"{', '.join(given)}, as {source or GENERATION_FILE} says"
        )
    yield from without_effect(GENERATION_FILE, GENERATION, read_generation(location.directory))


def without_effect(file: str, known: KnownKeys, fields: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the keys of a file that change no text, by the reason for it."""
    reasons: dict[str, list[str]] = {}
    for key in fields:
        if key in known.without_effect:
            reasons.setdefault(known.without_effect[key], []).append(key)
    for reason, keys in reasons.items():
        yield Finding("good", f"{file}, without effect", f"{', '.join(keys)}: {reason}")


def _texts(location: Location, settings: EngineSettings) -> Iterator[Finding]:
    """Yield what the tokenizer and the chat template say."""
    try:
        text = TextTokenizer(
            location.directory, settings.tool_format, settings.control_tokens, settings.rerank
        )
    except Refused as refused:
        yield Finding("bad", "tokenizer", str(refused))
        return
    yield Finding("good", "tokenizer", f"{text.vocab_size} tokens")
    yield from without_effect(CONFIG, TOKENIZER, read_tokenizer_config(location.directory))
    if text.chat_template is None:
        yield Finding("poor", "chat template", "none: completions alone are served")
        return
    forms = text.chat_template.content_forms
    parts = [role for role, form in forms.items() if form == "parts"]
    words = f"contents as {'parts' if parts else 'text'}"
    variables = f"; requests may set {', '.join(text.variables)}" if text.variables else ""
    yield Finding("good", "chat template", words + variables)
    try:
        text.render_chat([{"role": "user", "content": "Hello."}])
    except ValueError as error:
        yield Finding("poor", "chat template", f"a plain question is refused: {error}")
    if text.tool_note:
        yield Finding("good", "tools", text.tool_note)
    if (reasoning := text.reasoning_format) is not None:
        yield Finding("good", "reasoning", f"between {reasoning.open!r} and {reasoning.close!r}")
