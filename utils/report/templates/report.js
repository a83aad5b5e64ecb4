// Sorting and filtering of the verdicts. Without it the page is whole, only longer to read.
"use strict";

const board = document.getElementById("board");
const body = board.tBodies[0];
const rows = [...body.rows];
const heads = [...board.tHead.rows[0].cells];
const search = document.getElementById("search");
const boxes = [...document.querySelectorAll("input[name=outcome]")];
const count = document.getElementById("count");
const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  let shown = 0;
  for (const row of rows) {
    const text = texts.get(row);
    row.hidden = !wanted.has(row.dataset.outcome) || !words.every((word) => text.includes(word));
    shown += !row.hidden;
  }
  count.textContent = `${shown} of ${rows.length} verdicts shown`;
}

// Numbers by size and before words; what isn't there comes last, whichever way.
function compare(a, b, sign) {
  const x = a === "" ? NaN : Number(a);
  const y = b === "" ? NaN : Number(b);
  if ((a === "") !== (b === "")) return a === "" ? 1 : -1;
  if (!Number.isNaN(x) && !Number.isNaN(y)) return sign * (x - y);
  return sign * a.localeCompare(b, "en", { numeric: true });
}

function sort(head) {
  const ascending = head.getAttribute("aria-sort") !== "ascending";
  for (const other of heads) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const key = (row) => row.cells[head.cellIndex].dataset.key ?? row.cells[head.cellIndex].textContent.trim();
  const sorted = [...rows].sort((a, b) => compare(key(a), key(b), ascending ? 1 : -1));
  body.append(...sorted);
}

for (const head of heads) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = head.textContent.trim();
  button.addEventListener("click", () => sort(head));
  head.replaceChildren(button);
}
search.addEventListener("input", filter);
for (const box of boxes) box.addEventListener("change", filter);
document.getElementById("controls").hidden = false;
filter();
