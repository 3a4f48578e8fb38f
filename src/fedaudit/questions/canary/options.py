"""[audit.canary]: the parties that an auditor adds to a federation."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fedaudit.config.section import Count, Section
from fedaudit.questions.canary import NAMES
from fedaudit.types import Vantage

OF_FROZEN_ROUNDS = ("probes", "every")  # keys that have no effect when mode is "running"


class CanarySection(Section):
    """[audit.canary] the parties that canife and one-shot add to the federation.

    mode = "probes": after every so many rounds the model is frozen for so many probes, half of them with the canary.
    mode = "running": in every round a coin decides whether it takes part; it is taken out of what is kept.
    """

    probes: Annotated[int, Field(ge=16, multiple_of=2)] = Field(100, description="probes of a frozen model")
    every: Count | None = Field(
        None, description="rounds between two such measurements; not set: a fifth of all rounds"
    )
    canaries: Count | None = Field(
        None, description="how many; not set: 1 for canife, as many as there are parties for one-shot"
    )
    steps: Count = Field(1000, description="steps of crafting")
    pool: Annotated[int, Field(ge=4)] = Field(64, description="mock parties, made of data that is set aside")
    target: Annotated[int, Field(ge=0)] | None = Field(None, description="the canary's class; not set: one at random")
    initial: Literal["random", "data"] = Field("random", description="what crafting starts from: noise or a record")
    mode: Literal["probes", "running"] = Field("probes", description="a frozen model, or every round as it comes")

    @model_validator(mode="before")
    @classmethod
    def _probes_belong_to_frozen_rounds(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("mode") == "running":
            for name in OF_FROZEN_ROUNDS:
                if name in given:
                    raise ValueError(f"{name} has no effect when mode is 'running': remove it")
        return given

    @model_serializer(mode="wrap")
    def _without_what_has_no_effect(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is written down must be readable again, so the default of a key without effect is not."""
        plain: dict[str, Any] = serialise(self)
        idle = OF_FROZEN_ROUNDS if self.mode == "running" else ()
        return {name: value for name, value in plain.items() if name not in idle}


def looking_at_the_sum(given: Any) -> Any:
    """A configuration that asks for canaries and names no vantage: the one that sees the sum, and a party if others
    are asked for."""
    audit = given.get("audit", {}) if isinstance(given, dict) else {}
    asked = audit.get("attacks") if isinstance(audit, dict) else None
    names = {str(each.get("name") if isinstance(each, dict) else each) for each in asked or ()}
    if isinstance(asked, list | tuple) and set(NAMES) & names and "vantages" not in audit:
        beside = [] if names <= {*NAMES, "blind"} else [Vantage.CLIENT.value]
        return {**given, "audit": {"vantages": [*beside, Vantage.SECAGG_SERVER.value], **audit}}
    return given
