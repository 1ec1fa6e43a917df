"""The body of a request, for each endpoint."""

from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec

from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.workloads.prompt import WorkloadPrompt

Fields = dict[str, Any]
MessageList = list[dict[str, str]]


class BodyMaker:
    """Turns a conversation into the bytes to send; files and JSON options are read once."""

    def __init__(self, options: LoadTestOptions, model: str) -> None:
        self._options = options
        self._fields: Fields = {"model": model} | _sampling(options)
        if options.schema:
            self._fields |= _response_format(options, msgspec.json.decode(_bytes(options.schema)))
        self._run, self._salts = token_hex(4), count()  # another run's salts are others
        if options.extra:
            self._fields |= msgspec.json.decode(options.extra, type=Fields)

    def body(self, prompt: WorkloadPrompt, conversation: MessageList) -> bytes:
        """Encode one request; `conversation` ends with the user's newest turn."""
        limit = prompt.output_tokens or self._options.max_tokens
        asked = _asked(self._options, prompt, conversation, limit)
        # The fields come last so that --extra replaces all others.
        asked |= self._fields
        if self._options.salted:
            # Beside the salt that isolates a run from others, if there is one.
            run = asked.get("cache_salt", "loadtest")
            asked["cache_salt"] = f"{run}-{self._run}-{next(self._salts)}"
        return msgspec.json.encode(asked)


def _asked(
    options: LoadTestOptions, prompt: WorkloadPrompt, conversation: MessageList, limit: int
) -> Fields:
    match options.endpoint:
        case "chat":
            return {"messages": conversation, "max_tokens": limit} | _stream(options)
        case "completions":
            text = "\n".join(message["content"] for message in conversation)
            return {"prompt": prompt.token_ids or text, "max_tokens": limit} | _stream(options)
        case "responses":
            asked: Fields = {"input": conversation, "max_output_tokens": limit}
            if options.transport == "ws":
                return {"type": "response.create"} | asked
            return asked | {"stream": options.transport == "sse"}


def _stream(options: LoadTestOptions) -> Fields:
    if options.transport == "json":
        return {"stream": False}
    if not options.usage:
        return {"stream": True}
    asked = {"include_usage": True}
    if options.continuous_usage:
        asked["continuous_usage_stats"] = True
    return {"stream": True, "stream_options": asked}


def _sampling(options: LoadTestOptions) -> Fields:
    fields: Fields = {"temperature": options.temperature}
    if options.request_seed is not None:
        fields["seed"] = options.request_seed
    if options.ignore_eos:
        fields["ignore_eos"] = True
    if options.beam_width is not None:
        fields["beam_width"] = options.beam_width
    return fields


def _response_format(options: LoadTestOptions, schema: object) -> Fields:
    named = {"name": "answer", "schema": schema, "strict": True}
    if options.endpoint == "responses":
        return {"text": {"format": {"type": "json_schema"} | named}}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()
