"""Readers of prompt files: plain JSONL, MT-bench, Spec-Bench, ShareGPT and Mooncake traces."""

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from draftwerk_tools.loadtest.workloads.prompt import WorkloadPrompt
from draftwerk_tools.loadtest.workloads.words import text_of

MOONCAKE_BLOCK_TOKENS = 512
CHARACTERS_PER_TOKEN = 4


class _Question(Struct):
    """A line of a prompt file: MT-bench and Spec-Bench have `turns`, plain files `prompt`."""

    turns: list[str] = []
    prompt: str = ""
    category: str = ""
    output_tokens: int | None = None
    timestamp: float | None = None


class _Said(Struct):
    value: str
    speaker: str = msgspec.field(name="from", default="")


class _Shared(Struct):
    conversations: list[_Said] = []


class _Arrival(Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []


def read_questions(path: Path) -> list[WorkloadPrompt]:
    """Read JSONL lines with `turns` or `prompt`, and maybe `category`, `timestamp` (seconds)."""
    questions = msgspec.json.decode(_as_array(path), type=list[_Question])
    return [_asked(question) for question in questions]


def read_sharegpt(path: Path) -> list[WorkloadPrompt]:
    """Read a ShareGPT list: the human's turns are sent, the first reply sets the limit."""
    talks = msgspec.json.decode(path.read_bytes(), type=list[_Shared])
    prompts = (_shared(talk) for talk in talks)
    return [prompt for prompt in prompts if prompt.turns]


def read_mooncake(path: Path) -> list[WorkloadPrompt]:
    """Read a Mooncake trace: equal block hashes become equal text, so prefixes are shared alike."""
    arrivals = msgspec.json.decode(_as_array(path), type=list[_Arrival])
    return [_traced(arrival) for arrival in arrivals]


READERS: dict[str, Callable[[Path], list[WorkloadPrompt]]] = {
    "jsonl": read_questions,
    "mt-bench": read_questions,
    "spec-bench": read_questions,
    "sharegpt": read_sharegpt,
    "mooncake": read_mooncake,
}


def _as_array(path: Path) -> bytes:
    lines = (line.strip() for line in path.read_bytes().splitlines())
    return b"[" + b",".join(line for line in lines if line) + b"]"


def _asked(question: _Question) -> WorkloadPrompt:
    turns = tuple(question.turns) or (question.prompt,)
    if not all(turns):
        raise ValueError("a line of the prompt file has neither `turns` nor `prompt`")
    return WorkloadPrompt(
        turns=turns,
        category=question.category,
        output_tokens=question.output_tokens,
        at_s=question.timestamp,
    )


def _shared(talk: _Shared) -> WorkloadPrompt:
    asked = [turn.value for turn in talk.conversations if turn.speaker in ("human", "user")]
    replies = [turn.value for turn in talk.conversations if turn.speaker in ("gpt", "assistant")]
    tokens = len(replies[0]) // CHARACTERS_PER_TOKEN if replies else 0
    return WorkloadPrompt(
        turns=tuple(filter(None, asked)), category="sharegpt", output_tokens=tokens or None
    )


def _traced(arrival: _Arrival) -> WorkloadPrompt:
    blocks = [text_of(MOONCAKE_BLOCK_TOKENS, f"mooncake/{name}") for name in arrival.hash_ids]
    words = " ".join(blocks).split()[: arrival.input_length]
    missing = arrival.input_length - len(words)
    tail = text_of(missing, f"mooncake/tail/{arrival.timestamp}").split() if missing > 0 else []
    return WorkloadPrompt(
        turns=(" ".join(words + tail),),
        category="mooncake",
        output_tokens=max(1, arrival.output_length),
        at_s=arrival.timestamp / 1000,
    )
