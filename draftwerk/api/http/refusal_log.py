"""The account of requests that are turned away before they reach the engine."""

from starlette.types import ASGIApp, Receive, Scope, Send

from draftwerk.api.shared.errors import REFUSAL, ApiError
from draftwerk.api.shared.state import ServerState


class RefusalLog:
    """Counts and logs what ended in an error without a generation, which accounts for itself."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app = app
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        finally:
            error: ApiError | None = scope.get(REFUSAL)
            if error is not None:
                method = scope.get("method", "WS")
                tenant = scope.get("tenant", "")
                what = f"{method} {scope['path']}"
                self.state.account_refusal(scope["request_id"], tenant, what, error)
