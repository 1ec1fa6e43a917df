"""How text is split before bytes are merged: expressions, by the names that llama.cpp has for them.

The expressions are those of the families' own `tokenizer.json` files; where there are several, each
splits what the one before has left whole.
"""

WORD_ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{WORD_ENDS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{REST}"
QWEN2 = rf"{WORD_ENDS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{REST}"
QWEN35 = (
    rf"{WORD_ENDS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+ENDS"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*ENDS"
)
CASED_REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = CASED.replace("ENDS", "") + rf"|\p{{N}}|{CASED_REST}"
GPT4O = CASED.replace("ENDS", f"{WORD_ENDS}?") + rf"|\p{{N}}{{1,3}}|{CASED_REST}"
DIGIT = r"\p{N}"
DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
SEED_CODER = (
    rf"{WORD_ENDS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_NAMES = (
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
    *("lfm2", "jina-v5-nano"),
)
SPLITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*LLAMA3_NAMES, "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), (LLAMA3,)),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan"),
        (QWEN2,),
    ),
    **dict.fromkeys(("grok-2", "solar-open"), (QWEN2,)),
    "qwen35": (QWEN35,),
    "tekken": (TEKKEN,),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), (GPT4O,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "exaone"), (DIGIT, GPT2)),
    **dict.fromkeys(("codeshell", "minerva-7b"), (DIGIT, GPT2)),
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt", "exaone4", "gigachat", "jais"), (GPT2,)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), DEEPSEEK3),
    "seed-coder": (SEED_CODER,),
}
WHOLE_WORDS = frozenset((*LLAMA3_NAMES, "tekken"))
"""Where a piece of text that is a token is that token, whatever its merges; they begin with BOS."""
