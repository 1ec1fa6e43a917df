"""Declared segments: documents and marked parts of messages, and by which rule they are reused."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from draftwerk.actors.messages import Chat, ChatMessage, Passages, Prompt
from draftwerk.api.core.errors import refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.replying.segments_schema import (
    BlendBody,
    GivenContent,
    GivenDocument,
    GivenPart,
)
from draftwerk.speculative.blend.rules import EARLY_RULE, RATIO, Blend, RuleName

DOCUMENT_END = "\n\n"
"""Behind each document."""


class AskedBlend(NamedTuple):
    """What a field stands for."""

    rule: RuleName
    ratio: float
    is_lossless: bool


class BlendFields(NamedTuple):
    """How one protocol takes segments."""

    messages: str = "messages"
    """The field that holds the messages."""
    shows_early: bool = False
    """Whether its events can show a text that is not final."""


CHAT_FIELDS, RESPONSES_FIELDS = BlendFields(), BlendFields("input", shows_early=True)


def blend_of(
    asked: BlendBody | None,
    documents: Sequence[str | GivenDocument] | None,
    contents: Sequence[GivenContent],
    model: ServedModel,
    fields: BlendFields = CHAT_FIELDS,
) -> Blend | None:
    """Return the rule of a request's segments, None if it declares none. Raises ApiError.

    `asked` is of the documents, `contents` of its messages.
    """
    wishes = [(asked, "blend")] if asked and documents else []
    wishes += [(part.blend, path) for part, path in _parts(contents, fields) if part.blend]
    if asked and not wishes:
        raise refused("`blend` needs `documents`, or parts that it marks.", "blend", "invalid")
    if not wishes:
        return None
    first, field = wishes[0]
    settings = _settings(first, model, field)
    for other, path in wishes:
        if _settings(other, model, path) != settings:
            raise refused(f"`{path}` differs from `{field}`.", path, "invalid")
    if settings.is_lossless:
        _check_lossless(model, field, fields)
    else:
        _check_certified(settings.rule, settings.ratio, model, field)
    return Blend((), settings.rule, settings.ratio, settings.is_lossless)


def check_unmarked(contents: Sequence[GivenContent], fields: BlendFields = CHAT_FIELDS) -> None:
    """Refuse segments where nothing is generated, or where it is not text."""
    for part, path in _parts(contents, fields):
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


def _settings(asked: BlendBody | None, model: ServedModel, field: str) -> AskedBlend:
    """Return what a field stands for."""
    if asked is not None and not isinstance(asked, bool) and asked.lossless:
        rule = asked.rule or (EARLY_RULE if asked.ratio is None else "head")
        return AskedBlend(rule, RATIO if asked.ratio is None else asked.ratio, True)
    certified = model.blends
    if certified is None:
        said = (
            f"`{field}` needs a certificate of what it changes, and this model has none: "
            "`draftwerk doctor --blend FILE` measures it."
        )
        raise refused(said, field, "unsupported")
    rule, ratio = certified.default
    if asked is None or isinstance(asked, bool):
        return AskedBlend(rule, ratio, False)
    rule = asked.rule or rule
    ratio = certified.rules.get(rule, 1.0) if asked.ratio is None else asked.ratio
    return AskedBlend(rule, ratio, False)


def _check_lossless(model: ServedModel, field: str, fields: BlendFields) -> None:
    field = f"{field}.lossless"
    if not fields.shows_early:
        said = f"`{field}` needs /v1/responses, whose events can show what is not final."
        raise refused(said, field, "unsupported")
    if not model.can_blend:
        said = f"`{field}`: segments cannot be reused with this model, device or format."
        raise refused(said, field, "unsupported")


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


def _parts(
    contents: Sequence[GivenContent], fields: BlendFields
) -> Iterable[tuple[GivenPart, str]]:
    for index, content in enumerate(contents):
        for at, part in enumerate(() if isinstance(content, str) else content or ()):
            yield part, f"{fields.messages}[{index}].content[{at}].blend"


def _texts(documents: Sequence[str | GivenDocument] | None) -> tuple[str, ...]:
    """Return the documents that say something."""
    given = (each if isinstance(each, str) else each.text for each in documents or ())
    return tuple(text for text in given if text)
