"""[audit.tear]: the options of attacks by labels alone."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedaudit.config.section import Section


class TearSection(Section):
    """[audit.tear] how an adversary who sees only labels searches for the decision boundary.

    targets = "all": one boundary for each class, as in the paper; a number: so many nearest ones.
    bounds: the smallest and the largest value of an input, if the model answers to no others.
    """

    queries: Annotated[int, Field(ge=50)] = Field(
        6000, description="labels that a record may cost, over all rounds and targets"
    )
    targets: Literal["all"] | Annotated[int, Field(ge=1)] = Field(
        3, description='how many of the nearest boundaries are looked at, or "all": one for each class'
    )
    own: Annotated[int, Field(ge=40)] = Field(
        500, description="records of the first party's own that it learns from: half of them members"
    )
    bounds: tuple[float, float] | None = Field(None, description="of every input; not set: none")

    @model_validator(mode="after")
    def _bounds_rise(self) -> "TearSection":
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError("bounds must rise: write, for example, bounds = [0.0, 1.0]")
        return self
