"""The tokens of a prompt of any kind, and where its segments are in them."""

from msgspec.structs import replace

from draftwerk.actors.messages import Submit
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, Passages, Prompt, QueryPair

Spans = tuple[tuple[int, int], ...]


def encoded_prompt(text: TextTools, submit: Submit) -> tuple[tuple[int, ...], Submit]:
    """Return a prompt's tokens, and its request, which names where the segments are in them.

    Raises ValueError for one that the model's template refuses.
    """
    tokens, spans = tokens_of(text, submit.prompt)
    return tokens, replace(submit, options=located(submit.options, spans))


def tokens_of(text: TextTools, prompt: Prompt) -> tuple[tuple[int, ...], Spans]:
    """Return a prompt's tokens, and where its segments are in them.

    Raises ValueError for one that the model's template refuses.
    """
    match prompt:
        case Chat():
            conversation = prompt.messages, prompt.tools, prompt.variables
            if any(message.segments for message in prompt.messages):
                tokens, spans = text.encode_segments(*conversation)
                return tuple(tokens), tuple(spans)
            return tuple(text.encode_chat(*conversation)), ()
        case Passages():
            tokens, spans = text.encode_passages(prompt.documents, prompt.text)
            return tuple(tokens), tuple(spans)
        case QueryPair():
            return tuple(text.encode_pair(prompt.query, prompt.document, prompt.instruction)), ()
        case str():
            return tuple(text.encode(prompt)), ()
        case _:
            text.check_tokens(prompt)
            return prompt, ()


def located(options: Options, spans: Spans) -> Options:
    """Return options that name where the prompt's segments are in its tokens."""
    if options.blend is None or not spans:
        return options
    return replace(options, blend=replace(options.blend, spans=spans))


def prompt_field(prompt: Prompt) -> str:
    """Return what the client calls its prompt."""
    if isinstance(prompt, QueryPair):
        return "documents"
    return "messages" if isinstance(prompt, Chat) else "prompt"
