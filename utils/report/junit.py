"""Verdicts as JUnit XML: a suite per job, a case per verdict, named by cell and check."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from xml.etree import ElementTree

from utils.verdicts import Outcome, Verdict

# XML 1.0 can't hold these, not even escaped; a model's answer can.
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SUITE = "specgate"


def render(suites: Mapping[str, Iterable[Verdict]]) -> str:
    """A document; what failed its gate is a failure, what has no verdict an error."""
    root = ElementTree.Element("testsuites", name=SUITE)
    for name, verdicts in suites.items():
        suite = ElementTree.SubElement(root, "testsuite", name=name or SUITE)
        for verdict in verdicts:
            _case(suite, verdict)
        _count(suite, suite)
    _count(root, root)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(suite: ElementTree.Element, verdict: Verdict) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=_writable(verdict.cell), name=_writable(verdict.check)
    )
    if verdict.outcome is Outcome.PASS:
        return
    kind = "failure" if verdict.outcome is Outcome.FAIL else "error"
    line = _writable(verdict.line())
    ElementTree.SubElement(case, kind, message=line, type=_writable(verdict.reason))


def _count(element: ElementTree.Element, below: ElementTree.Element) -> None:
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        element.set(name, str(sum(1 for _ in below.iter(tag))))


def _writable(text: str) -> str:
    return UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)
