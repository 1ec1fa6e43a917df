"""`POST /v1/verify`: whether texts are what this model gives, by their receipts."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.handling import Endpoint, call_of, json_reply, state_of, tenant_of
from draftwerk.api.core.models import models_of
from draftwerk.api.core.prompt_tokens import encoded
from draftwerk.api.core.state import ServerState
from draftwerk.api.fields.decode import body_of
from draftwerk.api.fields.field_types import BodyText, Name, TokenIds
from draftwerk.api.fields.model_choice import held, named_state
from draftwerk.api.openai.receipts.receipt import KIND, VERSION, Receipt
from draftwerk.api.openai.receipts.recording import RecordKeeper
from draftwerk.api.openai.receipts.verifying import (
    GreedyDistance,
    ReceiptVerdict,
    ReceiptVerifier,
    distance,
)
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling

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
    model: Name | None = None
    """Whose greedy texts they are compared with; a receipt names its model itself."""


class VerifyReply(Struct, frozen=True):
    """What was found, in the order of the receipts."""

    equal: bool
    """Whether every receipt's texts are what this model gives."""
    verdicts: list[ReceiptVerdict]
    distances: list[GreedyDistance]
    system_fingerprint: str
    object: str = "verification"


class KeptReceipts(Struct, frozen=True):
    """What `GET /v1/receipts/{request_id}` returns."""

    receipts: list[Receipt]
    """One for each prompt."""


VERIFY = msgspec.json.Decoder(VerifyBody)


async def verify(request: Request) -> Response:
    """Compute texts again, each as one prefill, and tell the first place that differs."""
    body = await body_of(request, VERIFY)
    if not (body.receipts or body.texts):
        raise refused("Give `receipts` or `texts`.", "receipts", "missing")
    receipts = [_receipt(raw, number) for number, raw in enumerate(body.receipts)]
    state = named_state(request, body.model)
    # One model after the other: together they may not fit into memory.
    found = dict[int, ReceiptVerdict]()
    for each, numbers in _by_state(request, state, receipts):
        async with held(request.app, each):
            some = await _verdicts(request, each, [receipts[number] for number in numbers])
        found.update(zip(numbers, some, strict=True))
    verdicts = [found[number] for number in range(len(receipts))]
    distances = list[GreedyDistance]()
    if body.texts:
        async with held(request.app, state):
            texts = enumerate(body.texts)
            distances = [await _distance(request, state, *each) for each in texts]
    equal = all(each.verdict == "equal" for each in verdicts)
    return json_reply(VerifyReply(equal, verdicts, distances, state.model.fingerprint))


def _by_state(
    request: Request, default: ServerState, receipts: Sequence[Receipt | ReceiptVerdict]
) -> list[tuple[ServerState, list[int]]]:
    """Return the models that receipts are of, and each one's by number."""
    states = {name: state for state in models_of(request.app).states for name in state.model.names}
    found: list[tuple[ServerState, list[int]]] = []
    for number, receipt in enumerate(receipts):
        name = receipt.model if isinstance(receipt, Receipt) else ""
        state = states.get(name, default)
        numbers = next((numbers for each, numbers in found if each is state), None)
        if numbers is None:
            found.append((state, numbers := []))
        numbers.append(number)
    return found


async def _verdicts(
    request: Request, state: ServerState, receipts: Sequence[Receipt | ReceiptVerdict]
) -> list[ReceiptVerdict]:
    """Return the verdicts of a loaded model."""
    if not state.model.exact:
        said = "Receipts need a server whose texts do not depend on the batch."
        raise refused(said, "receipts", "unsupported")
    verifier = ReceiptVerifier(state, request.scope["request_id"], tenant_of(request))
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
    """What every version of a receipt has."""

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
    except msgspec.ValidationError as error:
        field = f"receipts[{number}]"
        raise refused(f"`{field}` is no receipt: {error}", field, "invalid") from None


async def _distance(
    request: Request, state: ServerState, number: int, given: GreedyText
) -> GreedyDistance:
    options = Options(sampling=Sampling(temperature=0.0), tenant=tenant_of(request))
    call = call_of(request, "verify", [given.prompt], options, {"prompt": f"texts[{number}]"})
    before = await encoded(state, given.prompt)
    if isinstance(given.text, str):
        text = state.text_tools.encode_continuation(given.text)
    else:
        text = given.text
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
