from typing import Any

class HTTPOptions:
    def __init__(self, **options: Any) -> None: ...

class AutoscalingConfig:
    def __init__(self, **options: Any) -> None: ...

class AutoscalingPolicy:
    def __init__(self, **options: Any) -> None: ...
