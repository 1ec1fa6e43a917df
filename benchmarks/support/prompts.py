"""Prompts from a JSONL file of questions: objects with `category` and `turns` or `prompt`."""

import json
from collections import defaultdict
from pathlib import Path

MT_BENCH = {
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
}
"""Spec-Bench lists these eight apart; its paper counts them as one category."""


def by_category(path: Path, count: int) -> dict[str, list[str]]:
    """Return the first `count` first turns of each category, in the file's order."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text().splitlines():
        question = json.loads(line)
        category = question.get("category", "all")
        name = "mt-bench" if category in MT_BENCH else category
        turns = question.get("turns") or [question["prompt"]]
        found[name].append(turns[0])
    return {name: _spread(prompts, count) for name, prompts in found.items()}


def _spread(prompts: list[str], count: int) -> list[str]:
    """Return `count` prompts at even distances, so that every kind within a category comes up."""
    step = max(1, len(prompts) // count)
    return prompts[::step][:count]
