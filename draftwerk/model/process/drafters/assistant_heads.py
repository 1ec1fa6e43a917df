"""A Gemma 4 assistant bound to its target, whose pages it reads."""

from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as with_fields

from draftwerk.model.checkpoint.assistant import AssistantWeights, read_assistant
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.process.drafters.head_products import moved
from draftwerk.model.process.drafters.head_target import HeadTarget
from draftwerk.model.step.layer_heads.assistant_layers import (
    AssistantHead,
    ClusterScores,
    Joints,
    TokenScores,
)
from draftwerk.model.step.layer_heads.mtp import guessed
from draftwerk.model.step.loaded_model import BoundHead


def bind(target: HeadTarget, folder: Path) -> BoundHead:
    """Return the assistant in a folder. Raises Refused."""
    assistant = moved(read_assistant(folder, target.config, **target.reading), target.device)
    config, shard, weights, scores = _alone(assistant, target.config)
    stage = target.stage(config, weights, shard, target.config)
    joints = Joints(target.embed, target.product(assistant.before), target.product(assistant.after))
    step = AssistantHead(stage, joints, scores, target.rank)
    return BoundHead(step=step, forward=target.forward)


def _alone(
    assistant: AssistantWeights, target: ModelConfig
) -> tuple[ModelConfig, Shard, Weights, TokenScores | ClusterScores]:
    """Return the layers as a model that embeds no tokens, and what scores tokens of its head's."""
    if (clusters := assistant.clusters) is None:
        tokens = guessed(target.vocab_size, target.eos_token_ids)
        head, scores = assistant.head[tokens], TokenScores(tokens)
    else:
        head = clusters.centroids
        scores = ClusterScores(clusters.tokens, assistant.head, clusters.used)
    config = with_fields(assistant.config, vocab_size=len(head))
    weights = Weights(assistant.head[:0], assistant.layers, assistant.norm, head)
    return config, replace(whole(config), is_first=False), weights, scores
