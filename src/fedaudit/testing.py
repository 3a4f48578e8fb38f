"""An audit as a test, for a suite of your own.

    from fedaudit.testing import assert_private

    def test_the_release_is_private():
        assert_private("runs/release", "tpr@0.01 > 0.05", "auc[vantage=server] > 0.7")

A plain function, so that it costs nothing where it is not imported and works with any runner. Rules are those of
`fedaudit gate`: each says what is not allowed. Needs no torch.
"""

from pathlib import Path

from fedaudit.results.gate import Decision, Judged, judge, parse_rules
from fedaudit.stats.wording import point_text

MOST = 5  # results that are quoted for each rule


def assert_private(run: str | Path, *not_allowed: str) -> None:
    """Fails unless this finished run is shown to be safe by every rule; undecided is not safe."""
    __tracebackhide__ = True  # pytest then shows the line of the test
    found = judge(Path(run), [rule for text in not_allowed for rule in parse_rules(text)])
    wrong = {text: decision for text, decision in found.rules.items() if decision is not Decision.SAFE}
    if wrong:
        said = []
        for text, decision in wrong.items():
            said.append(f"{decision.value}: not allowed: {text}")
            worst = [one for one in found.findings if one.rule.text == text and one.verdict is not Decision.SAFE]
            said += [f"  {_quoted(one)}" for one in worst[:MOST]]
        raise AssertionError("\n".join([f"{run} is not shown to be private.", *said]))


def _quoted(one: Judged) -> str:
    where = f"{one.attack}, {one.vantage}, {one.model} models, {one.party or 'all parties'}"
    note = f"; {one.note}" if one.note else ""
    return f"{one.rule.metric} {point_text(one.rule.metric, one.value, one.low, one.high)}: {where}{note}"
