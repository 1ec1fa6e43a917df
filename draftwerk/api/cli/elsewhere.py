"""Flags and commands of other servers: obeyed where ours mean the same, else answered by name."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

MODEL = ""
"""Stands for the model, which has no flag here."""

SAME_FLAGS = {
    **dict.fromkeys(("--model", "-m", "-hf", "--hf-repo", "--model-path"), MODEL),
    **dict.fromkeys(("--tensor-parallel-size", "-tp", "--tp-size", "--tp"), "--tensor-parallel"),
    **dict.fromkeys(
        ("--pipeline-parallel-size", "-pp", "--pp-size", "--pp"), "--pipeline-parallel"
    ),
    **dict.fromkeys(
        ("--max-num-seqs", "--parallel", "-np", "--max-running-requests"), "--rows-max"
    ),
    **dict.fromkeys(("--max-num-batched-tokens", "--batch-size", "-b"), "--round-tokens"),
    **dict.fromkeys(("--speculative-model", "--model-draft", "-md"), "--draft"),
    **dict.fromkeys(("--ssl-certfile", "--ssl-cert-file"), "--tls-cert"),
    **dict.fromkeys(("--ssl-keyfile", "--ssl-key-file"), "--tls-key"),
    **dict.fromkeys(("--alias", "-a"), "--served-model-name"),
    "--lora-modules": "--lora",
    **dict.fromkeys(("--lora-paths", "--lora-adapters"), "--lora"),
}
"""Other servers' names for a flag of ours, which takes the same values."""

CONTEXT = "a text may be as long as the model's context; --kv-memory SIZE bounds the cache"
DEVICE = "all layers run on one device: --device cpu or --device cuda"
FORMAT = "--dtype names the weights' format, and a quantised file is served as it is"
ALWAYS = "it is always on"
OTHER_FLAGS = {
    **dict.fromkeys(("--max-model-len", "--ctx-size", "-c", "--context-length"), CONTEXT),
    **dict.fromkeys(("-ngl", "--n-gpu-layers", "--gpu-layers", "--split-mode", "-sm"), DEVICE),
    **dict.fromkeys(
        ("--gpu-memory-utilization", "--mem-fraction-static", "--swap-space"),
        "--kv-memory SIZE bounds the key-value cache, --memory-max SIZE the process",
    ),
    **dict.fromkeys(("--quantization", "-q", "--load-format"), FORMAT),
    **dict.fromkeys(
        ("--kv-cache-dtype", "--cache-type-k", "--cache-type-v", "-ctk", "-ctv"), "--kv-dtype"
    ),
    **dict.fromkeys(("--threads", "-t"), "as many threads run as are fastest; taskset bounds them"),
    **dict.fromkeys(
        (
            "--enable-prefix-caching",
            "--cache-prompt",
            "--prefix-caching",
            "--enable-radix-cache",
            "--cont-batching",
            "-cb",
            "--jinja",
            "--enable-chunked-prefill",
            "--metrics",
            "--embeddings",
            "--embedding",
            "--slots",
            "--enable-metrics",
            "--reranking",
        ),
        ALWAYS,
    ),
    "--no-enable-prefix-caching": "cached prefixes change no text; cache_salt keeps one apart",
    **dict.fromkeys(("--flash-attn", "-fa", "--attention-backend"), "--attention NAME"),
    **dict.fromkeys(("--mlock", "--no-mmap"), "weights are packed into memory at the start"),
    "--enforce-eager": "nothing of the kind is needed: texts are the same either way",
    "--trust-remote-code": "a model's own code is never run; `draftwerk models --families`",
    "--seed": "a seed is a request's: `seed` in its body",
    **dict.fromkeys(
        (
            "--speculative-config",
            "--num-speculative-tokens",
            "--draft-max",
            "--spec-type",
            "--speculative-algorithm",
        ),
        "--draft MODEL, --draft-head PATH and --speculate HOW; how many tokens are drafted is "
        "decided by measured cost",
    ),
    **dict.fromkeys(
        ("--enable-auto-tool-choice", "--tool-call-parser"),
        "calls are read in the model's own form; --tool-format names another",
    ),
    **dict.fromkeys(
        ("--reasoning-parser", "--reasoning-format", "--enable-reasoning"),
        "reasoning is told apart by the chat template's own marks",
    ),
    "--chat-template": "the template is the model's own: chat_template.jinja in its directory",
    **dict.fromkeys(
        ("--guided-decoding-backend", "--grammar-backend", "--grammar", "--json-schema"),
        "a request brings its grammar: response_format, structured_outputs or grammar",
    ),
    **dict.fromkeys(
        ("--disable-log-requests", "--disable-log-stats", "--log-disable"),
        "prompts are logged only with --log-prompts",
    ),
    **dict.fromkeys(("--data-parallel-size", "-dp", "--dp-size", "--dp"), "--replicas N"),
    "--allowed-origins": "--cors-origin URL, once for each",
    "--timeout": "--write-deadline-s, --body-deadline-s and --idle-s, each for its own part",
    "--api-key-file": "--api-key, or DRAFTWERK_API_KEY in the environment",
    **dict.fromkeys(("--mmproj", "--limit-mm-per-prompt"), "pictures are not read"),
    **dict.fromkeys(("--enable-lora", "--max-loras", "--max-lora-rank"), "--lora NAME=DIR"),
    **dict.fromkeys(
        ("--ubatch-size", "-ub", "--chunked-prefill-size"),
        "prompts are read in pieces; --round-tokens N bounds a round",
    ),
    **dict.fromkeys(
        ("--rope-scaling", "--rope-freq-base", "--rope-theta", "--hf-overrides"),
        "a model's files say how positions are rotated",
    ),
    **dict.fromkeys(
        ("--revision", "--download-dir", "--hf-token", "--hf-file"),
        "HF_HUB_CACHE and HF_TOKEN are obeyed, and a model is named org/name or org/name/file.gguf",
    ),
    **dict.fromkeys(
        ("--slot-save-path", "--kv-transfer-config", "--cpu-offload-gb"),
        "--kv-store DIR keeps blocks of the cache; --weight-store DIR is for large models",
    ),
    **dict.fromkeys(
        ("--log-level", "--uvicorn-log-level", "--verbose", "-v"),
        "--log-format text|json; the log has a line for each request",
    ),
}
"""Our flags in place of others."""

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


def translated(words: Sequence[str]) -> list[str]:
    """Return a command line with other servers' flags and commands by our names."""
    if not words:
        return []
    command = SAME_COMMANDS.get(words[0], words[0])
    if command not in ("serve", "doctor"):
        return [command, *words[1:]]
    return [command, *_own_flags(words[1:])]


def _own_flags(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        flag, equals, value = word.partition("=")
        own = SAME_FLAGS.get(flag)
        if own is None:
            yield word
        elif own == MODEL:
            if equals:
                yield value
        else:
            yield own + equals + value


def hint_for_flag(flag: str, known: Collection[str]) -> str:
    """Return what to write in place of a flag that is none, or nothing."""
    if (hint := OTHER_FLAGS.get(flag)) is not None:
        return hint
    return _nearest(flag, known)


def hint_for_command(command: str, known: Collection[str]) -> str:
    """Return what to write in place of a command that is none, or nothing."""
    if (hint := OTHER_COMMANDS.get(command)) is not None:
        return hint
    return _nearest(command, [*known, *SAME_COMMANDS])


def _nearest(word: str, known: Collection[str]) -> str:
    """Return the question whether a word of much the same letters was meant."""
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""
