"use strict";

// Sorts and filters the table of trials; everything can be read without it.
const table = document.querySelector("table.sortable");
const body = table.tBodies[0];
const rows = [...body.rows];

// NaN counts as larger than any number; what is not known comes last in both directions.
function compare(a, b, numeric) {
  if (!numeric) return a.localeCompare(b, undefined, { numeric: true });
  const [x, y] = [Number(a), Number(b)];
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
  return x < y ? -1 : x > y ? 1 : 0;
}

function sort(heading) {
  const column = heading.cellIndex;
  const numeric = heading.dataset.kind === "number";
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => row.cells[column].dataset.key;
  const known = rows.filter((row) => key(row) !== "");
  const unknown = rows.filter((row) => key(row) === "");
  known.sort((a, b) => (down ? -1 : 1) * compare(key(a), key(b), numeric));
  body.append(...known, ...unknown);
}

for (const heading of table.tHead.rows[0].cells) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sort(heading));
  heading.append(button);
}

const controls = document.querySelector(".controls");
const words = document.getElementById("filter");
const boxes = [...controls.querySelectorAll("input[type=checkbox]")];
const shown = document.getElementById("shown");
const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

function filter() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const outcomes = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  let count = 0;
  for (const row of rows) {
    row.hidden = !(outcomes.has(row.dataset.outcome) && wanted.every((word) => texts.get(row).includes(word)));
    count += row.hidden ? 0 : 1;
  }
  shown.textContent = `${count} of ${rows.length} trials`;
}

words.addEventListener("input", filter);
for (const box of boxes) box.addEventListener("change", filter);
controls.hidden = false;
filter();
