"""Prompts that clients ask to have continued: a conversation, passages, a text, or tokens."""

import msgspec

ENCODE_S = 60.0
"""Seconds that reading one prompt may take; on a machine that is busy it takes some."""
RETRY_MS = 1000
"""Milliseconds after which to ask again what a busy server could not do."""


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool in an earlier answer."""

    id: str
    """The id by which the tool's result names it."""
    name: str
    """The function's name."""
    arguments: str
    """One object in JSON."""


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: str
    """"system", "user", "assistant", or another role of the model's template."""
    content: str
    """The turn's text."""
    name: str = ""
    """The participant's name, for templates that show it."""
    tokens: tuple[int, ...] = ()
    """The tokens that an earlier answer was generated as, where they are known."""
    calls: tuple[ToolCall, ...] = ()
    """The tools that an earlier answer called."""
    call_id: str = ""
    """The call that a tool's result belongs to."""
    reasoning: str = ""
    """The reasoning before an earlier answer, for templates that show it."""
    segments: tuple[tuple[int, int], ...] = ()
    """(start, stop) in the content of each declared segment, in characters, ascending."""
    parts: tuple[int, ...] = ()
    """Where each of several parts of the content ends, in characters; empty for a single text."""


class HalfTurn(msgspec.Struct, frozen=True):
    """An answer at the end of a conversation that goes on."""

    message: ChatMessage
    """With its tokens, where they are known."""
    repeats_call: bool = False
    """Whether a call that it ends within is told again from its beginning: its protocol has whole
    arguments alone."""


Scalar = bool | int | str
Variable = Scalar | tuple[dict[str, str], ...]
"""A value that a chat template is given: of several parts where it is documents."""
DOCUMENTS = "documents"
"""The variable that holds them."""


class Chat(msgspec.Struct, frozen=True, tag=True):
    """A conversation, to be rendered by the model's chat template."""

    messages: tuple[ChatMessage, ...]
    """The turns, oldest first."""
    tools: tuple[str, ...] = ()
    """The tools that the model is told of, each in JSON as OpenAI's API has it."""
    variables: tuple[tuple[str, Variable], ...] = ()
    """More of what the chat template is given."""


class Passages(msgspec.Struct, frozen=True, tag=True):
    """Texts that are segments of a prompt, each followed by an empty line, and what follows."""

    documents: tuple[str, ...]
    """The segments."""
    text: str
    """The text behind them."""


class QueryPair(msgspec.Struct, frozen=True, tag=True):
    """A document that is weighed for a query."""

    query: str
    """The query."""
    document: str
    """The document that may answer it."""
    instruction: str = ""
    """The model's instruction; empty for its own."""


Prompt = Chat | Passages | QueryPair | str | tuple[int, ...]
