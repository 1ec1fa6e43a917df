"""Keeps a door connected to every replica in the directory."""

import asyncio
import logging
from dataclasses import dataclass, field

from draftwerk_cluster.frame_stream import LinkLostError
from draftwerk_cluster.ray_serve.directory import BEAT_S, Address, Directory
from draftwerk_cluster.replica_link import connect
from draftwerk_cluster.replica_set import ReplicaSet

LOOK_S = 1.0
"""Between two looks at the directory: each asks Ray's head once for every replica."""
RETRY_S = 1.0
GIVE_UP = 30
"""Attempts in a row after which an address leaves the directory: its replica was killed."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True)
class LinkKeeper:
    """The links of one door."""

    engine: ReplicaSet
    directory: Directory
    secret: bytes
    door_id: str
    silence_s: float
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]])

    async def run(self) -> None:
        """Connect to what is entered, until cancelled."""
        try:
            while True:
                for address in await asyncio.to_thread(self.directory.replicas):
                    if address.replica_id not in self.tasks:
                        task = asyncio.create_task(self._keep(address))
                        self.tasks[address.replica_id] = task
                        task.add_done_callback(
                            lambda _, name=address.replica_id: self.tasks.pop(name, None)
                        )
                self.engine.tend()
                await asyncio.sleep(LOOK_S)
        finally:
            for task in list(self.tasks.values()):
                task.cancel()

    async def _keep(self, address: Address) -> None:
        """Follow one replica until it is gone for good."""
        failures = 0
        while failures < GIVE_UP:
            try:
                link = await connect(
                    address.host, address.port, self.secret, self.door_id, self.silence_s
                )
            except LinkLostError:
                failures += 1
                await asyncio.sleep(RETRY_S)
                continue
            failures = 0
            if link.info.replica_id != address.replica_id:  # its port has another owner now
                await link.frames.close()
                break
            if not self.engine.tokens_max:
                self.engine.tokens_max = link.info.tokens_max
            self.engine.join(link)
            try:
                await link.run(self.engine)
            except LinkLostError as error:
                if link.is_open:
                    log.warning("replica %s is lost: %s", address.replica_id, error)
                else:
                    log.info("replica %s has left", address.replica_id)
            finally:
                self.engine.lose(link)
            await asyncio.sleep(RETRY_S)
        await asyncio.to_thread(self.directory.remove, address.replica_id)


async def keep_links(
    engine: ReplicaSet, directory: Directory, secret: bytes, door_id: str, silence_s: float
) -> None:
    """Keep a door connected to every replica, and known to other doors, until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(LinkKeeper(engine, directory, secret, door_id, silence_s).run())
        group.create_task(beat(engine, directory, door_id))


async def beat(engine: ReplicaSet, directory: Directory, door_id: str) -> None:
    """Let the other doors know of this one, and learn how many there are."""
    while True:
        await asyncio.to_thread(directory.beat, door_id)
        engine.pools.doors = max(1, await asyncio.to_thread(directory.doors))
        await asyncio.sleep(BEAT_S)
