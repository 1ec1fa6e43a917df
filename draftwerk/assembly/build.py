"""The composition root: settings become models in processes of their own, and an engine over them.

    settings ──> load_models() ──> engine_parts() ──> running() ──> RunningEngine

The server, the Python API, `draftwerk doctor` and the benchmarks all start here.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from secrets import token_bytes
from time import perf_counter

import anyio
from anyio import to_thread

from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.actors.devices.process import ModelRefusedError
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.pipeline import EngineParts
from draftwerk.actors.requests.audit import Audit
from draftwerk.api.shared.ports import RunningServer
from draftwerk.assembly.loading.loaded_models import (
    NOTHING_KNOWN,
    KnownModel,
    LoadedModels,
    load_models,
)
from draftwerk.assembly.loading.model_card import served_model
from draftwerk.assembly.loading.model_infos import Report, located, read_infos
from draftwerk.assembly.memory_demand import drafting_words
from draftwerk.assembly.model_processes import target_process
from draftwerk.assembly.plan import demand_of, plan
from draftwerk.assembly.recoveries import Recoveries
from draftwerk.assembly.round_limits import MeasuredModel, round_limits
from draftwerk.assembly.second_tier import SecondTier, ToldPeers, handing_over, second_tier
from draftwerk.assembly.start_stages import StartStages
from draftwerk.cache.store.disk import KEY_BYTES
from draftwerk.model.native.gumbel import fastest
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.options.beams.search_drafts import SearchDrafts
from draftwerk.speculative.protocol.frames import Ready
from draftwerk.speculative.running_set import Extension
from draftwerk.speculative.sources.store import OutputStores


class RunningEngine(RunningServer, frozen=True, kw_only=True):
    """The engine that `build_engine` yields."""

    engine: Engine
    ready: Ready
    """The measurements of the target's process."""
    peer_port: int = 0
    """Where others fetch blocks of this one; 0 if they cannot."""


@asynccontextmanager
async def build_engine(
    settings: EngineSettings,
    report: Report,
    name_secret: bytes | None = None,
    known: KnownModel = NOTHING_KNOWN,
    told: ToldPeers | None = None,
) -> AsyncGenerator[RunningEngine, None]:
    """Run the models, each in a process of its own, and the engine while the block lasts.

    `report` gets progress lines; `name_secret` keys the names of cached blocks, where they are to
    be those of other engines, and `told` is what a cluster tells of these. Raises ConfigError for
    a model that cannot be served.
    """
    async with load_models(settings, report, known) as models, AsyncExitStack() as own:
        tier = await second_tier(settings, models.ready, models.memory, told)
        if tier is not None:
            own.callback(tier.close)
        parts = await engine_parts(models, settings, name_secret, tier, known.extensions)
        async with running(parts) as engine, handing_over(tier):
            served = served_model(models, settings, parts.tokens_max)
            yield RunningEngine(
                engine=engine,
                text_tools=models.text,
                model=served,
                ready=models.ready,
                peer_port=0 if tier is None else tier.port,
            )


async def engine_parts(
    models: LoadedModels,
    settings: EngineSettings,
    name_secret: bytes | None = None,
    tier: SecondTier | None = None,
    extensions: Sequence[Extension] = (),
) -> EngineParts:
    """Return what the engine is made of."""
    noise = await to_thread.run_sync(fastest)
    if tier is not None:
        name_secret = tier.name_key
    cache_tokens = models.plan.block_count * models.plan.block_size
    limits = round_limits(settings, models.plan.limits, models.ready, cache_tokens)
    attachments = (Recoveries(models.recoveries),)
    stores = OutputStores()  # of finished outputs; they outlive a restart of the actors

    def proposer() -> Proposer:
        ready = models.ready
        return Proposer(
            models.methods,
            ready.step_costs,
            stores,
            noise,
            roofline=ready.roofline,
            clock=perf_counter,
            groups=SearchDrafts,
        )

    return EngineParts(
        text=models.text,
        target=models.target.fresh,
        block_count=models.plan.block_count,
        block_size=models.plan.block_size,
        kinds=(models.plan.windows.kind, models.plan.states.kind),
        context_max=models.target_info.context_max,
        stop_token_ids=models.target_info.eos_token_ids,
        limits=limits,
        options=all_options(more=extensions),
        proposer=proposer if models.plan.target_options.sources is None else no_proposer,
        # Admission lets in as many as the settings say; some of those before are still leaving.
        requests_max=2 * settings.requests_max,
        name_secret=name_secret or token_bytes(KEY_BYTES),
        step_cost=StepCost(models.ready.step_costs, models.ready.roofline),
        audit=Audit(settings.audit),
        attachments=attachments if tier is None else (*attachments, tier.attachment),
        processes=models.processes,
    )


def no_proposer() -> None:
    """Leave the drafting to the target's process."""


def measure(settings: EngineSettings) -> MeasuredModel:
    """Start the target model, and return what its process measured. Raises ConfigError."""

    async def start() -> MeasuredModel:
        info, draft = read_infos(settings, print)
        planned = plan(located(settings, info, draft), info, draft)
        target = target_process(planned.target_options, settings.silence_s)
        stages = StartStages()
        try:
            ready = await target.start(stages.show)
            print(f"         {stages.text()}")
            cache_tokens = planned.block_count * planned.block_size
            limits = round_limits(settings, planned.limits, ready, cache_tokens)
            drafting = drafting_words(demand_of(settings, info, draft))
            return MeasuredModel(ready, limits, cache_tokens, planned.states.interval, drafting)
        finally:
            await target.close()

    try:
        return anyio.run(start)
    except (ModelRefusedError, DeviceLostError) as error:
        raise ConfigError(str(error)) from None
