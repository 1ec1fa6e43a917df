# What this project uses of Ray, for the type checker alone: Ray is an extra, and is not installed
# where the rest is checked.

from typing import Any

from ray import serve as serve

class _Util:
    def get_node_ip_address(self) -> str: ...

util: _Util

def init(**options: Any) -> Any: ...
def shutdown() -> None: ...
