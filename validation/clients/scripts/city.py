"""What structured output is asked for: bounded, so that a small model comes to an end."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class City(BaseModel):
    model_config = ConfigDict(extra="forbid")  # or else the schema allows any more properties
    name: Literal["Paris", "Rome", "Oslo"]
    people: Annotated[int, Field(ge=0, le=9999)]


def check_city(found: object) -> None:
    assert isinstance(found, City), repr(found)
