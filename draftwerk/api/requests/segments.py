"""Declared segments: documents and marked parts of messages, and by which rule they are reused."""

from collections.abc import Iterable, Sequence

from msgspec.structs import asdict, replace

from draftwerk.api.requests.segments_schema import (
    BlendBody,
    GivenContent,
    GivenDocument,
    GivenPart,
)
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.requests.client_prompts import (
    DOCUMENTS,
    Chat,
    ChatMessage,
    Passages,
    Prompt,
)
from draftwerk.speculative.requests.declared_segments import Blend

DOCUMENT_END = "\n\n"
"""Behind each document."""
MESSAGES = "messages"
"""The field of chat that holds them."""


def blend_of(
    asked: BlendBody | None,
    documents: Sequence[str | GivenDocument] | None,
    contents: Sequence[GivenContent],
    model: ServedModel,
    messages: str = MESSAGES,
) -> Blend | None:
    """Return the rule of a request's segments, None if it declares none. Raises ApiError.

    `asked` is of the documents, `contents` of its messages, which the field `messages` holds.
    """
    asking = [(asked, "blend")] if asked and documents else []
    asking += [(part.blend, path) for part, path in _parts(contents, messages) if part.blend]
    if asked and not asking:
        raise refused("`blend` needs `documents`, or parts that it marks.", "blend", "invalid")
    if not asking:
        return None
    first, field = asking[0]
    if not model.blends:
        reason = f"`{field}`: segments cannot be reused with this model, device or format."
        raise refused(reason, field, "unsupported")
    if model.adapter:
        reason = f"`{field}` cannot go with an adapter: segments are reused of the model alone."
        raise refused(reason, field, "unsupported")
    blend = _settings(first, model)
    for other, path in asking:
        if _settings(other, model) != blend:
            raise refused(f"`{path}` differs from `{field}`.", path, "invalid")
    return blend


def check_unmarked(contents: Sequence[GivenContent], messages: str = MESSAGES) -> None:
    """Refuse segments where nothing is generated, or where it is not text."""
    for part, path in _parts(contents, messages):
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
    chat: Chat, documents: Sequence[str | GivenDocument] | None, blends: bool, model: ServedModel
) -> Chat:
    """Return a conversation with documents, where the model's template shows them; or else, and
    where they are segments, at the beginning of the last user's message.
    """
    if documents and model.shows_documents and not blends:
        shown = tuple(_shown(each) for each in documents)
        return replace(chat, variables=(*chat.variables, (DOCUMENTS, shown)))
    texts = _texts(documents)
    if not texts:
        return chat
    turns = list(chat.messages)
    at = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=None)
    if at is None:
        raise refused("`documents` need a user's message.", "documents", "invalid")
    turns[at] = _preceded(turns[at], texts, blends)
    return replace(chat, messages=tuple(turns))


def segmented(
    chat: Chat,
    asked: BlendBody | None,
    documents: Sequence[str | GivenDocument] | None,
    contents: Sequence[GivenContent],
    model: ServedModel,
) -> tuple[Chat, Blend | None]:
    """Return a conversation with the documents in it, and how its segments are reused."""
    whole = with_documents(chat, documents, bool(asked), model)
    return whole, blend_of(asked, documents, contents, model)


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
    ends = tuple(len(content) + end for end in turn.parts)
    return replace(turn, content=content + turn.content, segments=segments, parts=ends)


def _settings(asked: BlendBody | None, model: ServedModel) -> Blend:
    """Return the rule and the ratio that a field stands for."""
    if asked is None or isinstance(asked, bool):
        return model.blend
    ratio = model.blend.ratio if asked.ratio is None else asked.ratio
    return Blend((), asked.rule or model.blend.rule, ratio)


def _parts(contents: Sequence[GivenContent], messages: str) -> Iterable[tuple[GivenPart, str]]:
    for index, content in enumerate(contents):
        for at, part in enumerate(() if isinstance(content, str) else content or ()):
            yield part, f"{messages}[{index}].content[{at}].blend"


def _shown(given: str | GivenDocument) -> dict[str, str]:
    """Return a document as templates take it."""
    if isinstance(given, str):
        return {"text": given}
    return {name: text for name, text in asdict(given).items() if text is not None}


def _texts(documents: Sequence[str | GivenDocument] | None) -> tuple[str, ...]:
    """Return the documents that say something. Raises ApiError for what has no place in a text."""
    for at, each in enumerate(documents or ()):
        for name in () if isinstance(each, str) else sorted(_shown(each).keys() - {"text"}):
            field = f"documents[{at}].{name}"
            reason = f"`{field}` needs a chat template that shows documents, and no `blend`."
            raise refused(reason, field, "unsupported")
    given = (each if isinstance(each, str) else each.text or "" for each in documents or ())
    return tuple(text for text in given if text)
