"""Prompts from a JSONL file of questions: objects with `category` and `turns` or `prompt`."""

import json
from collections import defaultdict
from itertools import product
from pathlib import Path

MT_BENCH = {
    *("writing", "roleplay", "reasoning", "math"),
    *("coding", "extraction", "stem", "humanities"),
}
"""Spec-Bench lists these eight apart; its paper counts them as one category."""
FORMS = (
    "Write a short story about",
    "Explain to a child",
    "List ten facts about",
    "Give me a recipe or a plan that has to do with",
    "Write a Python function that says something about",
    "Compare yesterday and today in the matter of",
    "Write a formal letter of complaint about",
    "Summarise what everybody should know about",
)
SUBJECTS = (
    *("rivers", "copper", "winter", "letters", "gardens", "markets", "engines", "windows"),
    *("bread", "chess", "islands", "clocks", "paper", "bridges", "horses", "glass"),
    *("tides", "libraries", "salt", "music", "mountains", "maps", "bees", "trains"),
)
WORDS = ("river", "stone", "light", "garden", "winter", "engine", "copper", "letter")
QUESTIONS = tuple(f"{form} {subject}." for subject, form in product(SUBJECTS, FORMS))
"""Questions that need no file."""


def by_category(path: Path | None, count: int) -> dict[str, list[str]]:
    """Return `count` first turns of each category, in the file's order; without a file, one."""
    if path is None:
        return {"questions": _spread(list(QUESTIONS), count)}
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
