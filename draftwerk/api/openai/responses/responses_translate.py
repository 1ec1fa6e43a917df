"""The request to the engine of a response's body."""

from collections.abc import Sequence

import msgspec

from draftwerk.api.openai.responses.items.response_tools import offered_tools, response_tools
from draftwerk.api.openai.responses.responses_schema import ResponsesBody
from draftwerk.api.openai.translate import check_include, options
from draftwerk.api.requests.grammars import flat_grammar_of, text_form
from draftwerk.api.requests.reasoning_request import ReasoningRequest, reasoning_of
from draftwerk.api.requests.reply_plan import ReplyPlan, plan_reply
from draftwerk.api.requests.segments import blend_of, check_unmarked, with_documents
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.handling import RequestContext
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage
from draftwerk.speculative.requests.declared_segments import Blend

LOGPROBS = "message.output_text.logprobs"
ORIGINS = "token_origins"
HYPOTHESES = "beam_hypotheses"
REASONING = "reasoning.encrypted_content"
"""Stock clients send it by default; reasoning comes in plain text, and never encrypted."""
HOSTED = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
)
"""Fields of what hosted tools find, which is nothing."""
RESPONSES_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
}
"""Responses' names for the fields that the engine may blame."""


def responses_prompt(
    body: ResponsesBody, conversation: Sequence[ChatMessage], plan: ReplyPlan, model: ServedModel
) -> Chat:
    """Return the prompt: instructions and documents, which are of one response alone, and the
    conversation."""
    said = [ChatMessage("system", body.instructions)] if body.instructions else []
    chat = Chat((*said, *conversation), plan.tools, plan.variables)
    return with_documents(chat, body.documents, bool(body.blend), model)


def responses_plan(body: ResponsesBody, model: ServedModel) -> ReplyPlan:
    """Return what a response must be."""
    offered = offered_tools(body.tools)
    tools = response_tools(offered, body.tool_choice, body.parallel_tool_calls, model)
    request = ReasoningRequest(
        body.reasoning.effort if body.reasoning else None,
        budget=body.thinking_budget,
        variables=body.chat_template_kwargs,
        effort_field="reasoning",
    )
    reasoning = reasoning_of(request, model)
    form = flat_grammar_of(body.text.format if body.text else None)
    return plan_reply(tools, reasoning, text_form(body, form, "text.format"), model)


def responses_names(plan: ReplyPlan) -> dict[str, str]:
    """Return what Responses calls the fields that the engine may blame."""
    return {**RESPONSES_NAMES, **plan.names("text.format")}


def responses_options(body: ResponsesBody, context: RequestContext, plan: ReplyPlan) -> Options:
    """Return the options of a response."""
    model = context.model
    logprobs = LOGPROBS in (body.include or ())
    is_odd = model.reasons and model.reasoning is None  # it reasons in a way that is not known
    if body.top_logprobs and not logprobs:
        sentence = f"`top_logprobs` needs `include` to hold {LOGPROBS!r}."
        raise refused(sentence, "top_logprobs", "invalid")
    check_include(body, (ORIGINS, LOGPROBS, HYPOTHESES, *HOSTED, *(() if is_odd else (REASONING,))))
    most = (body.top_logprobs or 0) if logprobs else -1
    blend = _blend_of(body, model)
    tokens_max = 0 if body.generate is False else body.max_output_tokens
    found = options(body, context, plan, tokens_max, most, blend)
    if HYPOTHESES not in (body.include or ()):
        return found
    if found.beam_width == 1:
        raise refused(f"{HYPOTHESES!r} needs `beam_width`.", "include", "invalid")
    return msgspec.structs.replace(found, shows_hypotheses=True)


def _blend_of(body: ResponsesBody, model: ServedModel) -> Blend | None:
    """Return how segments of the input are reused, if some are declared."""
    items = [] if isinstance(body.input, str) else body.input
    is_text = [(each.type or "message") == "message" for each in items]
    contents = [each.content for each in items]
    others = [None if text else each for text, each in zip(is_text, contents, strict=True)]
    check_unmarked(others, "input")
    marked = [each if text else None for text, each in zip(is_text, contents, strict=True)]
    return blend_of(body.blend, body.documents, marked, model, "input")
