"""docs/trust.md, docs/codes.md and docs/limits.md: every item has a test that exists, or a line that says why not."""

import ast
import re
from pathlib import Path

import numpy as np

from docs import make_trust
from fedaudit.stats import Block, auc
from tests.test_shape import trees

ROOT = Path(__file__).parents[1]


def test_every_item_has_a_test_or_a_line_that_says_what_is_missing() -> None:
    tested = {code for test in make_trust.tests() for code in test.codes}
    codes = make_trust.explained()
    assert len(codes) == len(set(codes)) > 100
    assert tested | make_trust.without_test() == set(codes)
    assert not tested & make_trust.without_test()


def test_the_page_names_every_item_and_tests_that_exist() -> None:
    page = make_trust.PAGE.read_text(encoding="utf-8")
    rows = dict.fromkeys(
        re.findall(r"^\| (\w+) \| (?:`(\S+?)`|none: \[limits.md\]\(limits.md\)) \|", page, re.MULTILINE)
    )
    assert {code for code, _ in rows} == set(make_trust.explained())
    known = {test.id: test for test in make_trust.tests()}
    for code, test in rows:
        assert not test or code in known[test].codes, f"{test} is gone: run python -m docs.make_trust"
    assert "| failure |" not in page
    assert "| error |" not in page


# ------------------------------------------------------------------ items that belong to no other file

ABLE_TO_RUN = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "yaml", "cloudpickle"}


def test_S1_nothing_that_can_run_code_is_read() -> None:
    """No module that unpickles is imported, numpy and torch are told not to, and no text is evaluated."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
                assert not {name.partition(".")[0] for name in names} & ABLE_TO_RUN, path
            if not isinstance(node, ast.Call):
                continue
            called, keys = ast.unparse(node.func), {key.arg: ast.unparse(key.value) for key in node.keywords}
            assert called not in ("eval", "exec", "compile", "read_pickle"), (path, node.lineno)
            if called == "np.load":
                assert keys.get("allow_pickle") == "False", (path, node.lineno)
            if called == "torch.load":
                assert keys.get("weights_only") == "True", (path, node.lineno)


def test_T27_errors_on_few_outsiders_stay_possible_where_none_is_seen() -> None:
    """Of 30 outsiders one in twenty lies above all members. In a fifth of such audits none of these is drawn."""
    found = auc([Block(np.arange(1000.0) + 100, np.arange(30.0), np.arange(30.0))])
    assert found.value == 1
    assert found.low is not None
    assert found.guaranteed is not None
    assert max(found.low, found.guaranteed[0]) < 0.95


def test_T28_three_against_three_prove_nothing() -> None:
    found = auc([Block(np.arange(3.0) + 9, np.arange(3.0), np.arange(3.0))])
    assert found.low is not None
    assert found.low < 0.5
