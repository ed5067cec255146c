"use strict";
(() => {
  // Columns sort by number where every cell has one, else by text.
  const value = (row, at) => {
    const cell = row.cells[at];
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = parseFloat(text.replace(/[,$]/g, ""));
    return Number.isNaN(number) ? text : number;
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return a < b ? -1 : a > b ? 1 : 0;
  };
  const sort = (head) => {
    const table = head.closest("table");
    const body = table.tBodies[0];
    const rising = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const at = head.cellIndex;
    const rows = Array.from(body.rows).sort((a, b) => compare(value(a, at), value(b, at)) * (rising ? 1 : -1));
    body.append(...rows);
  };
  for (const head of document.querySelectorAll("table.sortable thead th")) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
  }
  // Long tables and rows of charts show their first, in whatever order, until all are asked for. Without a script all show.
  for (const button of document.querySelectorAll("button.all")) {
    const before = button.previousElementSibling;
    const list = before.querySelector("table.long") ?? before;
    const all = button.textContent;
    const fold = (folded) => {
      list.classList.toggle("folded", folded);
      button.textContent = folded ? all : "Show the first";
      button.setAttribute("aria-expanded", String(!folded));
    };
    button.hidden = false;
    button.addEventListener("click", () => fold(!list.classList.contains("folded")));
    fold(true);
  }
  // What the pointer is over, in words.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  document.addEventListener("pointermove", (event) => {
    const over = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    tip.hidden = !over;
    if (!over) return;
    tip.textContent = over.dataset.tip;
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
    const above = event.clientY - box.height - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
  });
})();
