"""Flags and commands of other servers: obeyed where ours mean the same, else answered by name."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

MODEL = ""
"""Stands for the model, which has no flag here."""

SAME_FLAGS = {
    "--model -m -hf -hfr --hf-repo --model-path": MODEL,
    "--tensor-parallel-size -tp --tp-size --tp": "--tensor-parallel",
    "--pipeline-parallel-size -pp --pp-size --pp": "--pipeline-parallel",
    "--max-num-seqs --parallel -np --max-running-requests": "--rows-max",
    "--max-queue --max-queued-requests": "--queue-max",
    "--max-num-batched-tokens --batch-size -b": "--round-tokens",
    "--speculative-model --speculative-draft-model-path --model-draft -md "
    "--hf-repo-draft -hfd -hfrd --spec-draft-model": "--draft",
    "--kv-cache-dtype": "--kv-dtype",
    "--ssl-certfile --ssl-cert-file": "--tls-cert",
    "--ssl-keyfile --ssl-key-file": "--tls-key",
    "--alias -a": "--served-model-name",
    "--lora-modules --lora-paths --lora-adapters": "--lora",
}
"""Other servers' names for a flag of ours, which takes the same values."""

SAME_VALUES: dict[str, dict[str, str]] = {
    "--dtype": {
        **dict.fromkeys(("half", "float16"), "fp16"),
        "bfloat16": "bf16",
        **dict.fromkeys(("float32", "float"), "fp32"),
    },
    "--kv-dtype": dict.fromkeys(("fp8_e4m3", "float8_e4m3fn"), "fp8"),
    "--generation-config": {"auto": "model", "vllm": "none"},
    "--device": dict.fromkeys(("gpu", "cuda:0"), "cuda"),
}
"""Other servers' words for a value of a flag of ours."""

OTHER_FLAGS = {
    "--max-model-len --ctx-size -c --context-length --max-seq-len": (
        "a text may be as long as the model's context; --kv-memory SIZE bounds the cache"
    ),
    "-ngl --n-gpu-layers --gpu-layers --split-mode -sm --main-gpu -mg --tensor-split -ts -ngld "
    "--gpu-layers-draft --no-kv-offload -nkvo -ot --override-tensor --cpu-moe --n-cpu-moe -cmoe "
    "-ncmoe --fit --base-gpu-id": ("all layers run on one device: --device cpu or --device cuda"),
    "--gpu-memory-utilization --mem-fraction-static --swap-space --num-gpu-blocks-override "
    "--kv-cache-memory-bytes --max-total-tokens --cache-ram -cram": (
        "--kv-memory SIZE bounds the key-value cache, --memory-max SIZE the process"
    ),
    "--quantization -q --load-format": (
        "--dtype names the weights' format, and a quantised file is served as it is"
    ),
    "--cache-type-k --cache-type-v -ctk -ctv": "--kv-dtype names the format of keys and values",
    "--threads -t --threads-batch -tb --threads-http --numa --prio --cpu-mask --cpu-range": (
        "as many threads run as are fastest; taskset bounds them"
    ),
    "--enable-prefix-caching --cache-prompt --prefix-caching --enable-radix-cache -cb "
    "--cont-batching --jinja --enable-chunked-prefill --metrics --embeddings --embedding --slots "
    "--enable-metrics --reranking --webui --enable-prompt-tokens-details --async-scheduling": (
        "it is always on"
    ),
    "--no-enable-prefix-caching --disable-radix-cache --no-cache-prompt": (
        "cached prefixes change no text; cache_salt keeps one apart"
    ),
    "--flash-attn -fa --attention-backend": "--attention NAME, which auto chooses best",
    "--mlock --no-mmap --mmap": "weights are packed into memory at the start",
    "--enforce-eager --disable-cuda-graph --cuda-graph-max-bs --cuda-graph-bs -O -O1 -O2 -O3 "
    "--compilation-config --enable-torch-compile --torch-compile --max-seq-len-to-capture "
    "--no-warmup --warmup --swa-full --defrag-thold --no-enable-chunked-prefill --no-cont-batching "
    "--enable-expert-parallel --no-slots --props --context-shift --no-context-shift": (
        "nothing of the kind is needed, and texts are the same either way"
    ),
    "--trust-remote-code": "a model's own code is never run; `draftwerk models --families`",
    "--seed -s --random-seed": "a seed is a request's: `seed` in its body",
    "--temp --temperature --top-k --top-p --min-p --repeat-penalty --repeat-last-n --samplers "
    "--presence-penalty --frequency-penalty -n --predict --n-predict --ignore-eos --mirostat "
    "--typical --xtc-probability --dry-multiplier --max-logprobs --override-generation-config "
    "--logits-processors --logit-bias": (
        "that is a request's, in its body; what it does not say is as --generation-config has it"
    ),
    "--reasoning-budget --chat-template-kwargs": (
        "that is a request's: thinking_budget and chat_template_kwargs in its body"
    ),
    "--speculative-config --num-speculative-tokens --draft-max --draft-min --draft-p-min "
    "--draft-n --spec-type --spec-draft-n-max --spec-draft-n-min --speculative-algorithm "
    "--speculative-algo --speculative-num-steps --speculative-eagle-topk "
    "--speculative-num-draft-tokens": (
        "--draft MODEL, --draft-head PATH and --speculate HOW; how many tokens are drafted is "
        "decided by measured cost"
    ),
    "--enable-auto-tool-choice --tool-call-parser --tools": (
        "calls are read in the model's own form; --tool-format names another"
    ),
    "--reasoning-parser --reasoning-format --enable-reasoning": (
        "reasoning is told apart by the chat template's own marks"
    ),
    "--chat-template --chat-template-file": (
        "the template is the model's own: chat_template.jinja in its directory"
    ),
    "--tokenizer --tokenizer-path --tokenizer-mode --override-kv": (
        "the tokenizer, and all that is known of a model, are read from its own files"
    ),
    "--task --runner --convert --is-embedding": (
        "texts and vectors come of any model; --pooling and --rerank say how"
    ),
    "--guided-decoding-backend --grammar-backend --grammar --json-schema": (
        "a request brings its grammar: response_format, structured_outputs or grammar"
    ),
    "--disable-log-requests --disable-log-stats --log-disable --enable-log-requests": (
        "prompts are logged only with --log-prompts"
    ),
    "--no-webui --no-ui --api-only --disable-fastapi-docs": "the page is a part of the server",
    "--log-file": "the log goes to standard error: 2> FILE",
    "--data-parallel-size -dp --dp-size --dp": "--replicas N",
    "--allowed-origins --allow-credentials --allowed-methods --allowed-headers": (
        "--cors-origin URL, once for each"
    ),
    "--timeout": "--write-deadline-s, --body-deadline-s and --idle-s, each for its own part",
    "--api-key-file": "--api-key, or DRAFTWERK_API_KEY in the environment",
    "--root-path --api-prefix --uds": (
        "it listens on --host and --port; a proxy takes a prefix off"
    ),
    "--mmproj --limit-mm-per-prompt --language-model-only": "pictures are not read",
    "--enable-lora --max-loras --max-lora-rank --lora-scaled --lora-init-without-apply": (
        "--lora NAME=DIR"
    ),
    "--ubatch-size -ub --chunked-prefill-size": (
        "prompts are read in pieces; --round-tokens N bounds a round"
    ),
    "--rope-scaling --rope-freq-base --rope-theta --hf-overrides --yarn-orig-ctx": (
        "a model's files say how positions are rotated"
    ),
    "--revision --download-dir --hf-token -hft --hf-file -hff --model-url -mu": (
        "HF_HUB_CACHE and HF_TOKEN are obeyed, and a model is named org/name or org/name/file.gguf"
    ),
    "--models-dir --models-max --models-preset": (
        "a folder of models is taken as MODEL, or --models FILE; --memory-max bounds them"
    ),
    "--sleep-idle-seconds": "--keep-alive TIME unloads a model that nobody asks",
    "--scheduling-policy --schedule-policy": "a request has a priority, and --slo its promises",
    "--max-concurrent-requests": "--requests-max N, and --queue-max N for those that wait",
    "--slot-save-path --kv-transfer-config --cpu-offload-gb --cache-reuse": (
        "--kv-store DIR keeps blocks of the cache; --weight-store DIR is for large models"
    ),
    "--log-level --uvicorn-log-level --verbose -v": (
        "--log-format text|json; the log has a line for each request"
    ),
}
"""What to write in place of other servers' flags."""

ONE_MODEL = "a model is named once; --also MODEL adds another"
ONE_VALUE = "a flag takes one value, and is repeated for more"

SAME_COMMANDS = {
    **dict.fromkeys(("list", "ls"), "models"),
    "remove": "rm",
    **dict.fromkeys(("quantize", "llama-quantize"), "quantise"),
    **dict.fromkeys(("server", "start", "launch", "launch_server", "api_server"), "serve"),
    "download": "pull",
}
"""Other programs' names for a command of ours that does the same."""

OTHER_COMMANDS = {
    "run": "`draftwerk serve MODEL`, then `draftwerk chat`",
    "ps": "GET /api/ps of the server, or its page",
    "stop": "Ctrl-C, or SIGTERM; `--keep-alive` unloads models that nobody asks",
    "show": "`draftwerk doctor MODEL`",
    "create": "a file of models: `draftwerk serve --models FILE.toml`",
    "cp": "an alias: `draftwerk serve --served-model-name NAME`",
    "push": "files stay where they are; `draftwerk pull NAME` fetches",
    "bench": "`draftwerk loadtest`",
    "complete": "`draftwerk chat TEXT`, or POST /v1/completions",
    "collect-env": "`draftwerk doctor`",
    "run-batch": "`draftwerk serve --files DIR`, and POST /v1/batches",
    "convert": "safetensors are served as they are; `draftwerk quantise` writes a GGUF",
    "version": "`draftwerk --version`",
    "help": "`draftwerk --help`",
}
"""Our commands in place of others."""


def _by_flag(hints: Mapping[str, str]) -> dict[str, str]:
    return {flag: hint for flags, hint in hints.items() for flag in flags.split()}


SAME, OTHER = _by_flag(SAME_FLAGS), _by_flag(OTHER_FLAGS)


def translated(words: Sequence[str]) -> list[str]:
    """Return a command line with other servers' flags and commands by our names."""
    if not words:
        return []
    command = SAME_COMMANDS.get(words[0], words[0])
    if command not in ("serve", "doctor"):
        return [command, *words[1:]]
    return [command, *_own_flags(words[1:])]


def _own_flags(words: Sequence[str]) -> Iterator[str]:
    flag, names_model = "", False
    for word in words:
        if not word.startswith("-"):
            yield SAME_VALUES.get(flag, {}).get(word, word)
            continue
        flag, equals, value = word.partition("=")
        flag = SAME.get(flag, flag)
        value = SAME_VALUES.get(flag, {}).get(value, value)
        if flag != MODEL:
            yield flag + equals + value
        elif names_model:
            yield word
        elif equals:
            yield value
        names_model |= flag == MODEL


def hint_for_flag(flag: str, known: Collection[str]) -> str:
    """Return what to write in place of a flag that is none, or nothing."""
    if SAME.get(flag) == MODEL:
        return ONE_MODEL
    if not flag.startswith("-"):
        return ONE_VALUE
    return OTHER.get(flag) or _nearest(flag, known)


def hint_for_command(command: str, known: Collection[str]) -> str:
    """Return what to write in place of a command that is none, or nothing."""
    if (hint := OTHER_COMMANDS.get(command)) is not None:
        return hint
    return _nearest(command, [*known, *SAME_COMMANDS])


def _nearest(word: str, known: Collection[str]) -> str:
    """Return the question whether a word of much the same letters was meant."""
    near = get_close_matches(word, known, n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else ""
