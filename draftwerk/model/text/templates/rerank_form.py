"""How a model is asked whether a document answers a query, from what its checkpoint says.

Qwen3-Reranker and models made like it answer yes or no; the score is what yes has of the two. The
prompt is, in this order: a GGUF's template for it; a chat template with the roles `query` and
`document`, as sentence-transformers has them; the form that Qwen3-Reranker documents, in the
model's own chat template.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vector_form import RERANK_FILE, read_modules
from draftwerk.model.text.templates.chat_template import ChatTemplate
from draftwerk.speculative.requests.pooling import RerankForm

SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".'
)
USER = "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
FIELD = re.compile(r"\{(instruction|query|document)\}")
NAMED = re.compile("reranker", re.IGNORECASE)
"""In the name of a checkpoint whose files say nothing."""
SCORES = ("LogitScore", "CausalScoreHead")
"""Modules of sentence-transformers that weigh two tokens."""
ROLES = re.compile(r"""(['"])(query|document)\1""")
"""In a template that tells a pair apart; others may write down any role."""


def filled(template: str, texts: Mapping[str, str]) -> str:
    """Return a template with the texts in place of their names; they are not looked into."""
    return FIELD.sub(lambda field: texts[field[1]], template)


def rerank_form(
    directory: Path,
    name: str,
    asked: str,
    chat: ChatTemplate | None,
    token_id: Callable[[str], int | None],
) -> RerankForm | None:
    """Return the form; None for a model that is no reranker and is not asked to be one.

    `asked` is auto, yes-no or off. Raises Refused where it cannot be had though it is asked for.
    """
    if asked == "off":
        return None
    found = _stored(directory, chat)
    if found is None and (asked == "yes-no" or NAMED.search(name)):
        found = _documented(chat)
    if found is None:
        if asked == "yes-no":
            raise Refused(f"rerank yes-no: {name} has no chat template")
        return None
    answers = _answers(directory, token_id)
    if answers is None:
        raise Refused(f"{directory}: a reranker whose vocabulary has no tokens yes and no")
    template, instruction = found
    return RerankForm(template=template, answers=answers, instruction=instruction)


def _stored(directory: Path, chat: ChatTemplate | None) -> tuple[str, str] | None:
    """Return the template and the instruction that a checkpoint has."""
    own = directory / RERANK_FILE
    if own.is_file():
        return own.read_text(encoding="utf-8"), ""
    if chat is None or len({role for _, role in ROLES.findall(chat.source)}) < 2:
        return None
    pair = [_turn("query"), _turn("document")]
    with suppress(ValueError):
        alone, told = chat.render(pair), chat.render([_turn("system", "instruction"), *pair])
        if "{query}" in alone and "{document}" in alone:
            return _told(alone, told)
    return None


def _turn(role: str, field: str = "") -> dict[str, str]:
    return {"role": role, "content": f"{{{field or role}}}"}


def _told(alone: str, told: str) -> tuple[str, str]:
    """Return the template with an instruction and the one it has by itself, if it takes any."""
    before, mark, behind = told.partition("{instruction}")
    if mark and alone.startswith(before) and alone.endswith(behind):
        return told, alone[len(before) : len(alone) - len(behind)]
    return alone, ""


def _documented(chat: ChatTemplate | None) -> tuple[str, str] | None:
    if chat is None:
        return None
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": USER},
    ]
    return chat.render(messages, enable_thinking=False), INSTRUCTION


def _answers(directory: Path, token_id: Callable[[str], int | None]) -> tuple[int, int] | None:
    """Return the tokens of yes and no."""
    for module in read_modules(directory):
        if module.type.endswith(SCORES):
            found = read_json(directory / module.path / "config.json") or {}
            ids = found.get("true_token_id"), found.get("false_token_id")
            if isinstance(ids[0], int) and isinstance(ids[1], int):
                return ids[0], ids[1]
    yes, no = token_id("yes"), token_id("no")
    return None if yes is None or no is None else (yes, no)
