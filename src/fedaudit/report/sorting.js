"use strict";
(() => {
  // A column is sorted by its first number, or by its words. Cells without either stay at the end, whichever way.
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell ? cell.textContent.trim() : "";
    const number = text.match(/^[^\d]{0,3}?(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)/i);
    return { text, number: number ? parseFloat(number[1].replaceAll(",", "")) : null, none: text === "" || text === "–" };
  };
  const compare = (a, b) => (a.number !== null && b.number !== null ? a.number - b.number : a.text.localeCompare(b.text));
  const sort = (table, head, column) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].map((row) => ({ row, key: value(row, column) }));
    rows.sort((a, b) => a.key.none - b.key.none || (down ? -1 : 1) * compare(a.key, b.key));
    table.tBodies[0].append(...rows.map((each) => each.row));
  };
  // The heading becomes a button, so that a keyboard reaches it. A head of two rows has groups: it is left alone.
  const prepare = () => {
    for (const table of document.querySelectorAll("table:not(.sortable)")) {
      if (!table.tHead || table.tHead.rows.length !== 1 || table.tBodies[0].rows.length < 2) continue;
      table.classList.add("sortable");
      [...table.tHead.rows[0].cells].forEach((head, column) => {
        if (!head.textContent.trim()) return;
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        button.addEventListener("click", () => sort(table, head, column));
        head.append(button);
      });
    }
  };
  prepare();
  document.addEventListener("fedaudit-changed", prepare);
})();
