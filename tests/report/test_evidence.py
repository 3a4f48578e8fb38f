"""The evidence pack, and the questions of an impact assessment: each is answered by a sentence."""

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from fedaudit.cli import terminal
from fedaudit.config.schema import parse
from fedaudit.errors import FedauditError
from fedaudit.report import html
from fedaudit.report.answers import answers, untested
from fedaudit.report.evidence import ANNEX, NO_RECONSTRUCTION, OF_RUN, PAGE, SUMS, annex, sources, write_pack
from fedaudit.report.formats import junit
from fedaudit.report.opened import OpenedRun
from fedaudit.report.remarks import ranked
from fedaudit.report.sections import limits
from fedaudit.report.taken import readings
from fedaudit.report.values import Results, cleaned
from fedaudit.report.words import findings, preface, verdict
from fedaudit.results.document import RESULTS, Document, PartyInfo, save
from fedaudit.stats.wording import count, full_text
from fedaudit.trace.store import RUN, Store
from fedaudit.types import GroupFindings, GroupResult, MoreExposed, Notice, Subgroup, notice
from fedaudit.words import words
from tests.command import fedaudit
from tests.report import builder

AUDITOR = "Data Protection Office"


def document(**run: Any) -> Document:
    plain = builder.results(parties=3, attacks=4)
    plain["run"]["config"] = {**plain["run"].get("config", {}), "report": {"auditor": AUDITOR}}
    plain["run"] |= run
    return builder.read(plain)


def said(results: Results) -> dict[str, tuple[str, str]]:
    return {demand.asked: (demand.status, demand.answer) for source in sources(results) for demand in source.demands}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    save(document(), folder)
    return folder


# ------------------------------------------------------------------ the questions of an assessment


QUESTIONS = {
    "Which site is concerned most?": "No site stands out",
    "What does it mean for one person?": "They are averages",
    "What is this attack?": "says whether it was trained on",
    "Does epsilon hold for a person?": "epsilon",
    "Who ran this audit, and when?": f"{AUDITOR} ran this audit, on 20",
    "What was not tested?": "Reconstruction of records and gradient inversion",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_of_an_assessment_is_answered_on_the_page_and_in_the_annex(question: str) -> None:
    for page in (html.render(document()), annex(cleaned(document()))):
        text = page.replace("\u00a0", " ")
        answer = re.search(rf"<dt>{re.escape(question)}</dt><dd>(.*?)</dd>", text, re.DOTALL)
        assert answer is not None
        assert QUESTIONS[question] in re.sub("<.*?>", "", answer[1])
        assert answer[1].rstrip().endswith(".")


def test_the_annex_has_its_figures_counts_and_filled_cells_above_the_signature() -> None:
    filled = notice("cells-filled", file="north.csv", cells={"chol": 202})
    whole = document()
    one = replace(whole, notices=[*whole.notices, words(filled)], told=(*whole.all_told(), filled))
    page = re.sub("<.*?>", "", annex(cleaned(one))).replace("\u00a0", " ")
    signed = page[: page.index("Signature")]
    for headline in whole.headlines:
        for name in ("auc", "tpr@0.001", "tpr@0.01"):
            found = headline.estimates[name]
            assert full_text(name, found) in signed
            assert count(found.n_pos or 0) in signed
            assert count(found.n_neg or 0) in signed
    for party in whole.run.parties:
        assert party.name in signed
        assert count(party.members) in signed
    assert "202 empty cells of north.csv were filled in" in signed
    twins = replace(whole, understates=["87 of 447 members have twins."])
    for page in (
        annex(cleaned(twins)),
        html.render(twins).partition('id="attacks"')[0],
        html.render(twins, brief=True),
    ):
        assert "87 of 447 members have twins" in page
    assert limits(cleaned(one), findings(cleaned(one)))[0][1] in signed


def test_the_exposed_site_and_group_are_named() -> None:
    worst = MoreExposed(
        party="North", vantage="server", model="local", attack="loss", own=0.9, others=0.6, value=0.3, low=0.2,
        high=0.4, confidence=0.95,
    )  # fmt: skip
    first, *others = document().headlines
    group = "Records with code = gout stand out: 61 % of them are picked out."
    found = replace(
        document(),
        more_exposed=[worst],
        headlines=[replace(first, most_exposed=group), *others],
        groups=GroupFindings(looked_at=[Subgroup("class", "1")], comparisons=2, confidence=0.95, results=()),
    )
    page = html.render(found).replace("\u00a0", " ")
    assert "North is more exposed than the other sites" in page
    assert group in re.sub("</?span.*?>", "", page)


def test_the_annex_says_people_and_why_figures_rest_on_fewer() -> None:
    whole = document()
    people = replace(whole, results=[replace(entry, unit="subject") for entry in whole.results])
    annexed = re.sub("<.*?>", "", annex(cleaned(people)))
    assert "People, party by party" in annexed
    assert "Records, party by party" not in annexed
    assert "Some figures rest on fewer" not in annexed  # those of the parties, or more
    parties = [replace(party, members=9000) for party in whole.run.parties]
    fewer = re.sub("<.*?>", "", annex(cleaned(document(parties=parties_of(parties))))).replace("\u00a0", " ")
    assert "Records, party by party" in fewer
    assert "Some figures rest on fewer" in fewer
    assert "at the fewest, on 1,800 members" in fewer


def parties_of(parties: list[PartyInfo]) -> list[dict[str, Any]]:
    return [vars(party) for party in parties]


def test_rows_left_out_and_people_at_several_parties_have_lines_of_their_own() -> None:
    left_out = notice("unlabelled", rows=1, of=820, file="h.csv")
    several = notice("in-several-parties", people=39, of=696)
    page = re.sub("<.*?>", "", annex(cleaned(document().noting(left_out, several)))).replace("\u00a0", " ")
    assert words(several) in page.replace("&#39;", "'")
    assert "rows left out1 of 820 rows" in page
    merged = annex(cleaned(document(not_handed_over=["cells", "groups"])))
    assert "no cell that was filled in" not in merged


def site(whole: Document) -> str:
    results = cleaned(whole)
    return dict(answers(results, findings(results)))["Which site is concerned most?"]


NO_SITE = "No site stands out"


def group_of(whole: Document, value: str) -> GroupFindings:
    own = whole.results[0].estimates
    result = GroupResult(
        group=Subgroup("attribute", value, "Hospital"), vantage="server", model="global", attack="loss",
        inside=own, outside=own, beyond=own, stands_out="tpr@0.01",
    )  # fmt: skip
    return GroupFindings(looked_at=[result.group], comparisons=2, confidence=0.95, results=[result])


def test_no_site_is_said_to_stand_out_only_where_sites_were_compared() -> None:
    whole = document()
    assert NO_SITE in site(whole)
    pooled = replace(whole, results=[entry for entry in whole.results if entry.party is None])
    assert "not compared" in site(pooled)
    other = [replace(e, attack="update", question="update") if e.party else e for e in whole.results]
    assert "not compared" in site(replace(whole, results=other))  # the sites have figures, but no common one
    assert "not compared" in site(document(not_handed_over=["cells", "groups"]))  # each audited itself
    two = [entry for entry in whole.results if entry.party != "party-1"]
    assert NO_SITE not in site(replace(whole, results=two))
    assert "party-1" in site(replace(whole, results=two))


def test_a_site_that_stands_out_as_a_group_is_said_to_stand_out() -> None:
    whole = document()
    assert site(replace(whole, groups=group_of(whole, "party-2"))).startswith("party-2 stands out")
    assert NO_SITE not in site(replace(whole, groups=group_of(whole, "somewhere")))


def test_whom_no_figure_is_about_is_said_before_the_findings() -> None:
    """Of 697 people 614 had a single record. The annex named 697, and nothing said that 83 were asked about."""
    told = notice("single-record", people=614, of=697, sessions=False, fresh=0.5)
    results = cleaned(document().noting(told))
    assert preface(results)[0] == verdict(results)[0] == words(told)
    assert "614 of 697 people have a single record" in annex(results).split('"finding ')[0].replace("\u00a0", " ")
    assert [remark for remark, on_the_page in ranked(results) if not on_the_page][-1] == words(told)


def test_a_group_that_stands_out_is_counted_once_and_never_denied() -> None:
    """It may stand out from two vantages, or on models that no headline quotes."""
    whole = document()
    one = group_of(whole, "somewhere")
    twice = replace(whole, groups=replace(one, results=[*one.results, replace(one.results[0], vantage="client")]))
    assert "1 groups were fixed before any score was seen, and share the error. One stands out." in html.render(twice)
    results = cleaned(twice)
    assert "none stands out" not in dict(answers(results, findings(results)))["What does it mean for one person?"]
    asked = "that the likelihood is insignificant for any data subject, not on average"
    assert "None of them" not in said(results)[asked][1]
    small = replace(one, looked_at=[], results=[], too_small=one.looked_at)
    assert "None stands out" not in html.render(replace(whole, groups=small))


def test_without_a_name_the_page_says_that_nobody_answers_for_it() -> None:
    plain = builder.results()
    plain["run"]["config"] = {"federation": {}}
    assert "do not say by whom" in html.render(builder.read(plain))


def test_who_answers_for_an_audit_does_not_change_what_is_audited() -> None:
    named = parse({"report": {"auditor": AUDITOR}})
    assert named.hash() == parse({}).hash()
    assert named.as_dict()["report"] == {"auditor": AUDITOR}
    assert "report" not in parse({}).as_dict()
    with pytest.raises(FedauditError, match="auditr"):
        parse({"report": {"auditr": "x"}})


# ------------------------------------------------------------------ what is asked for


def test_what_was_not_done_is_never_said_to_be_tested() -> None:
    found = said(cleaned(replace(document(), results=(), headlines=(), groups=None)))
    assert {status for status, _ in found.values()} <= {"not tested", "not stated", "stated"}


def test_a_rate_whose_figure_is_doubted_is_not_called_tested() -> None:
    asked, whole = "11.2.5: results at fixed low false-positive rates, not the AUC alone", document()
    assert said(cleaned(whole))[asked][0] == "tested"
    headlines = [
        replace(one, estimates={name: replace(own, doubt="fewer") for name, own in one.estimates.items()})
        for one in whole.headlines
    ]
    assert said(cleaned(replace(whole, headlines=headlines)))[asked][0] == "not tested"


def test_what_was_done_is_said_with_its_findings() -> None:
    found = said(cleaned(document()))
    status, answer = found["resistance to membership inference"]
    assert status == "tested"
    assert document().headlines[0].sentence in answer
    assert found["resistance to attribute inference"][0] == "not tested"
    assert found["resistance to model inversion and reconstruction"][0] == "not tested"
    assert found["model extraction (NISTAML.031; ATLAS AML.T0024.002)"][0] == "not tested"
    assert found["11.2.5: a baseline that sees no model, on the same members and non-members"][0] == "tested"


def test_reconstruction_is_tested_in_part_and_only_where_records_were_looked_for() -> None:
    first = document().results[0]
    asked = (
        "resistance to model inversion and reconstruction",
        "data reconstruction (NISTAML.032; ATLAS AML.T0024.001, inversion)",
    )
    for estimates, status in (
        ({"label-error": first.estimates["auc"]}, "not tested"),
        ({"exact-inputs": first.estimates["auc"]}, "tested in part"),
    ):
        entry = replace(first, attack="update", question="update", estimates=estimates)
        found = said(cleaned(replace(document(), results=(*document().results, entry))))
        assert [found[one][0] for one in asked] == [status] * 2


def of_updates(told: tuple[Notice, ...] = (), **figures: tuple[float, float, float]) -> Document:
    """With what was read off updates, by value and ends: `exact_inputs` and the guess, `exact_inputs_blind`."""
    whole = document()
    estimates = {
        (name := key.replace("_", "-")): replace(whole.results[0].estimates["auc"], name=name, value=v, low=a, high=b)
        for key, (v, a, b) in figures.items()
    }
    first = replace(whole.results[0], party=None, vantage="server", model="local", attack="update", question="update")
    entries = [replace(first, estimates=estimates)] if estimates else []
    return replace(whole, results=(*whole.results, *entries)).noting(*told)


NONE_READ = "It does not read anybody's record"


def test_whole_records_that_are_read_off_updates_are_said_wherever_a_reader_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terminal.console, "width", 200)
    read = of_updates(exact_inputs=(0.4, 0.3, 0.5), exact_inputs_blind=(0.0, 0.0, 0.1))
    results = cleaned(read)
    (reading,) = readings(results)
    assert reading.value.value == 0.4
    with terminal.console.capture() as caught:
        terminal.say(read, None)
    last = caught.get().strip().splitlines()[-1]
    assert last.startswith("server")
    assert "whole records" in last
    assert "whole records" in repr(OpenedRun(Path("run"), read))
    case = Xml.fromstring(junit(read)).find("testcase[@name='server: whole records']")
    assert case is not None
    assert case.find("failure") is not None
    answer = dict(answers(results, findings(results)))["What is this attack?"]
    for said_there in (annex(results), html.render(read), " ".join(verdict(results)), answer):
        text = said_there.replace("\u00a0", " ").replace("&#39;", "'")
        assert "reads whole records off single updates" in text
        assert NONE_READ not in text


@pytest.mark.parametrize(
    ("told", "figures", "state"),
    [
        ((), {"exact_inputs": (0.0, 0.0, 0.1), "exact_inputs_blind": (0.0, 0.0, 0.1)}, "none"),
        ((notice("update-cannot-tell", why="inputs-merged", updates=15),), {}, "could not be told"),
        ((), {}, "was not tried"),
    ],
)
def test_nobodys_record_is_said_to_be_unread_only_where_it_was_looked_for(
    told: tuple[Notice, ...], figures: dict[str, tuple[float, float, float]], state: str
) -> None:
    results = cleaned(of_updates(told, **figures))
    assert readings(results) == []
    answer = dict(answers(results, findings(results)))["What is this attack?"]
    assert (NONE_READ in answer) == (state == "none")
    assert ("was not tried" in answer) == (state == "was not tried")
    demand = said(results)["resistance to model inversion and reconstruction"]
    assert demand[0] == ("tested in part" if state == "none" else "not tested")
    assert (demand[1] == NO_RECONSTRUCTION) == (state == "was not tried")
    untried = untested(results, findings(results))
    assert untried.startswith("Reconstruction of records") == (state == "was not tried")


def test_values_and_labels_of_a_party_are_properties_that_were_asked_for() -> None:
    asked = "property inference (NISTAML.034)"
    found = cleaned(of_updates(label_auc=(0.9, 0.8, 0.95), label_auc_blind=(0.5, 0.4, 0.6)))
    assert said(found)[asked][0] == "tested in part"
    assert [one.figure for one in readings(found)] == ["label-auc"]
    guessed = cleaned(of_updates(presence=(0.9, 0.4, 1.0), presence_blind=(0.5, 0.2, 0.8)))
    assert said(guessed)[asked][0] == "tested in part"
    assert readings(guessed) == []  # perhaps no more than a guess gives
    unable = cleaned(of_updates((notice("update-cannot-tell", why="all-moved", updates=3),)))
    assert said(unable)[asked][0] == "not tested"
    assert "could not be told" in said(unable)[asked][1]


@pytest.mark.parametrize("section", [{}, {"auditor": ""}])
def test_an_empty_section_names_nobody(section: dict[str, str]) -> None:
    found = said(cleaned(document(config={"report": section})))
    assert found["reports on tests: by whom, when, how and to what extent"][0] == "not stated"


def test_a_blind_guess_that_is_not_certain_is_told_with_its_interval() -> None:
    answer = said(cleaned(document()))["11.2.5: a baseline that sees no model, on the same members and non-members"][1]
    blind = next(entry for entry in document().results if entry.attack == "blind").estimates["auc"]
    assert "does not certainly tell them apart" in answer
    assert f"{blind.low:.3f}" in answer


def test_what_was_not_tested_is_said_alike_by_answers_and_limits() -> None:
    results = cleaned(document())
    found = findings(results)
    listed, told = dict(limits(results, found)), untested(results, found)
    assert told.startswith(listed["Not tested"])
    assert told.lower().endswith(listed["Vantages not tested"].lower())


def test_without_a_guarantee_nothing_is_stated_about_one() -> None:
    found = said(cleaned(document(guarantee=None)))
    for asked in ("unit of privacy", "epsilon and delta", "trust model: whom the guarantee holds against"):
        assert found[asked] == ("not stated", "No differential privacy is claimed for this training.")


# ------------------------------------------------------------------ the folder


def test_the_pack_holds_what_it_lists_and_the_checksums_hold(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "pack"
    files = write_pack(run, out)
    assert sorted(path.name for path in files) == sorted(path.name for path in out.iterdir())
    lines = [line.split("  ") for line in (out / SUMS).read_text().splitlines()]
    assert {name for _, name in lines} == {path.name for path in out.iterdir()} - {SUMS}
    for digest, name in lines:
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    assert f"{hashlib.sha256((run / RESULTS).read_bytes()).hexdigest()}  {RESULTS}" in (out / OF_RUN).read_text()
    page = (out / PAGE).read_text()
    assert all(path.name in page for path in files)


def test_a_pack_names_no_folder_and_lists_no_lock_and_no_salt(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    told = notice("cells-filled", file="/srv/dr-jones/north.csv", cells={"chol": 2})
    data = {"name": "table", "path": "/srv/dr-jones/north.csv"}
    whole = document(config={"data": data})
    save(replace(whole, notices=[*whole.notices, words(told)], told=(*whole.all_told(), told)), folder)
    for name in ("lock", "salt", "memory-run", "halted-run"):
        (folder / name).write_text("x")
    write_pack(folder, tmp_path / "pack")
    for path in (tmp_path / "pack").iterdir():
        assert "dr-jones" not in path.read_text(), path.name
    assert 'path = "north.csv"' in (tmp_path / "pack" / "configuration.toml").read_text()
    listed = [line.split("  ")[1] for line in (tmp_path / "pack" / OF_RUN).read_text().splitlines()]
    assert sorted(listed) == ["journal.jsonl", RESULTS]


def test_exposed_records_never_leave_with_a_pack_and_names_only_if_they_may(run: Path, tmp_path: Path) -> None:
    assert json.loads((run / RESULTS).read_text()).get("exposed"), "or nothing is tested here"
    write_pack(run, tmp_path / "whole")
    write_pack(run, tmp_path / "redacted", redact=True)
    parties = [party.name for party in document().run.parties]
    for name in ("whole", "redacted"):
        assert json.loads((tmp_path / name / RESULTS).read_text())["exposed"] is None
    for file in (PAGE, ANNEX, RESULTS, "report.html", "configuration.toml"):
        text = (tmp_path / "redacted" / file).read_text()
        assert not [party for party in parties if party in text], file
        assert AUDITOR not in text, file
    assert not (tmp_path / "redacted" / OF_RUN).exists()  # it lists names of files
    assert OF_RUN not in (tmp_path / "redacted" / PAGE).read_text()


def test_no_pack_is_made_of_a_run_that_is_not_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Store.create(folder, {"keep": "signals"}).close()
    save(document(), folder)
    assert fedaudit("evidence", "run", "--out", "whole", cwd=tmp_path).returncode == 0
    (folder / RUN).write_text((folder / RUN).read_text().replace("signals", "signalz"))
    refused = fedaudit("evidence", "run", "--out", "pack", cwd=tmp_path)
    assert (refused.returncode, "not as it was written" in refused.stderr) == (5, True)
    assert not (tmp_path / "pack").exists()


def test_a_pack_is_replaced_and_nothing_beside_it_is(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "pack"
    write_pack(run, out)
    (out / f"{SUMS}.sig").write_text("of the former files")
    (out / PAGE).write_text("former")
    files = write_pack(run, out, redact=True)
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in files)
    assert "former" not in (out / PAGE).read_text()
    (out / "results-of-mine.csv").write_text("x")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(FedauditError, match=r"other files \(results-of-mine.csv\)"):
        write_pack(run, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("names", [["SHA256SUMS", "report.html"], ["results.json"]])
def test_files_that_have_our_names_and_are_no_pack_are_left_alone(run: Path, tmp_path: Path, names: list[str]) -> None:
    """Many folders have a file SHA256SUMS, and every run a results.json."""
    for name in names:
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text("mine")
    with pytest.raises(FedauditError, match="other files"):
        write_pack(run, tmp_path / "mine")
    assert {path.read_text() for path in (tmp_path / "mine").iterdir()} == {"mine"}


def test_a_folder_of_somebody_elses_is_left_alone(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(FedauditError, match="other files"):
        write_pack(run, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")
def test_a_signature_holds_until_something_is_changed(run: Path, tmp_path: Path) -> None:
    key, out = tmp_path / "key", tmp_path / "pack"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    done = fedaudit("evidence", str(run), "--out", str(out), "--auditor", "me", "--sign", str(key), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    signers = tmp_path / "signers"
    signers.write_text(f"me {key.with_suffix('.pub').read_text()}")
    check = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        str(signers),
        "-I",
        "me",
        "-n",
        "fedaudit",
        "-s",
        str(out / "SHA256SUMS.sig"),
    ]
    sums = (out / SUMS).read_bytes()
    assert subprocess.run(check, input=sums, capture_output=True, check=False).returncode == 0
    assert subprocess.run(check, input=sums + b"x", capture_output=True, check=False).returncode != 0
    assert "me ran this audit" in (out / PAGE).read_text()


def test_a_key_whose_tool_is_missing_is_refused_before_anything_is_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "secret"
    key.write_text("untrusted comment: minisign encrypted secret key\n")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FedauditError, match="minisign, which is not installed"):
        write_pack(run, tmp_path / "pack", key=key)
    assert not (tmp_path / "pack").exists()
