"""``rooflines formulas check``: what is printed, and the exit code."""

import pytest

from tests.commands import call

GOOD = "[other lib::]\none two: read x -> x; cost = 1; per = x\nthree like one: ; cost = 2\n"


@pytest.fixture
def check(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def ask(text, encoding="utf-8"):
        (tmp_path / "lib.rows").write_text(text, encoding=encoding)
        return call(capsys, monkeypatch, "formulas", "check", "lib.rows")

    return ask


def test_a_good_file(check):
    answer = check(GOOD)
    assert (answer.code, answer.out) == (0, "lib.rows: 3 operators, no errors\n")


def test_all_errors_with_their_lines(check):
    answer = check(f"{GOOD}four: read x; other = y.n\n# a comment\nfive like six: ; cost = 1\n")
    assert answer.code == 1
    assert answer.out.splitlines() == [
        "lib.rows:4: nothing is called 'y' in 'y.n'", "lib.rows:6: no operator 'lib::six' in this file",
    ]  # fmt: skip


def test_what_cannot_be_read(check, capsys, monkeypatch):
    answer = check("caf\u00e9: read x\n", encoding="latin-1")
    assert (answer.code, answer.out) == (2, "")
    assert "Save the file in UTF-8" in answer.err
    missing = call(capsys, monkeypatch, "formulas", "check", "missing.rows")
    assert missing.code == 2
    assert "no such file: 'missing.rows'" in missing.err
