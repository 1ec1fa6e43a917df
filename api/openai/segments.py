"""Declared segments: documents and marked parts of messages, and by which rule they are reused."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from draftwerk.actors.messages import Chat, ChatMessage, Passages, Prompt
from draftwerk.api.core.errors import refused
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.openai.schema import (
    BlendBody,
    ChatBody,
    CompletionBody,
    Document,
    Message,
    MessagePart,
    OpenAIBody,
)
from draftwerk.speculative.blend.rules import Blend, RuleName

DOCUMENT_END = "\n\n"


def blend_of(body: OpenAIBody, model: ServedModel) -> Blend | None:
    """Return the rule of a request's segments, None if it declares none. Raises ApiError."""
    messages = body.messages if isinstance(body, ChatBody) else ()
    asked = [(body.blend, "blend")] if body.blend and body.documents else []
    asked += [(part.blend, path) for part, path in _parts(messages) if part.blend]
    if body.blend and not asked:
        raise refused("`blend` needs `documents`, or parts that it marks.", "blend", "invalid")
    if not asked:
        return None
    first, field = asked[0]
    for other, path in asked:
        if _settings(other, model, path) != _settings(first, model, field):
            raise refused(f"`{path}` differs from `{field}`.", path, "invalid")
    rule, ratio = _settings(first, model, field)
    _check_certified(rule, ratio, model, field)
    return Blend((), rule, ratio)


def check_unmarked(messages: Sequence[Message]) -> None:
    """Refuse segments where nothing is generated."""
    for part, path in _parts(messages):
        if part.blend is not None:
            raise refused(f"`{path}` is not supported here.", path, "unsupported")


def _settings(asked: BlendBody | None, model: ServedModel, field: str) -> tuple[RuleName, float]:
    certified = model.blends
    if certified is None:
        said = (
            f"`{field}` needs a certificate of what it changes, and this model has none: "
            "`draftwerk doctor --blend FILE` measures it."
        )
        raise refused(said, field, "unsupported")
    rule, ratio = certified.default
    if asked is None or isinstance(asked, bool):
        return rule, ratio  # type: ignore[return-value]
    rule = asked.rule or rule
    if asked.ratio is None:
        return rule, certified.rules.get(rule, 1.0)  # type: ignore[return-value]
    return rule, asked.ratio  # type: ignore[return-value]


def _check_certified(rule: str, ratio: float, model: ServedModel, field: str) -> None:
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


def _parts(messages: Sequence[Message]) -> Iterable[tuple[MessagePart, str]]:
    for index, message in enumerate(messages):
        if not isinstance(message.content, str):
            for at, part in enumerate(message.content or ()):
                yield part, f"messages[{index}].content[{at}].blend"


def marked(message: Message) -> tuple[tuple[int, int], ...]:
    """Return where the marked parts of a message are in its text."""
    if message.content is None or isinstance(message.content, str):
        return ()
    spans: list[tuple[int, int]] = []
    before = 0
    for part in message.content:
        if part.blend and part.text:
            spans.append((before, before + len(part.text)))
        before += len(part.text)
    return tuple(spans)


def with_documents(chat: Chat, body: ChatBody) -> Chat:
    """Return a conversation whose last user's message begins with the documents."""
    texts = _texts(body)
    if not texts:
        return chat
    turns = list(chat.messages)
    at = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=None)
    if at is None:
        raise refused("`documents` need a user's message.", "documents", "invalid")
    turns[at] = _preceded(turns[at], texts, bool(body.blend))
    return replace(chat, messages=tuple(turns))


def _preceded(turn: ChatMessage, texts: Sequence[str], blends: bool) -> ChatMessage:
    content, spans = "", list[tuple[int, int]]()
    for text in texts:
        spans.append((len(content), len(content) + len(text)))
        content += text + DOCUMENT_END
    moved = [(start + len(content), stop + len(content)) for start, stop in turn.segments]
    segments = (*(spans if blends else ()), *moved)
    return replace(turn, content=content + turn.content, segments=segments)


def completion_documents(prompts: Sequence[Prompt], body: CompletionBody) -> list[Prompt]:
    """Return prompts with the documents before them."""
    texts = _texts(body)
    if not texts:
        return list(prompts)
    if not all(isinstance(prompt, str) for prompt in prompts):
        raise refused("`documents` go with a `prompt` in text.", "documents", "invalid")
    if body.blend:
        return [Passages(texts, str(prompt)) for prompt in prompts]
    before = "".join(text + DOCUMENT_END for text in texts)
    return [before + str(prompt) for prompt in prompts]


def _texts(body: OpenAIBody) -> tuple[str, ...]:
    """Return the documents that say something."""
    given = (each.text if isinstance(each, Document) else each for each in body.documents or ())
    return tuple(text for text in given if text)
