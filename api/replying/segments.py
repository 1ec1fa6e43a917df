"""Declared segments: documents and marked parts of messages, and by which rule they are reused."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from draftwerk.actors.messages import Chat, ChatMessage, Passages, Prompt
from draftwerk.api.core.errors import refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.replying.segments_schema import (
    BlendBody,
    GivenContent,
    GivenDocument,
    MessagePart,
)
from draftwerk.speculative.blend.rules import Blend, RuleName

DOCUMENT_END = "\n\n"
"""Behind each document."""


def blend_of(
    asked: BlendBody | None,
    documents: Sequence[str | GivenDocument] | None,
    contents: Sequence[GivenContent],
    model: ServedModel,
) -> Blend | None:
    """Return the rule of a request's segments, None if it declares none. Raises ApiError.

    `asked` is of the documents, `contents` of its messages.
    """
    wishes = [(asked, "blend")] if asked and documents else []
    wishes += [(part.blend, path) for part, path in _parts(contents) if part.blend]
    if asked and not wishes:
        raise refused("`blend` needs `documents`, or parts that it marks.", "blend", "invalid")
    if not wishes:
        return None
    first, field = wishes[0]
    rule, ratio = _settings(first, model, field)
    for other, path in wishes:
        if _settings(other, model, path) != (rule, ratio):
            raise refused(f"`{path}` differs from `{field}`.", path, "invalid")
    _check_certified(rule, ratio, model, field)
    return Blend((), rule, ratio)


def check_unmarked(contents: Sequence[GivenContent]) -> None:
    """Refuse segments where nothing is generated."""
    for part, path in _parts(contents):
        if part.blend is not None:
            raise refused(f"`{path}` is not supported here.", path, "unsupported")


def marked(content: GivenContent) -> tuple[tuple[int, int], ...]:
    """Return where the marked parts of a message are in its text."""
    spans: list[tuple[int, int]] = []
    before = 0
    for part in () if isinstance(content, str) else content or ():
        if part.blend and part.text:
            spans.append((before, before + len(part.text)))
        before += len(part.text)
    return tuple(spans)


def with_documents(
    chat: Chat, documents: Sequence[str | GivenDocument] | None, blends: bool
) -> Chat:
    """Return a conversation whose last user's message begins with the documents."""
    texts = _texts(documents)
    if not texts:
        return chat
    turns = list(chat.messages)
    at = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=None)
    if at is None:
        raise refused("`documents` need a user's message.", "documents", "invalid")
    turns[at] = _preceded(turns[at], texts, blends)
    return replace(chat, messages=tuple(turns))


def completion_documents(
    prompts: Sequence[Prompt], documents: Sequence[str | GivenDocument] | None, blends: bool
) -> list[Prompt]:
    """Return prompts with the documents before them."""
    texts = _texts(documents)
    if not texts:
        return list(prompts)
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise refused("`documents` go with a `prompt` in text.", "documents", "invalid")
    if blends:
        return [Passages(texts, str(prompt)) for prompt in prompts]
    before = "".join(text + DOCUMENT_END for text in texts)
    return [before + str(prompt) for prompt in prompts]


def _preceded(turn: ChatMessage, texts: Sequence[str], blends: bool) -> ChatMessage:
    content, spans = "", list[tuple[int, int]]()
    for text in texts:
        spans.append((len(content), len(content) + len(text)))
        content += text + DOCUMENT_END
    moved = [(start + len(content), stop + len(content)) for start, stop in turn.segments]
    segments = (*(spans if blends else ()), *moved)
    return replace(turn, content=content + turn.content, segments=segments)


def _settings(asked: BlendBody | None, model: ServedModel, field: str) -> tuple[RuleName, float]:
    """Return the rule and the ratio that a field stands for."""
    certified = model.blends
    if certified is None:
        said = (
            f"`{field}` needs a certificate of what it changes, and this model has none: "
            "`draftwerk doctor --blend FILE` measures it."
        )
        raise refused(said, field, "unsupported")
    rule, ratio = certified.default
    if asked is None or isinstance(asked, bool):
        return rule, ratio
    rule = asked.rule or rule
    return rule, certified.rules.get(rule, 1.0) if asked.ratio is None else asked.ratio


def _check_certified(rule: RuleName, ratio: float, model: ServedModel, field: str) -> None:
    certified = model.blends
    assert certified is not None
    least = certified.rules.get(rule)
    if least is None:
        known = ", ".join(certified.rules) or "none"
        said = f"`{field}.rule` {rule} is not certified for this model; certified: {known}."
        raise refused(said, f"{field}.rule", "unsupported")
    if ratio < least:
        said = f"`{field}.ratio` {ratio:g} is below {least:g}, the least that is certified."
        raise refused(said, f"{field}.ratio", "unsupported")


def _parts(contents: Sequence[GivenContent]) -> Iterable[tuple[MessagePart, str]]:
    for index, content in enumerate(contents):
        for at, part in enumerate(() if isinstance(content, str) else content or ()):
            yield part, f"messages[{index}].content[{at}].blend"


def _texts(documents: Sequence[str | GivenDocument] | None) -> tuple[str, ...]:
    """Return the documents that say something."""
    given = (each if isinstance(each, str) else each.text for each in documents or ())
    return tuple(text for text in given if text)
