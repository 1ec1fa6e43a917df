"""Flags and commands of other servers, and what to write in their place.

In OTHER_FLAGS a name may have `*` in it: newer versions add to families of flags.
"""

MODEL = ""
"""Stands for the model, which has no flag here."""

SAME_FLAGS = {
    "--model -m -hf -hfr --hf-repo --model-path --model-id": MODEL,
    "--tensor-parallel-size -tp --tp-size --tp --num-shard": "--tensor-parallel",
    "--pipeline-parallel-size -pp --pp-size --pp": "--pipeline-parallel",
    "--max-num-seqs --parallel -np --max-running-requests --max-batch-size": "--rows-max",
    "--max-queue --max-queued-requests --max-num-queued-reqs": "--queue-max",
    "--max-num-batched-tokens --batch-size -b": "--round-tokens",
    "--speculative-model --speculative-draft-model-path --model-draft -md "
    "--hf-repo-draft -hfd -hfrd --spec-draft-model --spec-model --spec-draft-hf": "--draft",
    "--kv-cache-dtype": "--kv-dtype",
    "--ssl-certfile --ssl-cert-file": "--tls-cert",
    "--ssl-keyfile --ssl-key-file": "--tls-key",
    "--hostname": "--host",
    "--prometheus-port": "--metrics-port",
    "--cors-allow-origin": "--cors-origin",
    "--shutdown-timeout": "--drain-s",
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

SPECULATION = (
    "--draft MODEL, --draft-head PATH and --speculate HOW; how many tokens are drafted is "
    "decided by measured cost"
)
OTHER_FLAGS = {
    "--*mmproj* -mm -mmu --*limit-mm-* --language-model-only --mm-* --media-* --image-* "
    "--video-* --mtmd-* --allowed-local-media-path --allowed-media-domains --interleave-mm-* "
    "--enable-mm-* --skip-mm-* --enable-multimodal --keep-mm-* --max-image-* "
    "--disable-chunked-mm-*": (
        "--images auto or off says whether pictures are read; an mmproj file is found beside its "
        "GGUF"
    ),
    "--rope-* --hf-overrides --yarn-* --json-model-override-args --grp-attn-* -gan -gaw": (
        "a model's files say how it is built and how positions are rotated"
    ),
    "--enable-*lora* --max-loras --max-*-loras --*lora-rank --lora-* --*-loras --max-lora-* "
    "--specialize-active-lora": "--lora NAME=DIR, once for each",
    "--max-model-len --ctx-size -c --context-length --max-seq-len --max-input-length "
    "--max-input-tokens --num-ctx --keep --disable-sliding-window --allow-auto-truncate": (
        "a text may be as long as the model's context; --kv-memory SIZE bounds the cache"
    ),
    "--split-mode -sm --main-gpu -mg --tensor-split -ts --gpu-layers -ngl *-gpu-layers* -ngl* "
    "--spec-draft-ngl --no-kv-offload -nkvo --kv-offload -kvo -ot* --*override-tensor* "
    "--*cpu-moe* --*-ncmoe -cmoe* -ncmoe* --n-cpu-ffn -ncffn --fit* -fit* --base-gpu-id "
    "--gpu-id-step -dev* --device-ids --list-devices --*-device --device-draft --no-host "
    "--*repack -nr --*op-offload --gpu --gpus --num-gpu": (
        "all layers run on one device: --device cpu or --device cuda"
    ),
    "--gpu-memory-utilization --device-memory-utilization --mem-fraction-static --swap-space "
    "--num-gpu-blocks-override --kv-cache-memory* --max-total-tokens --cache-ram -cram "
    "--cuda-memory-fraction --max-batch-total-tokens --*kv-unified* -kvu -no-kvu --watermark "
    "--*cache-idle-slots --*page-size": (
        "--kv-memory SIZE bounds the key-value cache, --memory-max SIZE the process"
    ),
    "-q --load-format --quanti* --allow-deprecated-quantization --torchao-config --modelopt-*": (
        "--dtype names the weights' format, and a quantised file is served as it is"
    ),
    "--cache-type-* -ctk* -ctv* --kv-cache-dtype-* --spec-draft-type-*": (
        "--kv-dtype names the format of keys and values"
    ),
    "-t -tb -C -Cr -Cb -Crb --threads --threads-batch --threads-http --numa* --prio* --poll* "
    "--cpu-mask* --cpu-range* --cpu-strict* --validation-workers --tokenizer-worker-num "
    "--renderer-num-workers": "as many threads run as are fastest; taskset bounds them",
    "--enable-prefix-caching --cache-prompt --prefix-* --enable-radix-cache -cb --cont-batching "
    "--jinja --enable-chunked-prefill --metrics --embeddings --embedding --slots "
    "--enable-metrics* --reranking --webui --ui --enable-prompt-tokens-details "
    "--async-scheduling --radix-* --enable-cache-report --enable-server-load-tracking "
    "--enable-force-include-usage --enable-request-id-headers --enable-deterministic-inference "
    "--per-request-*": "it is always on",
    "--no-enable-prefix-caching --disable-radix-cache --no-cache-prompt": (
        "cached prefixes change no text; cache_salt keeps one apart"
    ),
    "--flash-attn -fa --*attention-backend --attention-* --*attn-* --gdn-* --kda-* --linear-*": (
        "--attention NAME, which auto chooses best"
    ),
    "--mlock --*mmap --safetensors-* --model-loader-* --load-mode -lm --lazy-mode -lzm "
    "--use-tqdm-* --max-parallel-loading-* --pt-load-* --weight-loader-* --check-tensors "
    "--*direct-io -dio": (
        "weights are packed into memory at the start; --weight-store DIR keeps large ones on disk"
    ),
    "--enforce-eager --disable-cuda-graph* --cuda-graph-* --cudagraph-* --max-cudagraph-* -O* "
    "--optimization-level --compil* --enable-torch-* --torch-* --max-seq-len-to-capture "
    "--*warmup --swa-full --defrag-thold -dt --no-enable-chunked-prefill --no-cont-batching "
    "-nocb --no-slots --*context-shift --props --expert-* --*expert-parallel --ep-* --*eplb* "
    "--*dbo* --moe-* --enable-*moe* --deepep-* --all2all-* --*flashinfer-* --*mamba-* "
    "--replayssm-* --use-* --jit-* --ir-op-* --kernel-config --performance-mode "
    "--disable-custom-all-reduce --enable-mscclpp --disable-overlap-* --disable-cascade-* "
    "--disable-hybrid-* --num-continuous-* --stream-interval --monokernel --swa-* "
    "--ctx-checkpoints -ctxcp -cms --checkpoint-* --waiting-* --slot-prompt-* -sps "
    "--enable-two-batch-* --schedule-conserv* --long-prefill-* --prefill-schedule-* "
    "--scheduler-* --enable-mixed-chunk --*perf --enable-dp-* --enable-*comm* --reuse-port "
    "--max-waiting-tokens --tags --enable-cumem-* --enable-ep-* --enable-shm-* --enable-hc-* "
    "--enable-batch-* --kv-sharing-* --sparse-* --engram-* --diffusion-* --triton-* "
    "--disable-*kernels --cuda-graphs --enable-*mem --*gemm-* --sampling-backend "
    "--disable-shared-* --enable-p2p-* --num-reserved-* --disable-outlines-* --enable-nan-* "
    "--kt-* --gc-* --stream-output --delete-ckpt-* --weight-version --tbo-* --*round-robin* "
    "--warmups --load-watch-*": "nothing of the kind is needed, and texts are the same either way",
    "--trust-remote-code": "a model's own code is never run; `draftwerk models --families`",
    "--enable-fault-* --fault-* --enable-ft-*": "--spare on keeps a second process of the model",
    "--cache-list -cl": "`draftwerk models` lists what was pulled",
    "--completion-bash --version": "see draftwerk --help",
    "--enable-prompt-embeds": "a prompt is text, or its token ids",
    "--model-impl": "--backend transformers, or auto",
    "--seed -s --random-seed": "a seed is a request's: `seed` in its body",
    "-n -l -e -f -r -j -jf -sp -bs --temp --temperature --top-* --min-p --repeat-* --sampl* "
    "--presence-penalty --frequency-penalty --predict --n-predict --max-tokens --ignore-eos "
    "--mirostat* --typical* --xtc-* --dry-* --dynatemp-* --adaptive-* --*logprobs* "
    "--override-generation-config --logit-bias --preferred-sampling-* --max-best-of "
    "--max-stop-sequences --max-top-n-tokens --backend-sampling --file --binary-file --*escape "
    "--reverse-prompt --special --stop -bf --return-* --enable-custom-logit-* --enable-return-* "
    "--watermark-*": (
        "that is a request's, in its body; what it does not say is as --generation-config has it"
    ),
    "--reasoning-budget* --reasoning-effort *chat-template-kwargs": (
        "that is a request's: thinking_budget, reasoning_effort, chat_template_kwargs in its body"
    ),
    "--num-speculative-tokens --draft-n --draft-max --draft-min --draft-* --*spec-* "
    "--speculative-* --*-draft -td* -tbd -Cd -Crd -Cbd -Crbd -lcs -lcd --lookup-cache-* --mtp "
    "--eagle3 --dflash": SPECULATION,
    "--enable-auto-tool-choice --tool-* --tools* --mcp-* --*agent -ag -no-ag --exclude-tools-*": (
        "calls are read in the model's own form, and clients run them; --tool-format names another"
    ),
    "--reasoning* -rea --enable-reasoning --no-reasoning-* --*skip-chat-parsing": (
        "reasoning is told apart by the chat template's own marks"
    ),
    "--chat-template* --no-jinja --completion-template --response-role --*prefill-assistant "
    "--hf-chat-template-name --trust-request-chat-template": (
        "the template is the model's own: chat_template.jinja in its directory"
    ),
    "--tokenizer* --override-kv --skip-tokenizer-* --config-format --hf-config-path "
    "--spm-infill --model-class-*": (
        "the tokenizer, and all that is known of a model, are read from its own files"
    ),
    "--task --runner --convert --is-embedding --*pooler-* --embd-*": (
        "texts and vectors come of any model; --pooling and --rerank say how"
    ),
    "--g*-decoding-backend --grammar* --json-schema* --structured-outputs-* --guided-* "
    "--disable-grammar-support --constrained-json-* --xgrammar-*": (
        "a request brings its grammar: response_format, structured_outputs or grammar"
    ),
    "--*log-requests --disable-log-stats --log-disable --log-prompts-dir --enable-log-outputs "
    "--max-log-len": "prompts are logged only with --log-prompts",
    "--no-webui --no-ui --api-only --disable-fastapi-docs --ui-* --webui-* --no-ui-* "
    "--no-webui-* --path": "the page is a part of the server",
    "--quiet --silent --log-file": "the log goes to standard error: 2> FILE",
    "--dp --dp-size -dp --data-parallel-size": "--replicas N",
    "--data-parallel-* --dp-* --nnodes --node-rank --master-* --dist* --headless --rpc --ray-* "
    "--api-server-count --dcp-* --cp-* --*-context-parallel-size --nccl-* --disable-nccl-* "
    "--elastic-* --enable-elastic-* --sharded --shard-* --disaggregation-* --pd-* "
    "--load-*-method": (
        "one machine serves a model: --replicas N, --tensor-parallel N; docs/cluster.md has more"
    ),
    "--allowed-origins --allow-credentials --allowed-methods --allowed-headers --cors-origins "
    "--cors-* --no-cors-*": "--cors-origin URL, once for each",
    "--timeout -to --timeout-* --*-timeout --*-timeout-seconds --watchdog-* --sse-ping-interval": (
        "--write-deadline-s, --body-deadline-s and --idle-s, each for its own part"
    ),
    "--api-key-file --admin-api-key": "--api-key, or DRAFTWERK_API_KEY in the environment",
    "--root-path --api-prefix --uds --fastapi-root-path --grpc* --ngrok*": (
        "it listens on --host and --port; a proxy takes a prefix off"
    ),
    "--payload-limit --h11-* --max-client-batch-size": "--body-max SIZE bounds a request",
    "--ssl-* --enable-ssl-refresh": "--tls-cert and --tls-key, read again when they change",
    "--control-vector*": "--lora NAME=DIR changes a model's behaviour; vectors are not taken",
    "--ubatch-size -ub --chunked-prefill-size --max-prefill-tokens --max-batch-prefill-tokens "
    "--max-num-scheduled-tokens --max-num-partial-*": (
        "prompts are read in pieces; --round-tokens N bounds a round"
    ),
    "--revision --*-revision --download-dir --hf-* -hft -hff --model-url -mu --huggingface-* "
    "--weights-cache-* --offline --docker-repo -dr --ignore-patterns --*-default --fim-* "
    "--gpt-oss-* --vision-* --weight-transfer-*": (
        "HF_HUB_CACHE and HF_TOKEN are obeyed, and a model is named org/name or org/name/file.gguf"
    ),
    "--models-* --no-models-*": (
        "a folder of models is taken as MODEL, or --models FILE; --memory-max bounds them"
    ),
    "--sleep-* --enable-sleep-mode --ttl": "--keep-alive TIME unloads a model that nobody asks",
    "--scheduling-policy --schedule-policy --enable-priority-scheduling --priority-*": (
        "a request has a priority, and --slo its promises"
    ),
    "--max-concurrent-requests --max-num-active-seqs --max-num-queued-tokens": (
        "--requests-max N, and --queue-max N for those that wait"
    ),
    "--slot-save-path --kv-transfer-config --kv-offloading-* --kv-events-* --cpu-offload-* "
    "--offload-* --cache-reuse --hicache-* --enable-hierarchical-cache --lmcache-* "
    "--enable-lmcache --ec-* --prompt-cache*": (
        "--kv-store DIR keeps blocks of the cache; --weight-store DIR is for large models"
    ),
    "--log-* --no-log-* --uvicorn-* --verbos* -v -lv --aggregate-engine-logging --logging-* "
    "--enable-logging-* --logger-* --json-output --access-log* --disable-*access-log* "
    "--decode-log-*": "--log-format text|json; the log has a line for each request",
    "--otlp-* --collect-detailed-* --*trace* --prometheus-* --custom-histogram-* --bucket-* "
    "--*-metrics --kv-cache-metrics-* --profiler-* --enable-*profil* --*nvtx* --usage-stats "
    "--show-hidden-* --collect-* --*histogram*": (
        "/metrics tells where the time of requests goes; draftwerk_request_stage_seconds"
    ),
    "--worker-* --logits-processors --io-processor-* --*-plugin --additional-config "
    "--middleware --custom-*": "nothing is plugged in from outside; docs/extending.md",
    "--file-storage-path": "--files DIR keeps files and batches",
    "--crash-dump-folder": "--record LOG.jsonl keeps what is asked and answered",
    "--env": "`draftwerk doctor`",
    "-p": "--port N; a prompt is a request's",
    "--daemon --detach -d --background": "a service runs it: deploy/draftwerk.service",
}
"""What to write in place of other servers' flags."""

SAME_COMMANDS = {
    **dict.fromkeys(("list", "ls"), "models"),
    **dict.fromkeys(("remove", "delete", "uninstall"), "rm"),
    **dict.fromkeys(("quantize", "llama-quantize"), "quantise"),
    **dict.fromkeys(
        ("server", "start", "launch", "launch_server", "api_server", "up", "llama-server"), "serve"
    ),
    **dict.fromkeys(("download", "fetch", "download-weights", "get"), "pull"),
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
    **dict.fromkeys(
        ("bench", "benchmark", "bench_serving", "bench-serving", "llama-bench"),
        "`draftwerk loadtest`",
    ),
    **dict.fromkeys(
        ("complete", "generate", "completion", "llama-cli", "cli", "ask"),
        "`draftwerk chat TEXT`, or POST /v1/completions",
    ),
    **dict.fromkeys(("collect-env", "env", "info", "check"), "`draftwerk doctor`"),
    **dict.fromkeys(("status", "top", "logs"), "`draftwerk doctor --port N`, or GET /metrics"),
    **dict.fromkeys(
        ("login", "logout", "signin", "signout", "whoami"), "a hub's token is HF_TOKEN"
    ),
    **dict.fromkeys(("embed", "embedding", "llama-embedding"), "POST /v1/embeddings"),
    "rerank": "POST /v1/rerank",
    "perplexity": "`echo` and `logprobs` of POST /v1/completions",
    "tokenize": "POST /tokenize",
    "router": "`draftwerk serve --replicas N`, or `draftwerk cluster`",
    **dict.fromkeys(("load", "unload"), "POST /v1/models/load and /v1/models/unload"),
    **dict.fromkeys(("import", "search"), "`draftwerk pull org/name`"),
    **dict.fromkeys(("update", "upgrade"), "git pull, and `make setup`"),
    "run-batch": "`draftwerk serve --files DIR`, and POST /v1/batches",
    **dict.fromkeys(
        ("convert", "export"),
        "safetensors are served as they are; `draftwerk quantise` writes a GGUF",
    ),
    "version": "`draftwerk --version`",
    "help": "`draftwerk --help`",
}
"""Our commands in place of others."""
