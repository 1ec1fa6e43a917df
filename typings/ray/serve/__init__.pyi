from collections.abc import Callable
from typing import Any

class Application: ...

class _Rank:
    rank: int
    local_rank: int

class _ReplicaContext:
    replica_tag: str
    rank: _Rank

class Deployment:
    def options(self, **options: Any) -> Deployment: ...
    def bind(self, *arguments: Any, **named: Any) -> Application: ...

class _Word:
    value: str

class _DeploymentState:
    status: _Word
    replica_states: dict[str, int]

class _ApplicationState:
    status: _Word
    deployments: dict[str, _DeploymentState]

class _Status:
    applications: dict[str, _ApplicationState]

def deployment(**options: Any) -> Callable[[type], Deployment]: ...
def ingress() -> Callable[[type], type]: ...
def get_replica_context() -> _ReplicaContext: ...
def start(**options: Any) -> None: ...
def run(app: Application, **options: Any) -> Any: ...
def delete(name: str) -> None: ...
def shutdown() -> None: ...
def status() -> _Status: ...
