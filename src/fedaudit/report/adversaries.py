"""The adversaries in plain words: for every vantage, what it sees, what it knows, and what is hidden from it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Adversary:
    title: str  # as a label
    sees: str
    knows: str
    hidden: str
    colour: str  # the class its marks carry in every chart


CANDIDATE = "The candidate itself: the complete data and label of the record it asks about."
PERSON = "Records of the person it asks about, as said above, with their labels."


def _adversaries(candidate: str, lies: str) -> dict[str, Adversary]:
    """`candidate`: what it has of the one it asks about. `lies`: what is hidden where parties are."""
    return {
        "client": Adversary(
            "Any party",
            "The global model of every round, weights included, exactly as the federation sends it to its members.",
            f"{candidate} It also knows the model's architecture and can compute any output of the models it received.",
            f"The other parties' own updates, their data, and {lies}.",
            "s1",
        ),
        "server": Adversary(
            "The server",
            "Every party's own model in every round, as it arrives before averaging, and the global models as well.",
            f"{candidate} It also knows which party sent which update, so whatever it finds is about that party.",
            "The data themselves, and what happens inside a party between two rounds.",
            "s2",
        ),
        "outsider": Adversary(
            "An outsider",
            "The outputs (scores for every class) of the final model only.",
            candidate,
            "The models of earlier rounds, any weights, any update, and who took part.",
            "s3",
        ),
        "label-only-client": Adversary(
            "A party that sees labels only",
            "The predicted label, without scores, of every round's global model.",
            f"{candidate} It also knows which of its own records were trained on. It learns from these, and is not "
            "judged on them.",
            "Scores, weights, the other parties' updates and data.",
            "s4",
        ),
        "secagg-server": Adversary(
            "The server under secure aggregation",
            "The sum of the parties' updates in every round, with whatever noise was added before summing.",
            f"{candidate} It also knows who took part in which round.",
            f"Any single party's update, and so {lies}.",
            "s5",
        ),
    }


ADVERSARIES = _adversaries(CANDIDATE, "in which party a record lies")
# Where it asks about people, it need not have any record that was trained on.
OF_PEOPLE = _adversaries(PERSON, "in which party a person's records lie")


def adversary(vantage: str, people: bool = False) -> Adversary:
    known = (OF_PEOPLE if people else ADVERSARIES).get(vantage)
    if known is not None:
        return known
    return Adversary(
        f"Vantage “{vantage}”",
        "As this audit's configuration defines it.",
        PERSON if people else CANDIDATE,
        "Everything its vantage does not grant.",
        "s6",
    )
