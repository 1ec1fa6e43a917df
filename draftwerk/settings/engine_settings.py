"""The settings of the models and the engine."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from draftwerk.cache.pages.kv_formats import NATIVE_KV_FORMATS, KvDtype
from draftwerk.settings.approximations import AppliedApproximation, served_approximations
from draftwerk.settings.setting_fields import (
    SIZE_METAVAR,
    SIZE_PATTERN,
    Bytes,
    Strings,
)
from draftwerk.speculative.requests.slo import SloPolicy
from draftwerk.speculative.sources.registry import SETTINGS


class EngineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the models and the engine: `serve` and the Python API alike have these."""

    model: Annotated[
        str, Meta(description="a directory, GGUF file or hub name; without it, the built-in model")
    ] = ""
    served_model_name: Annotated[
        Strings,
        Meta(
            description="the name clients use for the model; may be repeated: replies have the "
            "first, the others are aliases",
            extra={"metavar": "NAME"},
        ),
    ] = ()
    draft: Annotated[
        str, Meta(description="a second, smaller model to draft with", extra={"metavar": "MODEL"})
    ] = ""
    draft_head: Annotated[
        str,
        Meta(
            description="a draft head: a file, the folder of an EAGLE-3 head, a DFlash drafter "
            "(or its GGUF) or an assistant, off, auto for the one that came with the model, or mtp "
            "for the layer in its own files",
            extra={"metavar": "PATH"},
        ),
    ] = "auto"
    lora: Annotated[
        Strings,
        Meta(
            description="a LoRA adapter in PEFT's form, for requests that name it (model "
            "NAME:LORA, or lora); may be repeated",
            extra={"metavar": "LORA=DIR"},
        ),
    ] = ()
    lora_merge: Annotated[
        Strings,
        Meta(
            description="a LoRA adapter that becomes a part of the weights, for every request; may "
            "be repeated",
            extra={"metavar": "DIR"},
        ),
    ] = ()
    speculate: Annotated[
        str,
        Meta(
            description=f"auto, off, or a list of {','.join(SETTINGS)}",
            extra={"metavar": "HOW"},
        ),
    ] = "auto"
    backend: Annotated[
        Literal["auto", "transformers"],
        Meta(
            description="what computes the models; auto: this program, for the architectures of "
            "its table; transformers: Transformers, for others too, slower"
        ),
    ] = "auto"
    dtype: Annotated[
        Literal["auto", "stored", "bf16", "fp32", "int8", "int4", "fp16", "fp8", "w8a8"],
        Meta(
            description="the weights' format; auto: stored (as the file has them) for a quantised "
            "GGUF where kernels know its types, else bf16; fp16, fp8 and w8a8 on a GPU only"
        ),
    ] = "auto"
    kv_dtype: Annotated[
        KvDtype,
        Meta(
            description="the key-value cache's format; auto: as the activations; "
            f"{', '.join(NATIVE_KV_FORMATS)} on a CPU, fp8 on a GPU"
        ),
    ] = "auto"
    approximate: Annotated[
        Strings,
        Meta(
            description="what may be computed inexactly, by name, with parameters as "
            "NAME:key=value,...; may be repeated",
            extra={"metavar": "NAME"},
        ),
    ] = ()
    device: Annotated[Literal["auto", "cpu", "cuda"], Meta(description="where the models run")] = (
        "auto"
    )
    pipeline_parallel: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="stages that the model's layers are divided among, each in a process of "
            "its own; on a CPU",
        ),
    ] = 1
    tensor_parallel: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="processes that share the columns of each product, and the CPUs; the text "
            "stays the same",
        ),
    ] = 1
    attention: Annotated[
        str, Meta(description="an attention backend by name, or auto", extra={"metavar": "NAME"})
    ] = "auto"
    tool_format: Annotated[
        Literal["auto", "hermes", "smollm", "phi", "off"],
        Meta(
            description="how the model writes calls of tools: auto reads it off the chat template, "
            "and is hermes where that has none; the others describe tools in words"
        ),
    ] = "auto"
    generation_config: Annotated[
        Literal["model", "none"],
        Meta(
            description="sampling of requests that do not say it: model: as the model's "
            "generation_config.json, GGUF or card recommends; none: temperature 1 and no more"
        ),
    ] = "model"
    control_tokens: Annotated[
        Literal["text", "tokens"],
        Meta(
            description="what a control token's name is where a client writes it in a conversation"
        ),
    ] = "text"
    pooling: Annotated[
        Literal["auto", "last", "mean"],
        Meta(
            description="which states make a text's vector: the last token's, or the mean of all; "
            "auto: as the checkpoint says, else the last"
        ),
    ] = "auto"
    rerank: Annotated[
        Literal["auto", "yes-no", "off"],
        Meta(
            description="whether documents are ranked: auto: by a model made for it; yes-no: by "
            "any model with a chat template, asked as Qwen3-Reranker is"
        ),
    ] = "auto"
    exact: Annotated[
        bool, Meta(description="one seed, one text, on a GPU too (always so on a CPU)")
    ] = False
    kv_memory: Annotated[
        str,
        Meta(
            pattern=rf"^auto$|{SIZE_PATTERN}",
            description="memory for the key-value cache; auto: from what the weights leave free",
            extra={"metavar": SIZE_METAVAR},
        ),
    ] = "auto"
    weight_store: Annotated[
        str,
        Meta(
            description="a folder for a file of the packed weights, which is read as they are "
            "needed: for a model larger than the memory; it is gone when the server ends",
            extra={"metavar": "DIR"},
        ),
    ] = ""
    kv_store: Annotated[
        str,
        Meta(
            description="a folder that keeps blocks of the key-value cache over restarts; without "
            "it none are kept",
            extra={"metavar": "DIR"},
        ),
    ] = ""
    kv_store_size: Annotated[Bytes, Meta(description="what that folder may hold")] = "8GiB"
    kv_listen: Annotated[
        str,
        Meta(
            description="where other servers fetch cached blocks of this one",
            extra={"metavar": "HOST:PORT"},
        ),
    ] = ""
    kv_peers: Annotated[
        Strings,
        Meta(
            description="another server's --kv-listen, to fetch blocks from; may be repeated; "
            "replicas: those of a cluster fetch from each other",
            extra={"metavar": "HOST:PORT"},
        ),
    ] = ()
    kv_key: Annotated[
        str,
        Meta(
            description="a file with the secret of the servers that hand blocks to each other",
            extra={"metavar": "FILE"},
        ),
    ] = ""
    block_size: Annotated[
        int, Meta(ge=0, le=4096, description="tokens per cache block; 0 lets the backend say")
    ] = 0
    requests_max: Annotated[
        int, Meta(ge=1, le=65536, description="requests in the engine at once")
    ] = 256
    rows_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="texts that are decoded at once; 0: as many as the cache holds, up to "
            "where more bring no more tokens a second",
        ),
    ] = 0
    round_tokens: Annotated[
        int,
        Meta(
            ge=0,
            le=8192,
            description="tokens computed in a round at most; 0: as many as this machine computes "
            "best, by what steps cost",
        ),
    ] = 0
    prefer: Annotated[
        Literal["latency", "throughput"],
        Meta(
            description="whether rounds that read prompts are kept short, so that texts do not "
            "pause for them, or as long as they may be"
        ),
    ] = "latency"
    silence_s: Annotated[
        float, Meta(ge=2, le=3600, description="without a beat before a model process is replaced")
    ] = 8.0
    spare: Annotated[
        Literal["auto", "on", "imports", "off"],
        Meta(
            description="what stands ready to take over: on: a second model process; imports: a "
            "small process that becomes one in a second or two; auto: the first where memory "
            "allows, else the second"
        ),
    ] = "auto"
    run_ahead: Annotated[
        Literal["on", "off"],
        Meta(description="whether the next round is planned while one runs"),
    ] = "on"
    slo: Annotated[
        Strings,
        Meta(
            description="what readers are promised, such as ttft=1s or tpot=50ms; may be repeated",
            extra={"metavar": "OBJECTIVE"},
        ),
    ] = ()
    slo_policy: Annotated[
        SloPolicy,
        Meta(
            description="a request that cannot be kept what it was promised is served in its turn, "
            "last (behind those that can), or refused with the time to come back"
        ),
    ] = "last"
    audit: Annotated[
        float,
        Meta(ge=0, le=1, description="share of finished requests to decode again when idle"),
    ] = 0.0

    @property
    def approximations(self) -> tuple[AppliedApproximation, ...]:
        """The approximations that every text is computed with."""
        return served_approximations(self.approximate, msgspec.structs.asdict(self))

    @property
    def lora_folders(self) -> dict[str, Path]:
        """Where the adapters are, by their names."""
        pairs = (each.partition("=") for each in self.lora)
        return {name: Path(folder).expanduser() for name, _, folder in pairs}

    @property
    def ranks(self) -> int:
        """How many processes compute a step of the target together."""
        return self.pipeline_parallel * self.tensor_parallel
