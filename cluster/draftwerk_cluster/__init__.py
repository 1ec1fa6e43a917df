"""Replicas on Ray Serve: `serve run draftwerk_cluster:app`, `draftwerk serve --replicas N`.

`app` is made when it is first asked for: without Ray, the rest can be imported.
"""


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from draftwerk_cluster.ray_serve.deployments import app

    return app
