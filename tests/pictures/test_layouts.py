from draftwerk.model.checkpoint.architectures import OF_ANY_TEXT, QWEN_VISION
from draftwerk.pictures.layouts import FAMILIES


def test_families_are_the_classes_whose_texts_are_served() -> None:
    assert FAMILIES.keys() == OF_ANY_TEXT | QWEN_VISION | {"Gemma3ForConditionalGeneration"}
