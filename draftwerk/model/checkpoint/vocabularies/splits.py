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
PUNCTUATED = r"[\p{P}\$\+<=>\^~\|`]+"
THREE_DIGITS = "[0-9][0-9][0-9]"
LINE_END = "[\r\n]"
EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_CODER = (LINE_END, r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN, DIGIT)
CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-"
    "\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183"
    "\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-"
    "\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
WIDE_MARKS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
DEEPSEEK_LLM = (
    LINE_END,
    rf"\s?[{CASED_LETTERS}]+",
    rf"\s?[{WIDE_MARKS}]+",
    r"\s+$",
    EAST_ASIAN,
    r"\p{N}+",
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
    "falcon": (PUNCTUATED, GPT2, THREE_DIGITS),
    "deepseek-coder": DEEPSEEK_CODER,
    "deepseek-llm": DEEPSEEK_LLM,
}
WHOLE_WORDS = frozenset((*LLAMA3_NAMES, "tekken"))
"""Where a piece of text that is a token is that token, whatever its merges; they begin with BOS."""
COMPOSED = frozenset(("qwen2", "qwen35", "command-r", "olmo"))
"""Whose tokenizers compose characters first (NFC), as Transformers' classes have it."""
