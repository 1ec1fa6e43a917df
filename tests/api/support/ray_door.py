"""A Ray Serve with the door of the tests: `python -m tests.api.support.ray_door PORT ADDRESS…`.

The door is the deployed one but for its tokenizer; the replicas are the test's own process, at
the addresses. A line of JSON with the secret says that it serves; it ends when its input does.
"""

import json
import logging
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property

from draftwerk.actors.texts.text_tools import TextTools
from draftwerk_tools.loadtest.server.launcher import free_port
from tests.api.support.fake_engine import ByteText

REPLICAS = ("one", "two")
START_S, STOP_S = 120, 60


@dataclass
class RayDoor:
    """The process, from the outside."""

    port: int
    replica_ports: tuple[int, ...]
    process: subprocess.Popen[str]

    @classmethod
    def start(cls) -> "RayDoor":
        port, *ports = (free_port() for _ in range(1 + len(REPLICAS)))
        command = [sys.executable, "-m", __name__, str(port), *map(str, ports)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        return cls(port, tuple(ports), process)

    @cached_property
    def secret(self) -> bytes:
        """The secret of the links, which is there before the door: that waits for a replica."""
        return bytes.fromhex(str(self._line()["secret"]))

    def wait_ready(self) -> None:
        """Return once the door serves."""
        if not self._is_ready:
            raise RuntimeError("the door of Ray did not start")

    @cached_property
    def _is_ready(self) -> bool:
        return bool(self._line()["ready"])

    def _line(self) -> dict[str, object]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"the door of Ray ended with {self.process.wait()}")

    def stop(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(STOP_S)
        self.process.stdout.close()


def main(port: int, replica_ports: list[int]) -> None:
    """Serve until the input ends."""
    from ray import serve

    from draftwerk_cluster.cluster_settings import cluster_settings, with_absolute_paths
    from draftwerk_cluster.ray_serve.deployments import DoorDeployment, door_deployment
    from draftwerk_cluster.ray_serve.directory import Address, Directory
    from draftwerk_cluster.ray_serve.local import local_ray

    class FakeDoor(DoorDeployment):
        def read_text(self) -> TextTools:
            return ByteText()

    logging.disable(logging.INFO)
    settings = cluster_settings({"port": port, "write_deadline_s": 2.0, "drain_s": 1.0})
    with local_ray(settings):
        directory = Directory(settings.app_name)
        for name, each in zip(REPLICAS, replica_ports, strict=True):
            directory.enter(Address(name, "127.0.0.1", each))
        print(json.dumps({"secret": directory.secret("links").hex()}), flush=True)
        door = door_deployment(settings, FakeDoor).bind(with_absolute_paths(settings), None)
        serve.run(door, name=settings.app_name, route_prefix="/")
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.read()
        serve.delete(settings.app_name)


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(each) for each in sys.argv[2:]])
