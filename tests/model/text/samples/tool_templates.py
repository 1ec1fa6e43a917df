"""Chat templates that describe tools, each with another way of calling, and what a model writes."""

from tests.model.text.samples.call_templates import CALLING, END, OTHERS, PROMPT, START

LISTED = """{%- if tools %}{{- '<|im_start|>system\nList of tools: [' }}{%- for tool in tools %}
{{- tool | tojson }}{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}
{{- ']<|im_end|>\n' }}{%- endif %}"""
BARE = "{%- if false %}"
"""Earlier calls are not shown."""
UNSHOWN = f"{LISTED}{START}{BARE}{OTHERS}{END}{PROMPT}"


def showing(calls: str, before: str = LISTED) -> str:
    """Return a template that shows earlier calls as `calls` says."""
    return (
        f"{before}{START}{CALLING}{{{{- '<|im_start|>assistant\n' }}}}{calls}{OTHERS}{END}{PROMPT}"
    )


def words(text: str) -> str:
    """Return a template that says in words how calls are written, and does not show them."""
    said = f"{{%- if tools %}}{{{{- '{text}' }}}}{{{{- tools | tojson ~ '\n' }}}}{{%- endif %}}"
    system = "{{- '<|im_start|>system\nYou are a made-up model.\n' }}"
    return f"{system}{said}{{{{- '<|im_end|>\n' }}}}{START}{BARE}{OTHERS}{END}{PROMPT}"


EACH = "{%- for call in message.tool_calls %}{%- set f = call.function %}"
DONE = "{%- endfor %}{{- '<|im_end|>\n' }}"
TOOL_TEMPLATES: dict[str, str] = {
    "LFM2": UNSHOWN,
    "Granite": words("Answer with <|tool_call|> and a list of calls: "),
    "Kimi": showing(
        "{{- '<|tool_calls_section_begin|>' }}" + EACH + "{{- '<|tool_call_begin|>' ~ call.id }}"
        "{{- '<|tool_call_argument_begin|>' ~ f.arguments | tojson ~ '<|tool_call_end|>' }}"
        "{%- endfor %}{{- '<|tool_calls_section_end|><|im_end|>\n' }}"
    ),
    "XML words": words('Write <tool_call>{"name": …, "arguments": …}</tool_call>: '),
    "Seed-OSS": showing(
        EACH + "{{- '<seed:tool_call>\n<function=' + f.name + '>\n' }}"
        "{%- for name, value in f.arguments | items %}{{- '<parameter=' + name + '>' }}"
        "{{- value | string }}{{- '</parameter>\n' }}{%- endfor %}"
        "{{- '</function>\n</seed:tool_call>' }}{%- if not loop.last %}{{- '\n' }}{%- endif %}"
        + DONE
    ),
    "id within": showing(
        EACH + "{%- if call.id | length != 9 %}{{- raise_exception('nine') }}{%- endif %}"
        "{{- '[TOOL_CALLS]' + f.name + '[CALL_ID]' + call.id + '[ARGS]' + f.arguments | tojson }}"
        + DONE
    ),
    "id first": showing(
        "{{- '<|tool_calls|>' }}"
        + EACH
        + "{{- '<|tool_call:begin|>' + call.id + '<|tool_call:name|>' }}"
        "{{- f.name + '<|tool_call:args|>' + f.arguments | tojson + '<|tool_call:end|>' }}" + DONE
    ),
    "number behind": showing(
        "{{- '<|calls_begin|>' }}" + EACH + "{{- '<|call_begin|>functions.' + f.name + ':' }}"
        "{{- loop.index0 | string + '<|args_begin|>' + f.arguments | tojson + '<|call_end|>' }}"
        "{%- endfor %}{{- '<|calls_end|><|im_end|>\n' }}"
    ),
    "indented": showing(
        "{{- 'Action:\n```json\n[\n' }}"
        + EACH
        + '{{- \'    {\n        "tool_name": "\' + f.name }}'
        '{{- \'",\n        "parameters": \' + f.arguments | tojson(indent=4) | indent(8) }}'
        "{{- '\n    }' }}{%- if not loop.last %}{{- ',\n' }}{%- endif %}"
        "{%- endfor %}{{- '\n]```<|im_end|>\n' }}"
    ),
    "tools alone": showing(
        EACH + '{{- \'<tool_call>\n{"name": "\' + f.name + \'", "arguments": \' }}'
        "{{- f.arguments | tojson + '}\n</tool_call>' }}" + DONE,
        "{{- '<|im_start|>system\n' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}"
        "{{- '<|im_end|>\n' }}",
    ),
    "unknown": showing(
        EACH + "{{- f.name ~ ' ' ~ f.arguments | length }}" + DONE, LISTED.replace("List of", "The")
    ),
}
"""By what is peculiar to each."""
WRITTEN = {
    "LFM2": '<|tool_call_start|>[weather(city="Kö\'ln", days=2, now=True)]<|tool_call_end|>',
    "Granite": '<|tool_call|>[{"name": "weather", "arguments": {"city": "Kö\'ln", "days": 2, '
    '"now": true}}]',
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
    '<|tool_call_argument_begin|>{"city": "Kö\'ln", "days": 2, "now": true}<|tool_call_end|>'
    "<|tool_calls_section_end|>",
    "XML words": '<tool_call>\n{"name": "weather", "arguments": {"city": "Kö\'ln", "days": 2, '
    '"now": true}}\n</tool_call>',
}
"""A call as a model writes it whose template does not show it."""
NOTES = {
    "LFM2": "the form of LFM2",
    "Granite": "the form of Granite",
    "XML words": "the form of hermes",
    "Kimi": "the form of Kimi",
}
PARTS_ALONE = {
    "loop": "{% for m in messages %}{{ m.role | upper + ': ' }}{% for part in m.content %}"
    "{% if part.type == 'text' %}{{ part.text + ' ' }}{% endif %}{% endfor %}{% endfor %}AI:",
    "filter": "{% for m in messages %}{{ m.role }}: {% for part in m['content'] "
    "| selectattr('type', 'equalto', 'text') %}{{ part['text'] }}{% endfor %}\n{% endfor %}",
    "macro": "{% macro shown(parts) %}{% for part in parts %}{{ part.text if part.type == 'text' }}"
    "{% endfor %}{% endmacro %}{% for m in messages %}{{ m.role ~ shown(m.content) }}|{% endfor %}",
}
"""Templates that show no content that is a text."""
EITHER = (
    "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text | trim }}\n{% endfor %}{% endif %}{% endfor %}"
)
"""One that shows both, and parts otherwise than their text as one."""
