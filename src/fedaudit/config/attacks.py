"""[audit.reference], [audit.matched], [audit.tear], and unmix: the options of single kinds of attacks."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedaudit.config.section import Positive, Section


class ReferenceSection(Section):
    """[audit.reference] the reference models of kta-*, lira, distillation and rmia."""

    models: Annotated[int, Field(ge=4, multiple_of=2)] = Field(
        16, description="how many models; an even number, half of them are trained on each record"
    )
    alpha: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        0.8, description="how much they imitate the target: the weight of its answers in their labels"
    )
    variance: Literal["shared", "record"] | None = Field(
        None, description="one variance for all records, or one for each; not set: one for all with up to 16 models"
    )
    defended: bool = Field(False, description="whether they train under the parties' own defence")

    def bank(self) -> dict[str, Any]:
        return {"models": self.models, "alpha": self.alpha}

    @property
    def spread(self) -> Literal["shared", "record"]:
        return self.variance or ("shared" if self.models <= 16 else "record")


class MatchedSection(Section):
    """[audit.matched] how matched-filter looks for a record's gradient in an update."""

    fit: Literal["nonmembers", "all"] = Field(
        "all", description="whose gradients its whitening is fitted on: known non-members, or all candidates unlabelled"
    )
    damping: Literal["auto"] | Positive = Field(
        "auto",
        description="added to its moments, in units of their mean eigenvalue; auto follows from the defence",
    )
    layer: str = Field(
        "auto", description="the layer it looks at, by name; auto: the largest linear one; all: every layer"
    )


class UnmixSection(Section):
    """How unmix explains an update by the gradients of all candidates. No section of [audit]: the attack says it."""

    damping: Literal["auto"] | Positive = Field(
        "auto", description="added to its moments, in units of their mean eigenvalue; auto follows from the defence"
    )
    ridge: Literal["auto"] | Positive = Field(
        "auto",
        description="added to the normal equations, in units of the mean square of a gradient; auto follows from the "
        "defence",
    )
    layer: str = Field("all", description="the layer it looks at, by name; all: every layer that is trained")
    sketch: Annotated[int, Field(ge=8)] = Field(
        80, description="at most sketch × sketch numbers are kept of a layer whose weights many positions share"
    )
    coverage: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        1.0, description="the share of the candidates that it knows at a time; less than 1: as somebody outside has it"
    )


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
