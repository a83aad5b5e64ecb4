"""Verdicts as JUnit XML: a suite per job, a case per verdict, named by cell and check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from xml.etree import ElementTree

from utils.verdicts import Outcome, Verdict, one_line

SUITE = "specgate"


def render(suites: Mapping[str, Iterable[Verdict]]) -> str:
    """A document; what failed its gate is a failure, what has no verdict an error."""
    root = ElementTree.Element("testsuites", name=SUITE)
    for name, verdicts in suites.items():
        suite = ElementTree.SubElement(root, "testsuite", name=one_line(name) or SUITE)
        for verdict in verdicts:
            _case(suite, verdict)
        _count(suite, suite)
    _count(root, root)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(suite: ElementTree.Element, verdict: Verdict) -> None:
    # XML can't hold what one_line escapes; a model's answer can.
    case = ElementTree.SubElement(
        suite, "testcase", classname=one_line(verdict.cell), name=one_line(verdict.check)
    )
    if verdict.outcome is Outcome.PASS:
        return
    kind = "failure" if verdict.outcome is Outcome.FAIL else "error"
    ElementTree.SubElement(case, kind, message=verdict.line(), type=one_line(verdict.reason))


def _count(element: ElementTree.Element, below: ElementTree.Element) -> None:
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        element.set(name, str(sum(1 for _ in below.iter(tag))))
