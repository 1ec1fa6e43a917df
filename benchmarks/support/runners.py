"""Runners in this process, without an engine around them."""

from draftwerk.model.process.build import ModelOptions, build
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.step.verify import rule_of


def build_runner(options: ModelOptions) -> TargetRunner:
    """Return a target model. Raises Refused."""
    rule = rule_of(options.verify)
    return TargetRunner(build(options).parts, options.successor_count, rule=rule)


def build_draft_runner(options: ModelOptions) -> DraftRunner:
    """Return a draft model. Raises Refused."""
    return DraftRunner(build(options, drafts=True).parts, verify=options.verify)
