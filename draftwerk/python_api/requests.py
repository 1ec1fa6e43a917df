"""Prompts and parameters of the Python API to what the engine is asked, with the checks of HTTP."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from draftwerk.api.openai.chat_prompt import chat_prompt
from draftwerk.api.openai.schema import ChatBody, CompletionBody
from draftwerk.api.openai.translate import completion_prompts, options
from draftwerk.api.requests.decode import decoded
from draftwerk.api.requests.grammars import ANY_OBJECT, TextForm, schema_grammar
from draftwerk.api.requests.model_choice import served_as
from draftwerk.api.requests.reasoning_request import ReasoningRequest, reasoning_of
from draftwerk.api.requests.reply_plan import ReplyPlan, plan_reply
from draftwerk.api.requests.tool_request import chat_tools
from draftwerk.api.shared.calls import Call
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.handling import RequestContext
from draftwerk.api.shared.ports import ServedModel
from draftwerk.python_api.errors import ClosedError, RequestError, RequestFailedError
from draftwerk.python_api.sampling_params import GRAMMAR_FIELDS, ParamsBody, SamplingParams
from draftwerk.speculative.requests.client_prompts import Prompt as EnginePrompt
from draftwerk.speculative.sampling import Grammar

Conversation = Sequence[Mapping[str, object]]
"""Messages, each with a `role` and a `content`."""
TextPrompt = str | Sequence[int]
"""Text to continue, or its token ids."""
AnyPrompt = TextPrompt | Conversation
"""Text and token ids are continued; a conversation is answered."""

Tools = Sequence[Mapping[str, object]]
"""Functions that may be called, as chat completions take them: `{"type": "function", …}`."""
ToolChoice = str | Mapping[str, object]
""""auto", "none", "required", or the one function that is called, as chat completions have it."""

CHAT = msgspec.json.Decoder(ChatBody)
NO_JSON = (bytes, bytearray, memoryview)
"""Types that msgspec would write as base64."""
COMPLETION = msgspec.json.Decoder(CompletionBody)
DEFAULTS = SamplingParams()


def call_of(
    prompt: AnyPrompt | ChatBody,
    params: SamplingParams | None,
    model: ServedModel,
    new_seed: Callable[[], int],
) -> Call:
    """Return the request as the engine's admission takes it. Raises RequestError."""
    asked = prompt if isinstance(prompt, ChatBody) else checked_prompt(prompt)
    given = DEFAULTS if params is None else params
    if not isinstance(cast("object", given), SamplingParams):
        raise RequestError("`params` must be SamplingParams.", "params")
    try:
        body = given.checked()
        model = served_as(model, None, body.lora)
        text = TextForm(grammar_of(body), grammar_field(given))
        engine_prompt: EnginePrompt
        if isinstance(asked, ChatBody):
            tools = chat_tools(asked.tools, asked.tool_choice, asked.parallel_tool_calls, model)
            plan = plan_reply(tools, reasoning_of(ReasoningRequest(), model), text, model)
            engine_prompt = chat_prompt(asked.messages, plan)
        else:
            plan = ReplyPlan(text.grammar, blamed=text.field)
            engine_prompt = asked
        logprobs = -1 if body.logprobs is None else body.logprobs
        scored = -1 if body.prompt_logprobs is None else body.prompt_logprobs
        context = RequestContext(model, new_seed=new_seed)
        engine_options = options(body, context, plan, body.max_tokens, logprobs)
    except ApiError as error:
        raise error_of_api(error) from None
    return Call(
        request_id="python",
        kind="chat" if isinstance(asked, ChatBody) else "completion",
        prompts=[engine_prompt],
        options=replace(engine_options, choices=body.n or 1, prompt_logprobs=scored),
        names=plan.names(""),
    )


def checked_prompt(prompt: AnyPrompt) -> ChatBody | EnginePrompt:
    """Return one checked prompt. Raises RequestError."""
    given = cast(
        "object", prompt
    )  # of bytes, which are a sequence of integers, each would be a token id
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray | memoryview):
        raise RequestError("`prompt` must be a text, token ids or messages.", "prompt")
    if not isinstance(prompt, str) and any(isinstance(each, Mapping) for each in prompt):
        return conversation(cast("Conversation", prompt))
    try:
        body = decoded(encoded({"prompt": prompt}), COMPLETION)
        prompts = completion_prompts(body)
    except ApiError as error:
        raise error_of_api(error) from None
    if isinstance(body.prompt, list) and not isinstance(body.prompt[0], int):
        raise RequestError(
            "`prompt` must be one text or one list of token ids; batch() takes several.", "prompt"
        )
    return prompts[0]


def checked_text(given: object, field: str) -> str:
    """Return a text that can be encoded. Raises RequestError."""
    if not isinstance(given, str):
        raise RequestError(f"`{field}` must be a text.", field)
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"`{field}` is no text: {error}", field) from None
    return given


def checked_ids(given: object, vocab_size: int, field: str) -> list[int]:
    """Return token ids of a vocabulary. Raises RequestError."""
    if not isinstance(given, Iterable) or isinstance(given, (str, *NO_JSON)):
        raise RequestError(f"`{field}`: {given!r} are no token ids.", field)
    found = list[int]()
    for each in cast("Iterable[Any]", given):
        try:
            found.append(index(each))
        except TypeError:
            raise RequestError(f"`{field}`: {each!r} is no token id.", field) from None
        if not 0 <= found[-1] < vocab_size:
            said = f"`{field}`: {each} is outside the vocabulary of {vocab_size}."
            raise RequestError(said, field)
    return found


def checked_pair(given: object) -> tuple[TextPrompt, TextPrompt]:
    """Return a text and what comes before it. Raises RequestError."""
    pair = cast("Sequence[TextPrompt]", given if isinstance(given, tuple | list) else ())
    if len(pair) != 2:
        raise RequestError("`texts` must be a list of pairs of texts.", "texts")
    return pair[0], pair[1]


def conversation(
    messages: Conversation,
    tools: Tools | None = None,
    tool_choice: ToolChoice | None = None,
    parallel_tool_calls: bool | None = None,
) -> ChatBody:
    """Return a checked conversation, and the tools that it may call. Raises RequestError."""
    body = {
        "messages": messages,
        "tools": tools,
        "tool_choice": tool_choice,
        "parallel_tool_calls": parallel_tool_calls,
    }
    try:
        return decoded(encoded(body), CHAT)
    except ApiError as error:
        raise error_of_api(error) from None


def encoded(body: Mapping[str, object]) -> bytes:
    """Return a body as HTTP would have it. Raises RequestError, which names its first field."""
    try:
        plain = msgspec.to_builtins(body, builtin_types=NO_JSON)
        return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, OverflowError) as error:
        field = next(iter(body))
        raise RequestError(f"`{field}` cannot be sent: {error}", field) from None


def grammar_of(body: ParamsBody) -> Grammar | None:
    """Return what the text is held to, the same as `response_format` asks for over HTTP."""
    if body.json_schema is not None:
        return schema_grammar(msgspec.Raw(msgspec.json.encode(body.json_schema)), "json_schema")
    if body.regex is not None:
        return Grammar("regex", body.regex)
    if body.grammar is not None:
        return Grammar("lark", body.grammar)
    return ANY_OBJECT if body.json_object else None


def grammar_field(params: SamplingParams) -> str:
    """Return the parameter that holds the text to a form; empty if none does."""
    given = (name for name in GRAMMAR_FIELDS if getattr(params, name) not in (None, False))
    return next(given, "")


def error_of_api(error: ApiError) -> RequestError | RequestFailedError | ClosedError:
    """Return an error of the API as a Python caller meets it."""
    if error.status == 400:
        return RequestError(error.message, error.param or "")
    if error.code == "draining":
        return ClosedError("The LLM is closed.")
    return RequestFailedError(error.message)
