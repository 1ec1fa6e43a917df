"""The metrics of `/metrics`: the engine's counters and the API's histograms, under two names.

Ours start with `draftwerk_`; those of vLLM's dashboards are there beside them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from platform import python_version

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from draftwerk.actors.monitoring.snapshot import ClusterFigures, Snapshot
from draftwerk.api.admin.metric_families import (
    counter_of,
    gauge_of,
    gauges_of,
    histogram_of,
    histograms_of,
    split_of,
)
from draftwerk.api.shared.models import ModelShelving, ModelStates, OneModel
from draftwerk.api.shared.state import ServerState
from draftwerk.machine.version import __version__
from draftwerk.speculative.load.stats import SchedulerStats


def registry(models: ModelStates) -> CollectorRegistry:
    """Return everything that one scrape reads; `process_*` is of the server, not of the models."""
    found = CollectorRegistry()
    found.register(MetricsCollector(models))
    ProcessCollector(registry=found)
    return found


class MetricsCollector(Collector):
    """Reads one snapshot per model and scrape, so that all numbers are of one moment."""

    def __init__(self, models: ModelStates) -> None:
        self.models = models

    def collect(self) -> Iterable[Metric]:
        """Yield every metric; where there are several models, theirs under their names."""
        states = self.models.states
        snapshots = [self.models.snapshot(state) for state in states]
        yield from _server(states[0], snapshots[0])
        found = [_of_model(*each) for each in zip(states, snapshots, strict=True)]
        names = [state.model.name for state in states]
        yield from labelled(dict(zip(names, found, strict=True)))
        if not isinstance(self.models, OneModel):
            yield from shelving(self.models)


def labelled(found: Mapping[str, Iterable[Metric]]) -> Iterable[Metric]:
    """Return the metrics of several models as one of each name, with the model's name in each."""
    joined: dict[str, Metric] = {}
    for model, metrics in found.items():
        for metric in metrics:
            samples = [
                sample._replace(labels={"model_name": model, **sample.labels})
                for sample in metric.samples
            ]
            whole = joined.setdefault(metric.name, metric)
            whole.samples = samples if whole is metric else [*whole.samples, *samples]
    return joined.values()


def _of_model(state: ServerState, snapshot: Snapshot) -> Iterator[Metric]:
    yield from _vllm(state, snapshot)
    yield from _ours(state, snapshot)
    yield from _replicas(snapshot.cluster)


def _server(state: ServerState, snapshot: Snapshot) -> Iterator[Metric]:
    """Yield what there is once, whatever models there are."""
    for name, text, value in (
        ("loop_lag_seconds", "How late the event loop woke last.", state.loop_lag_s),
        ("memory_bytes", "Of the server and its models (PSS).", state.memory.used_bytes),
        ("tasks", "Tasks of the event loop.", len(asyncio.all_tasks())),
        ("sockets", "Open WebSockets.", state.sockets.total()),
        ("draining", "1 while shutting down.", int(state.draining or snapshot.draining)),
    ):
        yield gauge_of("draftwerk_" + name, text, value, {})
    build = {"version": __version__, "python": python_version()}
    yield gauge_of("draftwerk_build_info", "1: which program this is.", 1, build)
    lag = "How late the event loop wakes."
    yield histogram_of("draftwerk_event_loop_lag_seconds", lag, state.histograms.loop_lag, {})


def shelving(models: ModelStates) -> Iterator[Metric]:
    """Yield what is loaded of several models."""
    found = {state.model.name: models.described(state) for state in models.states}
    gauges: tuple[tuple[str, str, Callable[[ModelShelving], float]], ...] = (
        ("loaded", "1 while it serves.", lambda one: one.state == "ready"),
        ("loading", "1 while it is being loaded.", lambda one: one.state == "loading"),
        ("pinned", "1 where it stays loaded.", lambda one: one.pinned),
        ("memory_bytes", "What it takes at most while loaded.", lambda one: one.memory_bytes),
        ("waiting", "Requests that wait until it is loaded.", lambda one: one.waiting),
        ("load_seconds", "What loading it took last.", lambda one: one.load_s or 0.0),
    )
    for name, text, figure in gauges:
        values = {key: figure(one) for key, one in found.items()}
        yield gauges_of("draftwerk_model_" + name, text, "model_name", values)
    loads = {key: one.loads for key, one in found.items()}
    yield split_of("draftwerk_model_loads", "How often it was loaded.", "model_name", loads, {})


def _vllm(state: ServerState, snapshot: Snapshot) -> Iterator[Metric]:
    """Yield vLLM's names; each is labelled with the model's name, as there."""
    labels = {"model_name": state.model.name}
    load, counts = snapshot.load, snapshot.counts
    waiting = load.waiting + state.admission.waiting
    used = load.blocks_used / load.blocks_total if load.blocks_total else 0.0
    for name, text, value in (
        ("num_requests_running", "Requests in rounds.", load.running),
        ("num_requests_waiting", "Requests waiting for their first round.", waiting),
        ("kv_cache_usage_perc", "Used blocks, as a fraction from 0 to 1.", used),
    ):
        yield gauge_of("vllm:" + name, text, value, labels)
    for name, text, value in (
        ("prefix_cache_queries", "Prompt tokens looked up.", counts.prompt_tokens),
        ("prefix_cache_hits", "Prompt tokens found.", counts.prefix_hits),
        ("prompt_tokens", "Prompt tokens.", counts.prompt_tokens),
        ("generation_tokens", "Generated tokens.", state.histograms.delivered_tokens),
        ("num_preemptions", "Preempted sequences.", counts.preemptions),
        ("spec_decode_num_drafts", "Rows with a draft.", counts.drafts),
        ("spec_decode_num_draft_tokens", "Drafted tokens.", counts.draft_tokens),
        ("spec_decode_num_accepted_tokens", "Accepted tokens.", counts.accepted_tokens),
    ):
        yield counter_of("vllm:" + name, text, value, labels)
    positions = {str(j): count for j, count in enumerate(counts.accepted_by_position)}
    yield split_of(
        "vllm:spec_decode_num_accepted_tokens_per_pos",
        "Accepted tokens by their place in the draft.",
        "position",
        positions,
        labels,
    )
    reasons = {name: state.outcomes[name] for name in ("stop", "length")}
    yield split_of("vllm:request_success", "Finished requests.", "finished_reason", reasons, labels)
    times = state.histograms
    for name, text, histogram in (
        ("time_to_first_token_seconds", "From arrival to the first token.", times.first_token),
        ("inter_token_latency_seconds", "Between tokens, per token.", times.between_tokens),
        ("request_time_per_output_token_seconds", "Mean per request.", times.per_token),
        ("e2e_request_latency_seconds", "From arrival to the last token.", times.whole),
        (
            "request_queue_time_seconds",
            "All that a request waits before its own tokens are computed.",
            times.queue,
        ),
        ("request_prefill_time_seconds", "From admission to the first token.", times.prefill),
        ("request_decode_time_seconds", "From the first token to the last.", times.decode),
        ("request_prompt_tokens", "Prompt tokens of a request.", times.prompt_tokens),
        ("request_generation_tokens", "Generated tokens of a request.", times.generation_tokens),
        (
            "request_max_num_generation_tokens",
            "Generated tokens of a request's longest choice.",
            times.longest_generation,
        ),
    ):
        yield histogram_of("vllm:" + name, text, histogram, labels)


def _ours(state: ServerState, snapshot: Snapshot) -> Iterator[Metric]:
    """Yield what no other server counts."""
    load, counts = snapshot.load, snapshot.counts
    actors, models = snapshot.actors, snapshot.models
    for name, text, value in (
        ("blocks", "Blocks of the key-value cache.", load.blocks_total),
        ("blocks_used", "Blocks that sequences hold.", load.blocks_used),
        ("blocks_cached", "Blocks kept for their prefix alone.", load.blocks_cached),
        ("round_tokens_max", "Tokens that a round may hold.", load.round_tokens),
        ("progress_age_seconds", "Since the last round, with work.", actors.progress_age_s),
        ("draft_acceptance_rate", "Accepted per drafted token.", _acceptance_rate(counts)),
        ("generations", "Requests that the server holds open.", len(state.live)),
    ):
        yield gauge_of("draftwerk_" + name, text, value, {})
    wasted = counts.draft_tokens - counts.accepted_tokens
    for name, text, value in (
        ("rounds", "Device steps.", counts.rounds),
        ("overrun_tokens", "Decided after their text had ended.", counts.overrun_tokens),
        ("actor_restarts", "Actors restarted after a crash.", actors.restarts),
        (
            "device_recoveries",
            "Model processes replaced in a round.",
            models.recoveries,
        ),
        ("recomputed_tokens", "Computed a second time.", counts.recomputed_tokens),
        ("wasted_draft_tokens", "Drafted tokens that were not accepted.", wasted),
    ):
        yield counter_of("draftwerk_" + name, text, value, {})
    for name, text, label, values in (
        ("requests", "Requests by how they ended.", "outcome", state.outcomes),
        ("slo_requests", "Requests by what they were promised.", "promise", state.slo_outcomes),
        ("accepted_tokens", "Accepted tokens.", "source", counts.accepted_by_source),
        ("draft_tokens", "Drafted tokens.", "source", counts.drafted_by_source),
        ("drafts", "Rows that a source drafted for.", "source", counts.drafts_by_source),
        ("audits", "Requests decoded again, by outcome.", "outcome", snapshot.audits),
        ("device_busy_seconds", "Computing, by stage.", "stage", models.device_busy_s),
    ):
        yield split_of("draftwerk_" + name, text, label, values, {})
    devices = {"target": models.target_up}
    for name, process in models.processes.items():  # spares, ranks
        if name != "fork_server":
            devices.setdefault(name, process is not None)
    processes = {name: each for name, each in models.processes.items() if each is not None}
    lengths = {
        source: counts.accepted_by_source.get(source, 0) / count
        for source, count in counts.drafts_by_source.items()
    }
    for name, text, label, values in (
        ("accepted_length", "Mean accepted tokens of a source's draft.", "source", lengths),
        ("mailbox_depth", "Messages waiting for an actor.", "actor", actors.mailbox_depths),
        ("actor_age_seconds", "At the work it is doing.", "actor", actors.actor_ages_s),
        ("device_up", "Whether a model is there.", "device", devices),
        ("device_process", "The id of a model's process.", "device", processes),
    ):
        yield gauges_of("draftwerk_" + name, text, label, values)
    yield from _store(snapshot.store, counts.blocks_returned)
    for name, text, label, histograms in (
        ("mailbox_wait", "Until an actor took a message.", "actor", actors.mailbox_waits),
        ("request_stage", "Of a choice that has ended.", "stage", snapshot.request_stages),
    ):
        yield histograms_of(f"draftwerk_{name}_seconds", text, label, histograms)
    gap = "From a step's end to the next forward pass, with work."
    yield histogram_of("draftwerk_device_gap_seconds", gap, models.device_gaps, {})


def _replicas(cluster: ClusterFigures) -> Iterator[Metric]:
    """Yield what each replica of a cluster counts, and what moved between them; the rest of the
    page has their sums."""
    if not cluster.replicas and not cluster.moves:
        return
    found = cluster.replicas
    gauges: tuple[tuple[str, str, Callable[[Snapshot], float]], ...] = (
        ("running", "Requests in rounds.", lambda one: one.load.running),
        ("waiting", "Requests that wait.", lambda one: one.load.waiting),
        ("blocks", "Blocks of its cache.", lambda one: one.load.blocks_total),
        ("blocks_used", "Blocks that sequences hold.", lambda one: one.load.blocks_used),
        ("up", "Whether its model is there.", lambda one: one.models.target_up),
        (
            "progress_age_seconds",
            "Since its last round, with work.",
            lambda one: one.actors.progress_age_s,
        ),
    )
    for name, text, figure in gauges:
        values = {key: figure(one) for key, one in found.items()}
        yield gauges_of("draftwerk_replica_" + name, text, "replica", values)
    counters: tuple[tuple[str, str, Callable[[Snapshot], float]], ...] = (
        ("prompt_tokens", "Prompt tokens.", lambda one: one.counts.prompt_tokens),
        ("generation_tokens", "Generated tokens.", lambda one: one.counts.generated_tokens),
        ("prefix_cache_queries", "Prompt tokens looked up.", lambda one: one.counts.prompt_tokens),
        ("prefix_cache_hits", "Prompt tokens found.", lambda one: one.counts.prefix_hits),
        ("restarts", "Its actors restarted.", lambda one: one.actors.restarts),
    )
    for name, text, figure in counters:
        values = {key: figure(one) for key, one in found.items()}
        yield split_of("draftwerk_replica_" + name, text, "replica", values, {})
    text = "Streams that went on at another replica, by why."
    yield split_of("draftwerk_stream_moves", text, "reason", cluster.moves, {})


def _store(counters: Mapping[str, float], returned: int) -> Iterator[Metric]:
    """Yield what tier two counts, where there is one."""
    if not counters:
        return
    for name, text in (
        ("hits", "Blocks loaded from the store."),
        ("misses", "Blocks that the store did not have after all."),
        ("refused", "Records that were cut, altered or another's."),
        ("writes", "Blocks written to the store."),
        ("failed_writes", "Blocks that could not be written."),
        ("evictions", "Records removed for room."),
        ("read_bytes", "Bytes loaded from the store."),
        ("written_bytes", "Bytes written to the store."),
        ("load_seconds", "Time spent loading blocks."),
        ("write_seconds", "Time spent writing blocks."),
    ):
        yield counter_of("draftwerk_kv_store_" + name, text, counters[name], {})
    text = "Blocks loaded for sequences that were preempted."
    yield counter_of("draftwerk_kv_store_returned", text, returned, {})
    for name, text in (("bytes", "What the store holds."), ("blocks", "Blocks it can give.")):
        yield gauge_of("draftwerk_kv_store_" + name, text, counters[name], {})


def _acceptance_rate(counts: SchedulerStats) -> float:
    return counts.accepted_tokens / counts.draft_tokens if counts.draft_tokens else 0.0
