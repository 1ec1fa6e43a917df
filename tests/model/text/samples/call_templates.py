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
LLAMA = """{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{- raise_exception('one call at once') }}{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + call.name + '", ' }}
{{- '"parameters": ' }}{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
{%- elif message.role == 'user' %}
{{- '<|start_header_id|>user<|end_header_id|>\n\n' }}
{%- if tools and loop.first %}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}{%- endif %}
{{- message.content + '<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content }}
{{- '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}
"""
"""Llama 3.1: bare JSON, one call."""
MISTRAL = """{{- bos_token }}{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{{- '[INST]' + message.content + '[/INST]' }}
{%- elif message.tool_calls is defined and message.tool_calls %}
{{- '[TOOL_CALLS][' }}
{%- for call in message.tool_calls %}
{%- set out = call.function | tojson %}{{- out[:-1] }}
{%- if call.id | length != 9 %}{{- raise_exception('ids have nine characters') }}{%- endif %}
{{- ', "id": "' + call.id + '"}' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}
{%- endfor %}{{- ']' + eos_token }}
{%- elif message.role == 'tool' %}
{{- '[TOOL_RESULTS]{"content": ' + message.content + ', "call_id": "' + message.tool_call_id }}
{{- '"}[/TOOL_RESULTS]' }}
{%- else %}{{- message.content + eos_token }}{%- endif %}
{%- endfor %}"""
"""Mistral 7B v0.3, Nemo: one list, and ids that the model writes."""
MISTRAL_ARGS = """{{- bos_token }}{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{{- '[INST]' + message.content + '[/INST]' }}
{%- elif message.role == 'assistant' %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}
{%- endfor %}{{- eos_token }}
{%- else %}{{- '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}{%- endif %}
{%- endfor %}"""
"""Mistral Small 3.2: a marker before each name, another before its arguments."""
SMOLLM_CALLS = """{{- '<|im_start|>assistant\n<tool_call>[' }}
{%- for call in message.tool_calls %}
{{- '{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) }}
{{- '}' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}
{%- endfor %}{{- ']</tool_call><|im_end|>\n' }}"""
SMOLLM = f"{SYSTEM}{START}{CALLING}{SMOLLM_CALLS}{OTHERS}{END}{PROMPT}"
"""SmolLM2's model card, Granite 3: a list of calls."""
CODER_CALLS = """{{- '<|im_start|>assistant\n' + message.content }}
{%- for call in message.tool_calls %}
{%- if message.content or not loop.first %}{{- '\n' }}{%- endif %}
{{- '<tool_call>\n<function=' + call.function.name + '>\n' }}
{%- for name, value in call.function.arguments | items %}
{{- '<parameter=' + name + '>\n' }}
{{- value if value is string else value | tojson }}{{- '\n</parameter>\n' }}
{%- endfor %}{{- '</function>\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\n' }}"""
CODER = f"{SYSTEM}{START}{CALLING}{CODER_CALLS}{OTHERS}{END}{PROMPT}"
"""Qwen3-Coder, Qwen 3.5: an element for each argument."""
GLM_CALLS = """{{- '<|im_start|>assistant\n' + message.content }}
{%- for call in message.tool_calls %}
{{- '\n<tool_call>' + call.function.name + '\n' }}
{%- for name, value in call.function.arguments | items %}
{{- '<arg_key>' + name + '</arg_key>\n<arg_value>' }}
{{- value if value is string else value | tojson }}{{- '</arg_value>\n' }}
{%- endfor %}{{- '</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\n' }}"""
GLM = f"{SYSTEM}{START}{CALLING}{GLM_CALLS}{OTHERS}{END}{PROMPT}"
"""GLM 4.5: an element for each name and each value."""
LFM2 = (
    """{%- macro value_of(value) %}{%- if value is string %}{{- "'" + value + "'" }}
{%- elif value is mapping or value is iterable %}{{- value | tojson }}
{%- else %}{{- value | string }}{%- endif %}{%- endmacro %}"""
    f"{SYSTEM}{START}{CALLING}"
    """{%- set all = namespace(calls=[]) %}
{%- for call in message.tool_calls %}
{%- set each = namespace(arguments=[]) %}
{%- for name, value in call.function.arguments.items() %}
{%- set each.arguments = each.arguments + [name + '=' + value_of(value)] %}
{%- endfor %}
{%- set all.calls = all.calls + [call.function.name + '(' + each.arguments | join(', ') + ')'] %}
{%- endfor %}
{{- '<|im_start|>assistant\n' + message.content + '<|tool_call_start|>[' }}
{{- all.calls | join(', ') + ']<|tool_call_end|><|im_end|>\n' }}"""
    f"{OTHERS}{END}{PROMPT}"
)
"""LFM2: calls as in Python."""
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
HARMONY = """{{- '<|start|>system<|message|>Reasoning: ' }}
{{- reasoning_effort | default('medium') }}
{{- '\n\n# Valid channels: analysis, commentary, final.<|end|>' }}
{%- if tools %}{{- '<|start|>developer<|message|># Tools\n\nnamespace functions {\n' }}
{%- for tool in tools %}{{- 'type ' + tool.function.name + ' = (_: any) => any;\n' }}{%- endfor %}
{{- '}<|end|>' }}{%- endif %}
{%- set last = namespace(name=none) %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{%- if message.content and message.thinking %}{{- raise_exception('one or the other') }}{%- endif %}
{%- set said = message.thinking or message.content %}
{%- if said %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + said + '<|end|>' }}{%- endif %}
{%- set call = message.tool_calls[0].function %}{%- set last.name = call.name %}
{{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
{{- call.arguments | tojson }}{{- '<|call|>' }}
{%- elif message.role == 'assistant' %}
{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
{%- elif message.role == 'tool' %}
{{- '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' }}
{{- message.content | tojson }}{{- '<|end|>' }}
{%- else %}{{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"""
"""gpt-oss: messages in channels; not derived, but known."""
FAMILIES = {
    "hermes": HERMES,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "mistral args": MISTRAL_ARGS,
    "smollm": SMOLLM,
    "coder": CODER,
    "glm": GLM,
    "lfm2": LFM2,
    "string arguments": STRING_ARGUMENTS,
}
"""Every way of writing calls that is understood."""
WHOLE = ("gemma4", "command_a", "granite3", "hunyuan", "olmo3", "qwen3_coder")
FAMILIES |= {name: TEMPLATES[name] for name in WHOLE}
