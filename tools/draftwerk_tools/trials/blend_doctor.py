"""`draftwerk doctor --approximate blend [FILE.jsonl]`: measures what reusing segments changes.

Each line of the file is {"documents": [texts], "question": text}; the question follows the
documents in one user's message, as the API sends it, or in a completion's prompt where the model
has no chat template. Without a file the documents are texts that come with Python, cut to equal
lengths. What is found is kept with the model: its servers take the rule and the ratio from it.
"""

from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import msgspec

from draftwerk.assembly.approximation_tables import keep_blend
from draftwerk.assembly.blend_table import BlendTable
from draftwerk.assembly.loading.model_infos import read_infos, read_text
from draftwerk.assembly.plan import plan
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.requests.client_prompts import ChatMessage
from draftwerk.speculative.requests.declared_segments import RuleName
from draftwerk_tools.trials.approximation_doctor import built_model, read_lines
from draftwerk_tools.trials.blend_quality import (
    RetrievalPrompt,
    Sample,
    measure,
    summaries,
)
from draftwerk_tools.trials.blend_trial import BlendTrial

RATIOS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 1.0)
PROMPTS, PASSAGES, PASSAGE_TOKENS = 8, 4, 512
"""Without a file."""
DOCUMENT_END = "\n\n"


class RetrievalLine(msgspec.Struct, frozen=True):
    """A line of the file."""

    documents: tuple[str, ...]
    question: str


def show_blending(settings: EngineSettings, path: Path | None) -> int:
    """Print how far blended texts are from exact ones, by rule and ratio. Raises ConfigError."""
    given = None if path is None else read_lines(path, RetrievalLine)
    info, _ = read_infos(settings, print)
    text = read_text(info, settings.tool_format, settings.control_tokens)
    lines = own_lines(text) if given is None else given
    planned = plan(settings, info, None)
    built = built_model(msgspec.structs.replace(planned.target_options, measures=False))
    if not built.blends:
        raise ConfigError(
            "--approximate blend: segments cannot be reused with this model, device or format"
        )
    prompts = [prompt_of(text, line) for line in lines]
    longest = max(len(prompt.tokens) for prompt in prompts)
    if longest >= info.context_max:
        raise ConfigError(
            f"--approximate blend: a prompt of {longest} tokens is longer than the context"
        )
    trial = BlendTrial(target_runner(built.parts))
    samples: list[Sample] = []
    for number, prompt in enumerate(prompts, start=1):
        samples += measure(trial, prompt, asked_settings())
        print(f"{number} of {len(prompts)} prompts measured", end="\r", flush=True)
    print()
    table = BlendTable(len(prompts), longest, tuple(summaries(samples)))
    print("\n".join(table.lines()))
    keep_blend(Path(info.directory), planned.dtype, table)
    return 0


def own_lines(text: TextTokenizer) -> list[RetrievalLine]:
    """Return questions about texts that come with Python, each behind it and some others."""
    long = {
        name: text.decode(tokens[:PASSAGE_TOKENS])
        for name, said in sorted(topics.items())
        if len(tokens := text.encode(said)) >= PASSAGE_TOKENS
    }
    names = list(long)[: PROMPTS * PASSAGES]
    return [
        RetrievalLine(
            tuple(long[name] for name in names[first::PROMPTS]),
            f'What is said about "{names[first + PROMPTS * (first % PASSAGES)]}"?',
        )
        for first in range(PROMPTS)
    ]


def asked_settings() -> list[tuple[RuleName, float]]:
    """Return what is measured: every rule at every ratio that means something for it."""
    alone: list[tuple[RuleName, float]] = [("none", 0.0)]
    repaired: list[tuple[RuleName, float]] = [
        (rule, ratio) for rule in ("head", "hkvd") for ratio in RATIOS
    ]
    return alone + repaired


def prompt_of(text: TextTokenizer, line: RetrievalLine) -> RetrievalPrompt:
    """Return the tokens of a line, and where its documents are."""
    if text.chat_template is None:
        tokens, spans = text.encode_passages(line.documents, line.question)
    else:
        tokens, spans = text.encode_segments([message_of(line.documents, line.question)])
    return RetrievalPrompt(tokens, tuple(spans))


def message_of(documents: Sequence[str], question: str, **more: Any) -> ChatMessage:
    """Return the user's message, as a request with `documents` has it."""
    content, spans = "", list[tuple[int, int]]()
    for document in documents:
        spans.append((len(content), len(content) + len(document)))
        content += document + DOCUMENT_END
    return ChatMessage("user", content + question, segments=tuple(spans), **more)
