"""`POST /v1/verify`: whether texts are what this model gives, by their receipts."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.api.http.connection import while_connected
from draftwerk.api.openai.receipts.receipt import KIND, VERSION, Receipt
from draftwerk.api.openai.receipts.recording import RecordKeeper
from draftwerk.api.openai.receipts.verifying import (
    GreedyDistance,
    ReceiptVerdict,
    ReceiptVerifier,
    distance,
)
from draftwerk.api.requests.deadlines import deadlines_of
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.field_types import BodyText, Name, Time, TokenIds
from draftwerk.api.requests.model_choice import held, named_state
from draftwerk.api.shared.errors import ApiError, refused
from draftwerk.api.shared.handling import Endpoint, call_of, json_reply, state_of, tenant_of
from draftwerk.api.shared.models import models_of
from draftwerk.api.shared.prompt_tokens import encoded, on_thread
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling

RECEIPTS_MAX = 512


class GreedyText(Struct, frozen=True):
    """A text of any server at temperature 0."""

    prompt: BodyText | TokenIds
    text: BodyText | TokenIds


class VerifyBody(Struct, frozen=True):
    """`POST /v1/verify`."""

    receipts: Annotated[list[msgspec.Raw], Meta(max_length=RECEIPTS_MAX)] = []
    """As replies carry them."""
    texts: Annotated[list[GreedyText], Meta(max_length=RECEIPTS_MAX)] = []
    """Texts without receipts, of other servers: they get a distance, and no verdict."""
    pictures: Annotated[list[BodyText], Meta(max_length=RECEIPTS_MAX)] = []
    """Pictures that the receipts name, each as a data URL."""
    model: Name | None = None
    """Whose greedy texts they are compared with; a receipt names its model itself."""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    deadline: Time | None = None
    """From its arrival until it fails unless all is verified."""


class VerifyReply(Struct, frozen=True):
    """The verdicts, in the order of the receipts."""

    equal: bool
    """Whether every receipt's texts are what this model gives."""
    verdicts: list[ReceiptVerdict]
    distances: list[GreedyDistance]
    system_fingerprint: str
    object: str = "verification"


class KeptReceipts(Struct, frozen=True):
    """The reply of `GET /v1/receipts/{request_id}`."""

    receipts: list[Receipt]
    """One for each prompt."""


VERIFY = msgspec.json.Decoder(VerifyBody)


async def verify(request: Request) -> Response:
    """Compute texts again, each as one prefill, and tell the first place that differs."""
    body = await body_of(request, VERIFY)
    if not (body.receipts or body.texts):
        raise refused("Give `receipts` or `texts`.", "receipts", "missing")
    wait_s = deadlines_of(None, body.deadline).deadline_s
    try:
        async with asyncio.timeout(wait_s or None), while_connected(request.receive):
            return await _verified(request, body)
    except TimeoutError:
        said = "The request's `deadline` passed before all was verified."
        raise ApiError(504, said, param="deadline", code="deadline_exceeded") from None


async def _verified(request: Request, body: VerifyBody) -> Response:
    if body.pictures and state_of(request).bodies is None:
        said = "`pictures`: this server reads no pictures."
        raise refused(said, "pictures", "unsupported")
    receipts = [_receipt(raw, number) for number, raw in enumerate(body.receipts)]
    state = named_state(request, body.model)
    states = {name: each for each in models_of(request.app).states for name in each.model.names}
    receipts = [_of_a_model(each, states) for each in receipts]
    # One model after the other: together they may not fit into memory.
    found = dict[int, ReceiptVerdict]()
    for each, numbers in _by_state(states, state, receipts):
        async with held(request.app, each):
            some = [receipts[number] for number in numbers]
            verdicts = await _verdicts(request, each, some, body)
        found.update(zip(numbers, verdicts, strict=True))
    verdicts = [found[number] for number in range(len(receipts))]
    distances = list[GreedyDistance]()
    if body.texts:
        async with held(request.app, state):
            options = Options(sampling=Sampling(temperature=0.0), priority=body.priority or 0)
            texts = enumerate(body.texts)
            distances = [await _distance(request, state, options, *each) for each in texts]
    equal = all(each.verdict == "equal" for each in verdicts)
    return json_reply(VerifyReply(equal, verdicts, distances, state.model.fingerprint))


def _of_a_model(
    receipt: Receipt | ReceiptVerdict, states: Mapping[str, ServerState]
) -> Receipt | ReceiptVerdict:
    """Return a receipt, or the verdict of one whose model is not served."""
    if isinstance(receipt, ReceiptVerdict) or receipt.model in states:
        return receipt
    reason = f"no model {receipt.model[:80]!r} is served here"
    return ReceiptVerdict(verdict="refused", field="model", reason=reason)


def _by_state(
    states: Mapping[str, ServerState],
    default: ServerState,
    receipts: Sequence[Receipt | ReceiptVerdict],
) -> list[tuple[ServerState, list[int]]]:
    """Return the models that receipts are of, and each one's by number."""
    found: list[tuple[ServerState, list[int]]] = []
    for number, receipt in enumerate(receipts):
        state = states[receipt.model] if isinstance(receipt, Receipt) else default
        numbers = next((numbers for each, numbers in found if each is state), None)
        if numbers is None:
            found.append((state, numbers := []))
        numbers.append(number)
    return found


async def _verdicts(
    request: Request,
    state: ServerState,
    receipts: Sequence[Receipt | ReceiptVerdict],
    body: VerifyBody,
) -> list[ReceiptVerdict]:
    """Return the verdicts of a loaded model."""
    if not state.model.exact:
        said = "Receipts need a server whose texts do not depend on the batch."
        raise refused(said, "receipts", "unsupported")
    own = request.scope["request_id"], tenant_of(request), body.priority or 0
    verifier = ReceiptVerifier(state, *own, tuple(body.pictures))
    return await verifier.verdicts(receipts)


async def kept_receipts(request: Request) -> Response:
    """`GET /v1/receipts/{request_id}`: the receipts of a request that this key made."""
    state, request_id = state_of(request), request.path_params["request_id"]
    recorder = state.recorder
    if not isinstance(recorder, RecordKeeper):
        said = "This server keeps no receipts; it needs --receipts or --record."
        raise ApiError(404, said, code="receipts_not_kept")
    found = recorder.kept.of(tenant_of(request)).find(request_id)
    if found is None:
        said = f"There are no receipts of the request {request_id[:80]!r}."
        raise ApiError(404, said, param="request_id", code="receipts_not_found")
    return Response(found.body, media_type="application/json")


class ReceiptHeader(Struct, frozen=True):
    """The fields that every version of a receipt has."""

    version: int
    type: str = KIND


def _receipt(raw: msgspec.Raw, number: int) -> Receipt | ReceiptVerdict:
    """Return a receipt, or the verdict of one of another kind or version. Raises ApiError."""
    try:
        header = msgspec.json.decode(raw, type=ReceiptHeader)
        if header.type != KIND or header.version != VERSION:
            field = "type" if header.type != KIND else "version"
            said = f"it is not known here: this is {KIND}, version {VERSION}"
            return ReceiptVerdict(verdict="refused", field=field, reason=said)
        return msgspec.json.decode(raw, type=Receipt)
    except (msgspec.MsgspecError, RecursionError) as error:
        field = f"receipts[{number}]"
        raise refused(f"`{field}` is no receipt: {error}", field, "invalid") from None


async def _distance(
    request: Request, state: ServerState, options: Options, number: int, given: GreedyText
) -> GreedyDistance:
    call = call_of(request, "verify", [given.prompt], options, {"prompt": f"texts[{number}]"})
    before = await encoded(state, given.prompt)
    text = given.text
    if isinstance(text, str):
        text = await on_thread(
            state, partial(state.text_tools.encode_following, text), f"texts[{number}]"
        )
    return await distance(state, call, before, text)


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/verify", verify, "Verify texts by their receipts", VerifyBody, VerifyReply
    ),
    Endpoint(
        "GET",
        "/v1/receipts/{request_id}",
        kept_receipts,
        "Return the receipts of an answered request",
        reply=KeptReceipts,
    ),
)
