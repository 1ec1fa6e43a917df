"""The `draftwerk` command."""

import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftwerk.api.cli.arguments import chat_command, parser, settings_of
from draftwerk.api.core.config import ConfigError, Settings
from draftwerk.child_python import python_command

if TYPE_CHECKING:
    from draftwerk.api.core.ports import RunningServer
    from draftwerk.speculative.protocol.frames import Ready


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parsed = vars(parser().parse_args(arguments))
    command = parsed.pop("command")
    try:
        return COMMANDS[command](parsed)
    except ConfigError as error:
        print(f"draftwerk: {error}", file=sys.stderr)
        return 2


def serve_command(parsed: dict[str, Any]) -> int:
    """Serve until a signal says stop."""
    settings = settings_of(parsed)

    from draftwerk.api.server import serve

    return serve(settings, build_engine)


def doctor_command(parsed: dict[str, Any]) -> int:
    """Look at the machine, and at what the model does on it."""
    from draftwerk.api.cli.doctor import doctor

    return doctor(settings_of(parsed), measure)


def measure(settings: Settings) -> "Ready":
    """Start the model, and return what it says of itself. Raises ConfigError."""
    from functools import partial

    import anyio

    from draftwerk.actors.devices.child import spawn
    from draftwerk.actors.devices.device import DeviceLostError
    from draftwerk.actors.devices.process import ModelRefusedError, ProcessDevice
    from draftwerk.api.plan import plan
    from draftwerk.model.checkpoint.hub import locate
    from draftwerk.model.checkpoint.info import read_info
    from draftwerk.model.checkpoint.unsupported import Refused
    from draftwerk.speculative.protocol.rounds import Proposal, Verdict

    async def start() -> "Ready":
        planned = plan(settings, read_info(locate(settings.model or None, print)), None)
        target = ProcessDevice[Proposal, Verdict](
            partial(spawn, _worker("target", planned.target_options)), Verdict, settings.silence_s
        )
        try:
            return await target.start(lambda _: None)
        finally:
            await target.close()

    try:
        return anyio.run(start)
    except (Refused, ModelRefusedError, DeviceLostError) as error:
        raise ConfigError(str(error)) from None


@asynccontextmanager
async def build_engine(
    settings: Settings, report: Callable[[str], None]
) -> AsyncGenerator["RunningServer", None]:
    """Run the models, each in a process of its own, and the engine while the block lasts.

    `report` gets progress lines. Raises ConfigError for a model that cannot be served.
    """
    from functools import partial
    from secrets import token_bytes

    from anyio import to_thread

    from draftwerk.actors.devices.child import spawn
    from draftwerk.actors.devices.device import DeviceLostError
    from draftwerk.actors.devices.process import ModelRefusedError, ProcessDevice
    from draftwerk.actors.engine import EngineParts, running
    from draftwerk.actors.monitoring.audit import Audit
    from draftwerk.api.core.ports import RunningServer, ServedModel
    from draftwerk.api.plan import available, plan
    from draftwerk.model.checkpoint.hub import locate
    from draftwerk.model.checkpoint.info import read_info
    from draftwerk.model.checkpoint.unsupported import Refused
    from draftwerk.model.native.gumbel import fastest
    from draftwerk.model.text.tokenizer import TextTokenizer
    from draftwerk.speculative.drafting.proposer import Proposer
    from draftwerk.speculative.drafting.rejection_proposer import RejectionProposer
    from draftwerk.speculative.protocol.rounds import Draft, Proposal, Round, Verdict
    from draftwerk.speculative.sources.store import Memories

    try:
        target_info = read_info(locate(settings.model or None, report))
        draft_info = read_info(locate(settings.draft, report)) if settings.draft else None
        text = TextTokenizer(Path(target_info.directory))
    except Refused as error:
        raise ConfigError(str(error)) from None
    planned = plan(settings, target_info, draft_info)
    target = ProcessDevice[Proposal, Verdict](
        partial(spawn, _worker("target", planned.target_options)), Verdict, settings.silence_s
    )
    proposer = Proposer if settings.verify == "keyed" else RejectionProposer
    memories = Memories()  # of finished outputs; they outlive a restart of the actors
    draft = None
    if planned.draft_options is not None:
        draft = ProcessDevice[Round, tuple[Draft, ...]](
            partial(spawn, _worker("draft", planned.draft_options)),
            tuple[Draft, ...],
            settings.silence_s,
        )
    try:
        ready = await target.start(report)
        if draft is not None:
            await draft.start(report)
        methods = available(planned.methods, ready.draft_head, settings.speculate)
        noise = await to_thread.run_sync(fastest)  # compiles, if no model has
        parts = EngineParts(
            text=text,
            target=target.fresh,
            draft=lambda: None if draft is None else draft.fresh(),
            block_count=planned.block_count,
            block_size=planned.block_size,
            context_max=target_info.context_max,
            stop_token_ids=target_info.eos_token_ids,
            limits=planned.limits,
            proposer=lambda: proposer(methods, ready.step_costs, memories, noise),
            # The door lets in as many as the settings say; some of those before are still leaving.
            requests_max=2 * settings.requests_max,
            name_secret=token_bytes(32),
            audit=Audit(settings.audit),
        )
        async with running(parts) as engine:
            card = ServedModel(
                name=(*settings.served_model_name, target_info.name)[0],
                aliases=settings.served_model_name[1:],
                reasons=text.reasons,
                context_max=parts.tokens_max,
                vocab_size=target_info.vocab_size,
                draft_model="" if draft_info is None else draft_info.name,
                draft_sources=methods,
                device=ready.device,
                dtype=planned.dtype,
                attention=ready.attention,
                exact=ready.exact and settings.verify == "keyed",
            )
            yield RunningServer(engine=engine, text_tools=text, model=card)
    except (ModelRefusedError, DeviceLostError) as error:
        raise ConfigError(str(error)) from None
    finally:
        await target.close()
        if draft is not None:
            await draft.close()


def _worker(role: str, options: dict[str, object]) -> list[str]:
    """Return the command line of a model process."""
    return python_command("draftwerk.model.worker", role, json.dumps(options))


COMMANDS: dict[str, Callable[[dict[str, Any]], int]] = {
    "serve": serve_command,
    "chat": chat_command,
    "doctor": doctor_command,
}


if __name__ == "__main__":
    sys.exit(main())
