"""Progress on standard error: what is not known is not shown, and every line has the time since the command began."""

import re

from rooflines.reports.render import progress


def test_a_line_per_stage_with_the_time_since_the_command_began(capsys):
    with progress.Lines() as lines:
        lines.stage("tracing", 20)
        lines.advance()
    assert re.fullmatch(r" +\d+ s  tracing\n", capsys.readouterr().err)


def test_the_bar_shows_a_total_and_the_time_left_only_where_they_are_known(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(progress, "REFRESH_S", 0)
    with progress.ProgressBar() as bar:
        bar.stage("warming up", None)
        bar.advance()
        unknown = capsys.readouterr().err
        bar.stage("timing", 4)
        begun = capsys.readouterr().err
        bar.advance()
        known = capsys.readouterr().err
    assert "1 0:00:0" in unknown
    assert not re.search(r"\?[^0-9]|left", unknown.replace("\x1b[?", ""))
    assert "0/4 0:00:0" in begun
    assert "left" not in begun
    assert re.search(r"1/4 0:00:0\d \(0:00:0\d left\)", known)
