"""The options of an engine, which attach here; the trunk imports none of them."""

from collections.abc import Callable
from dataclasses import dataclass

from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.requests.request import EncodedRequest
from draftwerk.speculative.scheduler.opening import Extension
from draftwerk.speculative.scheduler.scheduling_policy import PolicyFactory
from draftwerk.speculative.scheduler.size_limits import MemorySizes, RoundLimits

RequestCheck = Callable[[EncodedRequest, int, MemorySizes], tuple[str, str] | None]
"""Returns why a request that may generate so many tokens cannot be served, and the field to blame;
None if an option has nothing against it."""


@dataclass(slots=True, frozen=True, kw_only=True)
class OptionSet:
    """The options that an engine has."""

    extensions: Callable[[StepCost, RoundLimits], tuple[Extension, ...]]
    """Options that extend a text, where its request asks for them."""
    checks: tuple[RequestCheck, ...]
    """Options that refuse requests before these are queued."""
    policy: Callable[[], PolicyFactory]
    """Returns the policy of all schedulers of an engine, one after another."""
