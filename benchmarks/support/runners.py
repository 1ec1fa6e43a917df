"""Runners in this process, without an engine around them."""

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.process.build import build
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner


def build_runner(options: ModelOptions) -> TargetRunner:
    """Return a target model. Raises Refused."""
    return TargetRunner(build(options).parts, options.successor_count)


def build_draft_runner(options: ModelOptions) -> DraftRunner:
    """Return a draft model. Raises Refused."""
    return DraftRunner(build(options, drafts=True).parts)
