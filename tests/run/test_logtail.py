from pathlib import Path

from tasks.running.logtail import LogTail, last_lines

WORKER = """\
 -------------- celery@host v5
[2026-09-14 03:15:00,001: INFO/MainProcess] Connected
[2026-09-14 03:15:00,002: ERROR/ForkPoolWorker-1] Task failed
Traceback (most recent call last):
ValueError: no
[2026-09-14 03:15:00,003: INFO/MainProcess] Task received
"""


def test_warnings_come_with_the_lines_that_belong_to_them(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text(WORKER)
    shown = LogTail(log).lines(only_warnings=True)
    assert shown == WORKER.splitlines()[2:5]


def test_flowers_stamps_are_understood(tmp_path: Path) -> None:
    log = tmp_path / "flower.log"
    log.write_text("[I 260914 03:15:00 command:168] Visit me\n[W 260914 03:15:01 web:2348] 404 GET /x\n")
    assert LogTail(log).lines(only_warnings=True) == ["[W 260914 03:15:01 web:2348] 404 GET /x"]


def test_a_line_is_shown_once_and_only_when_it_is_complete(tmp_path: Path) -> None:
    log = tmp_path / "beat.log"
    log.write_text("one\ntw")
    tail = LogTail(log)
    assert tail.lines(only_warnings=False) == ["one"]
    with log.open("a") as more:
        more.write("o\n")
    assert tail.lines(only_warnings=False) == ["two"]
    assert tail.lines(only_warnings=False) == []


def test_the_end_of_a_log_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none.log", 3) == []
