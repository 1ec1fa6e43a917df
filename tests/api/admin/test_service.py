"""The endpoints about the server itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftwerk.actors.monitoring.snapshot import ActorFigures, ModelFigures, Snapshot
from draftwerk.api.admin.endpoints import ready_reply
from draftwerk.speculative.sources.registry import SOURCES
from draftwerk_cluster.merging import merged
from tests.api.conftest import MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine

VLLM_NAMES = [
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "request_success_total",
    "time_to_first_token_seconds_bucket",
    "inter_token_latency_seconds_bucket",
    "request_time_per_output_token_seconds_bucket",
    "e2e_request_latency_seconds_bucket",
    "request_queue_time_seconds_bucket",
    "request_prefill_time_seconds_bucket",
    "request_decode_time_seconds_bucket",
    "request_prompt_tokens_bucket",
    "request_generation_tokens_bucket",
    "request_max_num_generation_tokens_bucket",
    "num_preemptions_total",
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
    "spec_decode_num_accepted_tokens_per_pos_total",
]


async def test_health_answers_whatever_the_engine_does(served: Served) -> None:
    served.engine.actors = ActorFigures(progress_age_s=1e6)
    assert (await served.http.get("/health")).json() == {"status": "ok"}


async def test_ready_is_503_while_draining_full_or_stuck(served: Served) -> None:
    assert (await served.http.get("/ready")).status_code == 200
    served.engine.actors = ActorFigures(progress_age_s=61)
    stuck = await served.http.get("/ready")
    assert stuck.status_code == 503
    assert "61 s" in stuck.json()["error"]["message"]
    served.engine.actors = ActorFigures()
    served.state.leaving.set()
    assert (await served.http.get("/ready")).status_code == 503
    assert (await served.chat()).json()["error"]["code"] == "draining"


async def test_ready_names_the_stuck_actor_and_the_missing_model(served: Served) -> None:
    ages_s = {"cache": 0.0, "verifier": 61.0}
    served.engine.actors = ActorFigures(actor_ages_s=ages_s, restarts=2)
    stuck = await served.http.get("/ready")
    assert stuck.status_code == 503
    assert "verifier" in stuck.json()["error"]["message"]
    assert stuck.json()["actor_ages_s"]["verifier"] == 61.0
    served.engine.actors, served.engine.models = ActorFigures(), ModelFigures(target_up=False)
    away = await served.http.get("/ready")
    assert away.status_code == 503
    assert "started again" in away.json()["error"]["message"]
    served.engine.actors, served.engine.models = ActorFigures(restarts=2), ModelFigures()
    body = (await served.http.get("/ready")).json()
    assert (body["status"], body["restarts"]) == ("ready", 2)
    assert body.keys() >= {"progress_age_s", "actor_ages_s", "loop_lag_ms"}
    served.engine.actors = ActorFigures()


FINE, AWAY = Snapshot(), Snapshot(models=ModelFigures(target_up=False))
STUCK = Snapshot(actors=ActorFigures(progress_age_s=61.0, actor_ages_s={"verifier": 61.0}))
CLUSTERS: list[Any] = [
    ({"a": FINE, "b": STUCK}, ("a", "b"), True),
    ({"a": AWAY, "b": FINE}, ("a", "b"), True),
    ({"a": STUCK, "b": AWAY}, ("a", "b"), False),
    # What leaves, or is of another pool, takes no new requests.
    ({"a": STUCK, "b": FINE}, ("a",), False),
    ({"a": STUCK}, ("a", "just joined"), True),
    ({"a": Snapshot(draining=True)}, ("a",), False),
]


@pytest.mark.parametrize(("replicas", "open_replicas", "is_ready"), CLUSTERS)
async def test_a_cluster_is_ready_while_one_replica_that_takes_requests_is(
    served: Served, replicas: dict[str, Snapshot], open_replicas: tuple[str, ...], is_ready: bool
) -> None:
    summed = merged(replicas, open_replicas=open_replicas, draining=False, moves={})
    reply = ready_reply(served.state, summed)
    assert reply.status_code == (200 if is_ready else 503)
    body = json.loads(bytes(reply.body))
    assert body["replicas"].keys() == {*replicas, *open_replicas}
    assert ("ready" in body["replicas"].values()) is is_ready
    if STUCK in replicas.values():
        assert "61 s" in str(body["replicas"]) and body["progress_age_s"] == 61.0


async def test_no_memory_no_new_requests() -> None:
    async with serving(FakeEngine(), memory_max="1GiB") as server:
        server.state.memory.observe(2**30)
        refused = await server.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert "retry-after" in refused.headers
        assert (await server.http.get("/ready")).status_code == 503
        server.state.memory.observe(2**29)
        assert (await server.chat()).status_code == 200


async def test_metrics_carry_the_names_of_dashboards(served: Served) -> None:
    await served.chat(seed=1)
    await served.chat("!refuse")
    reply = await served.http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    samples = {
        (sample.name, sample.labels.get("outcome") or sample.labels.get("position")): sample
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
    }
    names = {name for name, _ in samples}
    assert {"vllm:" + name for name in VLLM_NAMES} <= names
    assert samples["vllm:kv_cache_usage_perc", None].value == 0.25
    assert samples["vllm:spec_decode_num_accepted_tokens_per_pos_total", "1"].value == 1
    assert samples["draftwerk_requests_total", "stop"].value == 1
    assert samples["draftwerk_requests_total", "refused"].value == 1
    assert samples["draftwerk_draft_acceptance_rate", None].value == 0.4
    assert samples["draftwerk_accepted_length", None].value == 4 / 3
    assert samples["draftwerk_wasted_draft_tokens_total", None].value == 6
    wait = "draftwerk_mailbox_wait_seconds"
    assert samples[wait + "_count", None].labels["actor"] == "cache"
    assert samples[wait + "_count", None].value == 6
    assert samples[wait + "_sum", None].value == 0.25
    buckets = [
        sample
        for family in text_string_to_metric_families(reply.text)
        for sample in family.samples
        if sample.name == "vllm:time_to_first_token_seconds_bucket"
    ]
    assert sum(float(sample.labels["le"]) < 0.01 for sample in buckets) >= 3
    assert buckets[-1].value == 1


async def test_a_requests_lengths_and_times_add_up(served: Served) -> None:
    usage = (await served.chat(seed=1, n=2)).json()["usage"]
    text = (await served.http.get("/metrics")).text
    sums = {
        sample.name.removeprefix("vllm:").removesuffix("_sum"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith("_sum")
    }
    assert sums["request_prompt_tokens"] == usage["prompt_tokens"]
    assert sums["request_generation_tokens"] == usage["completion_tokens"]
    longest = sums["request_max_num_generation_tokens"]
    assert usage["completion_tokens"] / 2 <= longest < usage["completion_tokens"]
    parts = ("request_queue_time_seconds", "request_prefill_time_seconds",
             "request_decode_time_seconds")  # fmt: skip
    whole = sum(sums[part] for part in parts)
    assert 0 < whole <= sums["e2e_request_latency_seconds"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
async def test_metrics_cover_the_servers_process(served: Served) -> None:
    text = (await served.http.get("/metrics")).text
    found = {family.name for family in text_string_to_metric_families(text)}
    assert found >= {"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds"}


async def test_capabilities_tell_obeyed_refused_and_without_effect(
    served: Served,
) -> None:
    found = (await served.http.get("/v1/capabilities")).json()
    chat = found["endpoints"]["/v1/chat/completions"]
    assert chat["supported"]["n"] == "an integer from 1 to 16"
    assert {"functions", "audio"} <= set(chat["unsupported"])
    assert "tools" in chat["instead"]["functions"]
    assert {"store", "metadata", "reasoning_effort", "verbosity"} <= set(chat["no_effect"])
    responses = found["endpoints"]["/v1/responses"]
    assert {"reasoning", "text.verbosity"} <= set(responses["no_effect"])
    assert "rank_fields" in found["endpoints"]["/v1/rerank"]["unsupported"]
    assert "`json_schema`" in chat["supported"]["response_format"]
    assert found["draft_sources"] == ["ngram", "suffix"]
    assert [each["name"] for each in found["origins"]] == [spec.name for spec in SOURCES]
    assert found["model"] == MODEL


async def test_tokens_go_there_and_back(served: Served) -> None:
    reply = (await served.http.post("/tokenize", json={"prompt": "hé"})).json()
    assert reply == {"tokens": [104, 195, 169], "count": 3, "max_model_len": 4096}
    back = await served.http.post("/detokenize", json={"tokens": reply["tokens"]})
    assert back.json() == {"prompt": "hé", "content": "hé"}
    chat = {"messages": [{"role": "user", "content": "x"}]}
    assert (await served.http.post("/tokenize", json=chat)).json()["count"] == len("user: x\n")


async def test_special_tokens_go_there_and_back_too(served: Served) -> None:
    async def text(**fields: object) -> str:
        return (await served.http.post("/detokenize", json=fields)).json()["prompt"]

    assert await text(tokens=[104, 256, 105]) == "h<end>i"
    assert await text(tokens=[104, 256, 105], skip_special_tokens=True) == "hi"
    bare = {"prompt": "h", "add_special_tokens": False}
    assert (await served.http.post("/tokenize", json=bare)).json()["tokens"] == [104]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "prompt"),
        ("/tokenize", {"prompt": "x", "add_special_tokens": 0}, "add_special_tokens"),
        ("/detokenize", {"tokens": [257]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
    ],
)
async def test_bad_tokens_are_refused(
    served: Served, path: str, body: dict[str, object], param: str
) -> None:
    reply = await served.http.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_the_trace_is_open_in_debug_mode_only(served: Served) -> None:
    assert (await served.http.get("/debug/trace")).status_code == 404
    async with serving(FakeEngine(), debug=True) as debugged:
        found = (await debugged.http.get("/debug/trace")).json()
        assert found["traceEvents"][0]["name"] == "step 1"
