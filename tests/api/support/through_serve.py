"""The test's side of Ray Serve: replicas of the fake engine, to which Serve's door connects."""

import asyncio
import atexit
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import pytest

from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk_cluster.replica_server import ReplicaServer
from draftwerk_cluster.replica_state import ReplicaState
from tests.api.support.fake_engine import FakeEngine
from tests.api.support.fake_replicas import FakeReplica, replica_info
from tests.api.support.ray_door import REPLICAS, RayDoor

LINKED_S = 30.0


@cache
def ray_door() -> RayDoor:
    """Return the one door of this run of tests; it ends with the run."""
    door = RayDoor.start()
    atexit.register(door.stop)
    return door


class OtherProcess:
    """What is in the door's process: a test that looks into it is skipped."""

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"Serve: the test looks at {name} in the door's process")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        pytest.skip(f"Serve: the test sets {name} in the door's process")


class EncodedPrompt(tuple[int, ...]):
    """A prompt as the door has tokenized it."""

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"Serve: the test looks at {name} of a prompt, which the door has tokenized")


@dataclass(eq=False)
class NotingReplica(FakeReplica):
    """A replica that notes what it was sent, with another engine for each test."""

    @asynccontextmanager
    async def generate(self, prompt: Prompt, options: Options, **named: Any) -> AsyncGenerator[Any]:
        assert isinstance(prompt, tuple), "the door tokenizes"
        self.fake.submitted.append((EncodedPrompt(prompt), options))
        async with super().generate(prompt, options, **named) as stream:
            yield stream


@dataclass
class ServeHost:
    """The replicas of a file of tests, on its loop."""

    url: str
    replicas: list[NotingReplica]

    def use(self, fake: FakeEngine) -> None:
        """Serve this engine from now on."""
        for replica in self.replicas:
            replica.fake = fake


@asynccontextmanager
async def serve_host(model: ServedModel) -> AsyncGenerator[ServeHost]:
    """Be two replicas while the block lasts; yields once Serve's door is connected to both."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install ./cluster")
    door = await asyncio.to_thread(ray_door)
    secret = await asyncio.to_thread(lambda: door.secret)
    replicas = [NotingReplica(FakeEngine()) for _ in REPLICAS]
    async with AsyncExitStack() as stack:
        servers: list[ReplicaServer] = []
        for name, port, replica in zip(REPLICAS, door.replica_ports, replicas, strict=True):
            info = replica_info(name, replica.fake, model)
            server = ReplicaServer(ReplicaState(replica), info, secret)
            await stack.enter_async_context(server.listening("127.0.0.1", port))
            servers.append(server)
        await asyncio.to_thread(door.wait_ready)
        async with asyncio.timeout(LINKED_S):
            while not all(server.state.doors for server in servers):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        yield ServeHost(f"http://127.0.0.1:{door.port}", replicas)
