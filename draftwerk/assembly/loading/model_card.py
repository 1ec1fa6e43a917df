"""The description of a model for clients."""

from pathlib import Path

import msgspec

from draftwerk.api.shared.ports import ServedModel
from draftwerk.assembly.approximation_tables import kept_blend, kept_quality
from draftwerk.assembly.loading.loaded_models import LoadedModels
from draftwerk.assembly.lora_adapters import LoraAdapters
from draftwerk.assembly.plan import Plan
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.speculative.protocol.frames import Ready
from draftwerk.speculative.requests.declared_segments import Blend


def served_model(models: LoadedModels, settings: EngineSettings, tokens_max: int) -> ServedModel:
    """Return what clients are shown of models that are loaded."""
    card = listed_model(
        models.target_info,
        models.draft_info,
        models.text,
        settings,
        models.plan,
        models.adapters,
    )
    return msgspec.structs.replace(
        card,
        weights="; ".join(
            filter(None, (card.weights, on_disk(settings.weight_store, models.ready)))
        ),
        context_max=tokens_max,
        draft_sources=models.methods,
        device=models.ready.device,
        attention=models.ready.attention,
        kernels=models.ready.kernels,
        fingerprint=models.fingerprint,
        exact=models.ready.exact,
        blends=models.ready.blends,
        blend=measured_blend(Path(models.target_info.directory), models.plan.dtype),
        quality=kept_quality(
            Path(models.target_info.directory), models.plan.dtype, settings.approximations
        ),
    )


def measured_blend(directory: Path, dtype: str) -> Blend:
    """Return what `blend: true` stands for: what the doctor found, or the papers' way."""
    table = kept_blend(directory, dtype)
    best = None if table is None else table.best
    return Blend(()) if best is None else Blend((), best.rule, best.ratio)


def on_disk(folder: str, ready: Ready) -> str:
    """Return where packed weights are read from, if not from memory, and how long that takes."""
    if not folder:
        return ""
    megabytes, ms = ready.weight_bytes / 1e6, ready.weight_ms
    return f"packed in {folder}: a token reads {megabytes:.0f} MB of them in about {ms:.0f} ms"


def listed_model(
    target: ModelInfo,
    draft: ModelInfo | None,
    text: TextTokenizer,
    settings: EngineSettings,
    planned: Plan,
    adapters: LoraAdapters,
) -> ServedModel:
    """Return what is known of models before they are loaded."""
    return ServedModel(
        name=(*settings.served_model_name, target.name)[0],
        aliases=settings.served_model_name[1:],
        adapters=adapters.served,
        chats=text.chat_template is not None,
        reasons=text.reasons,
        calls=text.call_format,
        tool_note=text.tool_note,
        fim=text.fim,
        rerank=text.rerank_form,
        vectors=target.vectors,
        reasoning=text.reasoning_format,
        variables=text.variables,
        shows_documents=text.shows_documents,
        context_max=min(target.context_max, planned.block_count * planned.block_size),
        vocab_size=target.vocab_size,
        created=weights_time(Path(target.directory)),
        family=target.family,
        stored_bytes=target.stored_bytes,
        file_format=target.file_format,
        sampling=target.sampling,
        sampling_source=target.sampling_source,
        suppressed=target.suppressed,
        draft_model="" if draft is None else draft.name,
        draft_sources=planned.methods,
        dtype=planned.dtype,
        weights=target.stored_text if planned.dtype == STORED else "",
        approximations=settings.approximations,
        pipeline_parallel=settings.pipeline_parallel,
        tensor_parallel=settings.tensor_parallel,
    )


def weights_time(directory: Path) -> int:
    """Return when a checkpoint's newest file was written, in Unix seconds."""
    return int(max(each.stat().st_mtime for each in (directory, *directory.iterdir())))
