"""A door and replicas in one process: toy engines behind real connections."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from draftwerk.actors.devices.restarts import RestartLimit
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.pipeline import EngineParts
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk_cluster.frame_stream import LinkLostError
from draftwerk_cluster.protocol import ReplicaInfo
from draftwerk_cluster.replica_link import ReplicaLink, connect
from draftwerk_cluster.replica_server import ReplicaServer
from draftwerk_cluster.replica_set import ReplicaSet
from draftwerk_cluster.replica_state import ReplicaState
from tests.support.thread_device import OneAtATime
from tests.support.toy import STOP, ToyTarget, ToyText
from tests.support.waiting import DEADLINE_S, until

SECRET = b"of the cluster"
CONTEXT = 64
BLOCKS, BLOCK_SIZE = 40, 4


@dataclass(eq=False)
class SlowDevice(OneAtATime[Proposal, Verdict]):
    """The toy, at a pace at which streams can be met alive."""

    may_step: asyncio.Event
    step_s: float = 0.001
    target: ToyTarget = field(default_factory=lambda: ToyTarget(BLOCKS, BLOCK_SIZE))

    async def run(self, work: Proposal) -> Verdict:
        await asyncio.sleep(self.step_s)
        await self.may_step.wait()
        return self.target.step(work)


def parts(may_step: asyncio.Event, requests_max: int = 64) -> EngineParts:
    return EngineParts(
        options=all_options(),
        text=ToyText(),
        target=lambda: SlowDevice(may_step),
        block_count=BLOCKS,
        block_size=BLOCK_SIZE,
        context_max=CONTEXT,
        stop_token_ids=(STOP,),
        limits=RoundLimits(rows_max=6, tokens_max=24, draft_max=4),
        requests_max=requests_max,
        name_secret=b"names",
        restarts=lambda: RestartLimit(failures_max=5, pause_s=0),
    )


@dataclass
class Replica:
    """One of them, which can be killed."""

    name: str
    fingerprint: str = "same bits"
    requests_max: int = 64
    server: ReplicaServer = field(init=False)
    engine: Engine = field(init=False)
    port: int = 0
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    may_step: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared where no stream may end yet."""

    async def start(self) -> None:
        self.may_step.set()
        engine = running(parts(self.may_step, self.requests_max))
        self.engine = await self.stack.enter_async_context(engine)
        info = ReplicaInfo(
            replica_id=self.name,
            version="1",
            fingerprint=self.fingerprint,
            model=ServedModel(name="toy", context_max=CONTEXT),
            tokens_max=CONTEXT,
            requests_max=self.requests_max,
            block_size=BLOCK_SIZE,
            name_secret=b"names",
        )
        self.server = ReplicaServer(ReplicaState(self.engine), info, SECRET)
        self.port = await self.stack.enter_async_context(self.server.listening("127.0.0.1"))

    def kill(self) -> None:
        """End its connections as the system does for a process that was killed."""
        for door in list(self.server.state.doors):
            door.abort()


@dataclass
class SmallCluster:
    """A door's view, and what is behind it."""

    door: ReplicaSet
    replicas: dict[str, Replica] = field(default_factory=dict[str, Replica])
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def add(self, replica: Replica) -> ReplicaLink:
        """Start a replica and connect the door to it."""
        await replica.start()
        self.replicas[replica.name] = replica
        return await self.connect(self.door, replica, "door")

    async def connect(self, door: ReplicaSet, replica: Replica, door_id: str) -> ReplicaLink:
        link = await connect("127.0.0.1", replica.port, SECRET, door_id, silence_s=DEADLINE_S)
        door.join(link)
        task = asyncio.create_task(follow(door, link))
        self.tasks.add(task)
        await asyncio.sleep(0)  # a task that is cancelled before it begins closes no link
        return link


async def follow(door: ReplicaSet, link: ReplicaLink) -> None:
    try:
        await link.run(door)
    except LinkLostError:
        door.lose(link)


@asynccontextmanager
async def small_cluster(
    *replicas: Replica, door: ReplicaSet | None = None
) -> AsyncGenerator[SmallCluster]:
    """Run a door and replicas; at the end everything must have come home."""
    cluster = SmallCluster(door or ReplicaSet(ToyText(), CONTEXT))
    try:
        for replica in replicas:
            await cluster.add(replica)
        yield cluster
        cluster.door.check()
        assert not cluster.door.requests and not cluster.door.placed
        for replica in cluster.replicas.values():
            async with asyncio.timeout(DEADLINE_S):
                await replica.engine.idle()
            # The last round may be under way, and the end of a link not yet read.
            await until(lambda at=replica: not at.engine.snapshot().load.blocks_used)
            await until(lambda at=replica: not at.server.state.live)
            replica.engine.check()
    finally:
        for task in cluster.tasks:
            task.cancel()
        await asyncio.gather(*cluster.tasks, return_exceptions=True)
        for replica in reversed(cluster.replicas.values()):
            await replica.stack.aclose()
