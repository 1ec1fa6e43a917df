"""A tiny model that reasons first and calls tools: Qwen's marks over the default model's tokens."""

import json
from pathlib import Path

from tests.support.tiny_models import save_tiny_with_text

MARKS = {
    "<issue_start>": "<think>",
    "<issue_closed>": "</think>",
    "<jupyter_code>": "<tool_call>",
    "<jupyter_output>": "</tool_call>",
}
"""Tokens of the default model that have no other use."""
TEMPLATE = """{%- if tools %}{{- '<|im_start|>system\n' }}
{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}
{%- if message.reasoning_content %}
{{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}
"""


def save_thinking_model(directory: Path, seed: int = 3) -> None:
    """Save it as a directory that can be served."""
    save_tiny_with_text(directory, seed=seed)
    path = directory / "tokenizer.json"
    found = json.loads(path.read_text())
    for token in found["added_tokens"]:
        token["content"] = MARKS.get(token["content"], token["content"])
    vocabulary = found["model"]["vocab"]
    for old, new in MARKS.items():
        if old in vocabulary:
            vocabulary[new] = vocabulary.pop(old)
    path.write_text(json.dumps(found))
    (directory / "chat_template.jinja").write_text(TEMPLATE)
