// Sorting, filtering and unfolding; the tables are complete without it.
(function () {
  "use strict";
  const root = document.documentElement;
  const toggle = document.getElementById("theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const announce = () => {
    toggle.setAttribute("aria-pressed", String(dark()));
    toggle.textContent = dark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", dark() ? "Use light colors" : "Use dark colors");
  };
  toggle.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    // A page opened from disk may have no storage: the choice then lasts as long as the page.
    try { localStorage.setItem("rooflines-theme", root.dataset.theme); } catch (error) { /* kept for this page only */ }
    announce();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", announce);
  announce();

  const table = document.getElementById("table");
  if (table) operators(table);
  const tree = document.getElementById("tree");
  if (tree) unfold(tree);

  function operators(table) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows).filter((row) => !row.classList.contains("detail"));
    const details = rows.map((row) => row.nextElementSibling?.classList.contains("detail") ? row.nextElementSibling : null);
    const openers = rows.map((row) => row.querySelector("button.opener"));
    const first = Number(table.dataset.first);
    const filter = document.getElementById("filter");
    const all = document.getElementById("all");
    const shown = document.getElementById("shown");
    const words = rows.map((row, index) => (Array.from(row.cells, (cell) => (cell.dataset.v || cell.textContent) + " " + cell.title).join(" ")
      + " " + (details[index] ? details[index].textContent : "")).toLowerCase());
    let order = rows.map((_, index) => index);

    function show() {
      const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const most = all && all.getAttribute("aria-pressed") === "false" ? first : Infinity;
      let matches = 0;
      for (const index of order) {
        const match = wanted.every((word) => words[index].includes(word));
        if (match) matches += 1;
        rows[index].hidden = !match || matches > most;
        if (details[index]) details[index].hidden = rows[index].hidden || openers[index].getAttribute("aria-expanded") === "false";
      }
      const visible = Math.min(matches, most);
      shown.textContent = visible + " of " + rows.length + (wanted.length ? " rows match" + (visible < matches ? " and are shown" : "") : " rows shown");
    }
    function value(row, column) {
      const cell = row.cells[column], text = cell.dataset.v ?? (cell.title || cell.textContent);
      return text === "" ? null : isNaN(text) ? text.toLowerCase() : Number(text);
    }
    function sort(header) {
      const column = header.cellIndex;
      const numeric = !header.classList.contains("w");
      const before = header.getAttribute("aria-sort");
      const direction = before ? (before === "ascending" ? "descending" : "ascending") : numeric ? "descending" : "ascending";
      const sign = direction === "ascending" ? 1 : -1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", direction);
      const values = rows.map((row) => value(row, column));
      // What was not measured comes last in either direction.
      order.sort((a, b) => {
        const x = values[a], y = values[b];
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return (x < y ? -1 : x > y ? 1 : 0) * sign || a - b;
      });
      body.append(...order.flatMap((index) => details[index] ? [rows[index], details[index]] : [rows[index]]));
      show();
    }
    for (const header of table.tHead.rows[0].cells) header.querySelector("button").addEventListener("click", () => sort(header));
    body.addEventListener("click", (event) => {
      const opener = event.target.closest("button.opener");
      if (!opener) return;
      opener.setAttribute("aria-expanded", String(opener.getAttribute("aria-expanded") === "false"));
      show();
    });
    filter.addEventListener("input", show);
    // A row that was chosen in a figure is shown, whatever hides it.
    document.addEventListener("chosen", (event) => {
      if (!event.detail.hidden) return;
      filter.value = "";
      show();
      if (event.detail.hidden) all.click();
    });
    if (all) {
      const text = all.textContent;
      all.addEventListener("click", () => {
        const pressed = all.getAttribute("aria-pressed") === "false";
        all.setAttribute("aria-pressed", String(pressed));
        all.textContent = pressed ? "Show the first " + first : text;
        show();
      });
    }
    show();
  }

  function unfold(tree) {
    const rows = Array.from(tree.tBodies[0].rows);
    const depth = (row) => Number(row.style.getPropertyValue("--depth"));
    tree.addEventListener("click", (event) => {
      const button = event.target.closest("button[aria-expanded]");
      if (!button) return;
      button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") === "false"));
      // A row is seen when every row above it in the tree is open.
      let closedAt = Infinity;
      for (const row of rows) {
        if (depth(row) <= closedAt) closedAt = Infinity;
        row.hidden = closedAt !== Infinity;
        const own = row.querySelector("button[aria-expanded]");
        if (!row.hidden && own && own.getAttribute("aria-expanded") === "false") closedAt = depth(row);
      }
    });
  }
})();
