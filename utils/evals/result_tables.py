"""Collected results as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

from utils.records import Json

COLUMNS = (
    *("model_prefix", "precision", "hw", "engine", "topology"),
    *("spec_decoding", "num_speculative_tokens", "thinking", "isl", "osl"),
    *("kind", "task", "concurrency", "score", "acceptance_length", "output_tokens_per_s"),
    *("outcome", "reason"),
)
SHORT = {
    "model_prefix": "model",
    "spec_decoding": "speculation",
    "num_speculative_tokens": "N",
    "concurrency": "conc",
    "acceptance_length": "AL",
    "output_tokens_per_s": "tokens/s",
}
MORE = ("model", "draft_model", "synthetic_acceptance", "metric", "lower", "upper", "detail")


def headline(table: Json) -> str:
    """Such as "3 of 4 present, INCOMPLETE", with what else is wrong."""
    text = f"{table['present']} of {table['expected']} present"
    if table["complete"]:
        return text
    undecided, dropped = (len(table[name]) for name in ("undecided", "dropped"))
    more = f", {undecided} undecided" if undecided else ""
    more += f", {dropped} files dropped" if dropped else ""
    return f"{text}{more}, INCOMPLETE"


def markdown(table: Json) -> str:
    """A heading, the table, and what is not in it."""
    columns = [*COLUMNS, "attempts"]
    lines = [f"# Eval results: {headline(table)}", ""]
    lines.append(_line([SHORT.get(name, name) for name in columns]))
    lines.append(_line(["---"] * len(columns)))
    for row in table["rows"]:
        lines.append(_line([*(_text(row[name]) for name in COLUMNS), str(len(row["attempts"]))]))
    for title, name in (("Missing", "cell"), ("Undecided", "cell"), ("Dropped", "file")):
        if items := table[title.lower()]:
            lines += ["", f"## {title}", ""]
            lines += [f"- `{item[name]}`: {_escaped(item['reason'])}" for item in items]
    several = [row for row in table["rows"] if len(row["attempts"]) > 1]
    if several:
        lines += ["", "## Attempts", ""]
    for row in several:
        for attempt in row["attempts"]:
            mark = " (chosen)" if attempt["file"] == row["chosen"] else ""
            said = f"{_text(attempt['measured'])}, {attempt['outcome']}"
            lines.append(f"- `{attempt['file']}` {attempt['measured_at']}: {said}{mark}")
    return "\n".join(lines) + "\n"


def csv_text(table: Json) -> str:
    """Every row, numbers unrounded; the file that was chosen, and how many there were."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([*COLUMNS, *MORE, "chosen", "attempts"])
    for row in table["rows"]:
        said = [row[name] for name in (*COLUMNS, *MORE, "chosen")]
        writer.writerow([*said, len(row["attempts"])])
    return output.getvalue()


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(value: Any) -> str:
    if value is None:
        return "—"
    return f"{value:.4f}" if isinstance(value, float) else _escaped(str(value))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
