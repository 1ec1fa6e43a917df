"""Check the vocabulary: retired words in code, tests and text, and slips of style in docs.

`python -m validation.words` prints each finding as FILE:LINE and returns 1 if there is any. The
words in use are in docs/glossary.md.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

IDENTIFIERS = {
    "Planner": "Scheduler",
    "Residency": "RunningSet",
    "Thought": "HeadNode",
    "thoughts": "head_tree",
    "think_ms": "head_ms",
    "Hunch": "HeadCandidates",
    "Outlook": "TokenTopK",
    "outlooks": "topk",
    "Foreseen": "Presampled",
    "foresee": "presample",
    "foresight": "presample",
    "hope_ms": "probe_ms",
    "hopeless": "is_open",
    "worths": "token_weights",
    "auction": "choose_nodes",
    "Bid": "CandidateNodes",
    "Lot": "RowTree",
    "Refill": "Occupancy",
    "Survival": "AcceptanceStats",
    "Trust": "SequenceAcceptance",
    "law": "distribution",
    "laws": "distributions",
    "coin": "uniform",
    "toss": "uniform",
    "Kit": "Backend",
    "Parts": "LoadedModel or EngineParts",
    "Ask": "SamplingRequest",
    "Questions": "RoundRequests",
    "Touched": "EditedTokens",
    "curious": "wants_topk",
    "SILENT": "NO_FEEDBACK",
    "Opening": "NewSequence",
    "Forests": "BeamDrafts",
    "Outpost": "UnexpandedSurvivor",
    "Reached": "VerifiedBranch",
    "Stand": "BeamPosition",
    "Mirror": "DraftCoverage",
    "Layout": "BatchBuilder",
    "Histories": "CachedSequences",
    "Door": "ServerState",
    "Gate": "StartupApp",
    "Meter": "RequestTimer",
    "Wish": "PendingResponse",
    "check_company": "check_conflicts",
}
"""Retired identifiers of Python code, and what replaced them."""
TEXT = {
    r"planners?": "scheduler",
    r"hunch(es)?": "head candidates",
    r"outlooks?": "top-k",
    r"foresight|foresee(n|able)?": "presampled",
    r"auctions?": "draft budget",
    r"forests?": "draft trees",
    r"(?<!Zipf's )laws?": "distribution",
    r"monsters?": "hostile requests",
    r"(?<!<\|channel>)thoughts?": "draft-head nodes",
    r"somebody|whoever": "name who it is",
}
"""Retired words of prose: a regular expression each, whole words only."""
SLIPS = {
    r"\bLikewise\.": "each item has its own sentence",
    r"^(Add|Fix|Count|Tell|Write down|Draw|Refuse) [^|`]*[^.:!?)|`]$": "a commit subject",
    r"\bnobody\b": "name who it is",
    r"\b(code|server|target|kernel|head|model) (thinks|hopes|wants|hears|says)\b": (
        "name what is computed"
    ),
}
"""Slips of style in docs/*.md and README.md."""
OWN = ("docs/glossary.md", "validation/words.py")
HISTORY = ("CHANGELOG.md",)
"""Text that names what was renamed."""
SUFFIXES = (".py", ".md", ".html", ".cpp", ".h")


class WordFinding(NamedTuple):
    """A word that must go, and what to write instead."""

    path: str
    line: int
    word: str
    advice: str


def tracked() -> Iterator[Path]:
    """Yield the text files under version control."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        path = Path(name)
        if path.suffix in SUFFIXES and path.is_file() and not name.startswith(OWN):
            yield path


def retired_names(path: str, text: str) -> Iterator[WordFinding]:
    """Yield the retired identifiers of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in IDENTIFIERS:
            yield WordFinding(path, token.start[0], token.string, IDENTIFIERS[token.string])


def matches(path: str, text: str, rules: dict[str, str]) -> Iterator[WordFinding]:
    """Yield the lines on which a rule matches."""
    for number, line in enumerate(text.splitlines(), start=1):
        for rule, advice in rules.items():
            if found := re.search(rule, line):
                yield WordFinding(path, number, found[0], advice)


def findings(path: str, text: str) -> Iterator[WordFinding]:
    """Yield what is wrong with one file."""
    if path.endswith(".py"):
        yield from retired_names(path, text)
    if not path.startswith(HISTORY):
        yield from matches(path, text, {rf"(?i)\b({word})\b": TEXT[word] for word in TEXT})
    if path.endswith(".md") and path.startswith(("docs/", "README")):
        yield from matches(path, text, SLIPS)


def main() -> int:
    """Print every finding; returns the exit code."""
    found = [
        each for path in tracked() for each in findings(str(path), path.read_text(encoding="utf-8"))
    ]
    for path, line, word, advice in found:
        print(f"{path}:{line}: {word!r}: {advice}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
