"""Every option, once: the command line is built from these fields and checked by their types."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Endpoint = Literal["chat", "completions", "responses"]
TransportName = Literal["sse", "ws", "json"]
Over = Literal["concurrency", "rate"]
Isolate = Annotated[
    Literal["auto", "salt", "prompts"],
    Meta(
        description="keep runs out of each other's caches by a cache_salt or by other prompts; "
        "auto asks the server which it can"
    ),
]
Count = Annotated[int, Meta(ge=1)]
SecondsText = Annotated[float, Meta(gt=0)]


class LoadTestOptions(Struct, frozen=True, kw_only=True):
    """One run: the target, the request, the workload, the load, the objectives, the output."""

    url: str = "http://127.0.0.1:8000"
    endpoint: Annotated[Endpoint, Meta(description="chat, completions or responses")] = "chat"
    transport: Annotated[
        TransportName, Meta(description="sse, ws (responses only) or json (no stream)")
    ] = "sse"
    model: Annotated[
        str, Meta(description="model name; the first one /v1/models lists if empty")
    ] = ""
    api_key_env: Annotated[str, Meta(description="environment variable with the key")] = (
        "OPENAI_API_KEY"
    )
    keep_alive: Annotated[bool, Meta(description="reuse connections between requests")] = True
    timeout_s: Annotated[float, Meta(description="give up on a request after this", gt=0)] = 600.0

    max_tokens: Annotated[int, Meta(description="output tokens asked for", ge=1)] = 128
    temperature: Annotated[float, Meta(description="sampling temperature", ge=0)] = 0.0
    request_seed: Annotated[int | None, Meta(description="seed sent with every request")] = None
    ignore_eos: Annotated[bool, Meta(description="ask for the full length, past the end token")] = (
        False
    )
    usage: Annotated[bool, Meta(description="ask streams for token counts")] = True
    continuous_usage: Annotated[bool, Meta(description="ask for token counts in every chunk")] = (
        False
    )
    beam_width: Annotated[Count | None, Meta(description="beam search of this width")] = None
    schema: Annotated[str | None, Meta(description="JSON schema file the answers must match")] = (
        None
    )
    extra: Annotated[str | None, Meta(description="JSON object merged into each body")] = None

    workload: Annotated[
        str,
        Meta(
            description="synthetic, count (checkable answers), or KIND:FILE with KIND one of "
            "jsonl, mt-bench, spec-bench, sharegpt, mooncake"
        ),
    ] = "synthetic"
    categories: Annotated[str, Meta(description="keep these categories, comma-separated")] = ""
    skip: Annotated[int, Meta(description="leave out the first sessions of the order", ge=0)] = 0
    turns: Annotated[int, Meta(description="turns per conversation; 0 for all", ge=0)] = 1
    in_order: Annotated[bool, Meta(description="keep the file's order instead of a seeded one")] = (
        False
    )
    file_lengths: Annotated[bool, Meta(description="take output lengths from the file")] = False
    prompt_tokens: Annotated[int, Meta(description="synthetic prompt length", ge=1)] = 128
    prompt_spread: Annotated[float, Meta(description="its spread, a fraction", ge=0, le=1)] = 0.0
    output_spread: Annotated[float, Meta(description="spread of output tokens", ge=0, le=1)] = 0.0
    prefix_groups: Annotated[int, Meta(description="groups sharing a prefix", ge=0)] = 0
    prefix_tokens: Annotated[int, Meta(description="length of a shared prefix", ge=0)] = 256
    zipf: Annotated[float, Meta(description="popularity of groups: 1/rank^zipf", ge=0)] = 1.0
    same_prompt: Annotated[bool, Meta(description="one synthetic prompt for all sessions")] = False
    salted: Annotated[
        bool, Meta(description="a cache_salt of its own in each body, so that no prompt is cached")
    ] = False
    token_ids: Annotated[bool, Meta(description="synthetic prompts as token ids (completions)")] = (
        False
    )

    concurrency: Annotated[Count | None, Meta(description="closed loop with this many users")] = (
        None
    )
    rate: Annotated[
        str | None, Meta(description="open loop, requests/s: 5, a ramp 1..20, or points 0:1,60:20")
    ] = None
    replay: Annotated[bool, Meta(description="open loop at the trace's own times")] = False
    time_scale: Annotated[float, Meta(description="stretch a replayed trace by this", gt=0)] = 1.0
    burstiness: Annotated[float, Meta(description="gamma shape of gaps; 1 is Poisson", gt=0)] = 1.0
    in_flight_max: Annotated[Count | None, Meta(description="open loop: most at once")] = None
    requests: Annotated[Count | None, Meta(description="sessions to run; 100 if no duration")] = (
        None
    )
    duration_s: Annotated[SecondsText | None, Meta(description="start no session after this")] = (
        None
    )
    warmup: Annotated[int, Meta(description="first sessions left out of the numbers", ge=0)] = 0
    user_ramp_s: Annotated[
        float, Meta(description="closed loop: spread the users' start", ge=0)
    ] = 0.0
    think_s: Annotated[float, Meta(description="mean pause between a user's turns", ge=0)] = 0.0
    cancel_fraction: Annotated[float, Meta(description="share that hangs up", ge=0, le=1)] = 0.0
    cancel_after_s: Annotated[float, Meta(description="mean time until it does", gt=0)] = 1.0
    seed: Annotated[int, Meta(description="seed of everything drawn")] = 0

    slo: Annotated[
        list[str],
        Meta(description="limit per request, e.g. ttft=500ms, tpot=50ms, e2e=10s; repeatable"),
    ] = []
    label: Annotated[str, Meta(description="name of this run in tables and plots")] = ""
    output: Annotated[str | None, Meta(description="result file, JSON")] = None
    csv: Annotated[str | None, Meta(description="rows as CSV")] = None
    html: Annotated[str | None, Meta(description="report page")] = None
    chunk_times: Annotated[bool, Meta(description="keep every chunk's time in the result")] = True
    save_text: Annotated[bool, Meta(description="keep the answers in the result")] = False
    scrape: Annotated[bool, Meta(description="read the server's /metrics alongside")] = True
    scrape_s: Annotated[float, Meta(description="how often", gt=0)] = 1.0
    progress: Annotated[bool, Meta(description="show progress on stderr")] = True


class SweepOptions(Struct, frozen=True, kw_only=True):
    """Several runs: the loads, how often, and named variants of the request body."""

    over: Annotated[Over, Meta(description="what changes: concurrency or rate")] = "concurrency"
    loads: Annotated[str, Meta(description="its values, comma-separated")] = "1,4,16,64"
    repeats: Annotated[int, Meta(description="rounds over all loads, interleaved", ge=1)] = 1
    waves: Annotated[int, Meta(description="at least this many requests per user", ge=1)] = 4
    variant: Annotated[
        list[str],
        Meta(description='NAME={"field": …}, merged into the bodies; repeatable, interleaved'),
    ] = []
    isolate: Isolate = "auto"


class SearchOptions(Struct, frozen=True, kw_only=True):
    """Which load to search over, between which bounds, and what counts as holding."""

    over: Annotated[Over, Meta(description="what changes: concurrency or rate")] = "rate"
    low: Annotated[float, Meta(description="start here, and go lower if need be", gt=0)] = 1.0
    high: Annotated[float, Meta(description="never go above", gt=0)] = 1024.0
    attain: Annotated[float, Meta(description="share of requests within the SLOs", gt=0, le=1)] = (
        0.95
    )
    tolerance: Annotated[float, Meta(description="stop when the bounds are this close", gt=0)] = 0.1
    waves: Annotated[int, Meta(description="at least this many requests per user", ge=1)] = 4
    isolate: Isolate = "auto"


class ThroughputOptions(Struct, frozen=True, kw_only=True):
    """How many users there are at first and at most, and when more of them gain nothing."""

    users_min: Annotated[int, Meta(description="users at first", ge=1)] = 1
    users_max: Annotated[int, Meta(description="never more users", ge=1, le=65536)] = 1024
    gain: Annotated[
        float, Meta(description="stop when twice the users gain less, a fraction", ge=0, le=1)
    ] = 0.05
    isolate: Isolate = "auto"
