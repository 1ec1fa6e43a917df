"""Chat templates that write calls of tools as well-known families do, as short as can be."""

from tests.model.text.samples.families import TEMPLATES

START = "{%- for message in messages %}"
END = "{%- endfor %}"
SYSTEM = """{%- if tools %}{{ '<|im_start|>system\n# Tools\n' }}
{%- for tool in tools %}{{ tool | tojson }}{{ '\n' }}{%- endfor %}{{ '<|im_end|>\n' }}{%- endif %}
"""
PROMPT = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
OTHERS = """{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- else %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}"""
CALLING = "{%- if message.role == 'assistant' and message.tool_calls %}"
HERMES_CALLS = """{{- '<|im_start|>assistant\n' + message.content }}
{%- for call in message.tool_calls %}
{%- if message.content or not loop.first %}{{- '\n' }}{%- endif %}
{{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\n' }}"""
HERMES = f"{SYSTEM}{START}{CALLING}{HERMES_CALLS}{OTHERS}{END}{PROMPT}"
"""Qwen 2.5 and 3, Hermes 2, Granite 4, SmolLM3."""
THINKING = (
    f"{SYSTEM}{START}{CALLING}{HERMES_CALLS}{OTHERS}{END}{PROMPT}"
    "{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
)
"""Qwen3: the model itself begins its reasoning, unless it is turned off."""
OPEN_THINKING = (
    f"{SYSTEM}{START}{CALLING}{HERMES_CALLS}{OTHERS}{END}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"
    "{# </think> #}"
)
"""Qwen3-Thinking, DeepSeek-R1: the prompt ends inside reasoning."""
SMOLLM_CALLS = """{{- '<|im_start|>assistant\n<tool_call>[' }}
{%- for call in message.tool_calls %}
{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- '}' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}
{%- endfor %}{{- ']</tool_call><|im_end|>\n' }}"""
SMOLLM = f"{SYSTEM}{START}{CALLING}{SMOLLM_CALLS}{OTHERS}{END}{PROMPT}"
"""SmolLM2's model card, Granite 3: a list of calls."""
STRING_ARGUMENTS = f"{SYSTEM}{START}{CALLING}" + (
    """{{- '<|im_start|>assistant\n<calls>' }}
{%- for call in message.tool_calls %}
{{- '<call>' + call.function.name + '<sep>' + call.function.arguments + '</call>' }}
{%- endfor %}{{- '</calls><|im_end|>\n' }}"""
    f"{OTHERS}{END}{PROMPT}"
)
"""DeepSeek: arguments as text between markers."""
PLAIN = f"{START}{{%- if false %}}{OTHERS}{END}{PROMPT}"
"""No tools at all."""
ID_FIRST = f"{SYSTEM}{START}{CALLING}" + (
    """{{- '<|im_start|>assistant\n' }}
{%- for call in message.tool_calls %}
{{- '<call>' + call.id + call.function.name + (call.function.arguments | tojson) + '</call>' }}
{%- endfor %}{{- '<|im_end|>\n' }}"""
    f"{OTHERS}{END}{PROMPT}"
)
"""Kimi K2: an id before the name, which is not known here."""
FAMILIES = {"hermes": HERMES, "smollm": SMOLLM, "string arguments": STRING_ARGUMENTS}
SERVED = (
    *("command_a", "gemma4", "glm4", "granite3", "hunyuan", "lfm2", "llama3", "ministral3"),
    *("mistral_v3", "olmo3", "qwen3_coder"),
)
FAMILIES |= {name: TEMPLATES[name] for name in SERVED}
"""Every way of writing calls that is understood."""
