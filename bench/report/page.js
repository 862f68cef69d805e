// Sorts a table by the column whose heading is pressed. The page is complete without it.
"use strict";

function sortKey(cell) {
  const text = cell.textContent.trim().replace(/,(?=\d{3})/g, "");
  const number = parseFloat(text.replace(/^[^\d+-]+/, ""));
  return { text, number };
}

function compare(a, b) {
  const known = [a, b].map((key) => Number.isFinite(key.number));
  if (known[0] && known[1]) return a.number - b.number;
  if (known[0] !== known[1]) return known[0] ? -1 : 1;
  return a.text.localeCompare(b.text, "en", { numeric: true });
}

function sortBy(heading) {
  const table = heading.closest("table");
  const column = heading.cellIndex;
  const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  const sign = direction === "ascending" ? 1 : -1;
  for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", direction);
  for (const body of table.tBodies) {
    const whole = [...body.rows].filter((row) => row.cells.length > column);
    const rest = [...body.rows].filter((row) => row.cells.length <= column);
    const figures = heading.classList.contains("n");
    const keyed = whole.map((row) => {
      const key = sortKey(row.cells[column]);
      return { row, key: figures ? key : { ...key, number: NaN } };
    });
    keyed.sort((a, b) => sign * compare(a.key, b.key));
    body.append(...keyed.map((entry) => entry.row), ...rest);
  }
}

for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}
