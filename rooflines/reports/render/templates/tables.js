// Tables that sort, search and unfold, and links to a view as it is seen. Rows that are not in the HTML are made when they are shown.
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

  // Rows that are added when the end of those shown comes near.
  const CHUNK = 200;
  const inflated = async (script) => new Response(new Blob([Uint8Array.from(atob(script.textContent), (letter) => letter.charCodeAt(0))]).stream()
    .pipeThrough(new DecompressionStream("deflate"))).json();
  const element = (tag, classes, text) => Object.assign(document.createElement(tag), classes ? { className: classes } : {}, text === undefined ? {} : { textContent: text });
  const hidden = (tag, classes, text) => { const made = element(tag, classes, text); made.setAttribute("aria-hidden", "true"); return made; };

  // --- rows from data -------------------------------------------------------------------------------------------------------------

  const parts = (given) => (typeof given === "string" ? [given] : given);
  function cell(given, classes) {
    const [text, , hover, bar, letter, warning, color] = parts(given);
    const made = element("td", [classes, bar && "bar", classes && text.startsWith(" ") && "inset"].filter(Boolean).join(" "));
    if (bar) made.style.setProperty("--bar", bar + "%");
    if (hover) made.title = hover;
    if (color) made.append(hidden("span", "dot c-" + color));
    if (warning) {
      const sign = element("span", "warn");
      sign.title = warning;
      sign.append(hidden("span", "", "!"), element("span", "sr", "warning: " + warning));
      made.append(sign, " ");
    }
    if (letter) made.append(hidden("b", "letter", letter));
    made.append(text);
    return made;
  }
  function opener(label, isOpen, classes) {
    const made = element("button", classes);
    made.setAttribute("aria-expanded", String(isOpen));
    made.setAttribute("aria-label", label);
    return made;
  }
  function small({ caption, heads, rows }) {
    const box = element("div", "scroll short"), table = box.appendChild(element("table"));
    table.append(element("caption", "sr", caption));
    const head = table.createTHead().insertRow();
    for (const [label, unit, classes] of heads) {
      const title = head.appendChild(element("th", classes, label));
      if (unit) title.append(" ", element("span", "unit", unit));
    }
    const body = table.createTBody();
    for (const row of rows) body.insertRow().append(...row.map(([text, hover], place) => cell([text, , hover], heads[place][2])));
    return box;
  }

  // --- a table --------------------------------------------------------------------------------------------------------------------

  async function grid(box) {
    const table = box.querySelector("table"), body = table.tBodies[0], heads = Array.from(table.tHead.rows[0].cells), isTree = table.matches(".tree");
    const { columns, rows } = await inflated(box.querySelector("script.rows"));
    const inPage = Array.from(body.rows), first = inPage.length, scroller = table.parentNode;
    for (const row of rows) {
      if (!row.cells) row.element = inPage.shift();
      row.points ??= row.element?.dataset.points || "";
      row.depth ??= 0;
    }
    const filter = box.querySelector(".filter"), all = box.querySelector(".all"), shown = box.querySelector(".shown");
    const columnOf = (key) => heads.findIndex((head) => head.dataset.key === key);
    const usual = (head) => (head.classList.contains("w") ? "ascending" : "descending");
    const initial = heads.find((head) => head.hasAttribute("aria-sort"));
    let order = rows, found = rows, most = first, period = null, cursor = null;

    // What a cell shows, is sorted by and says to the pointer.
    function content(row, column) {
      if (row.cells) return parts(row.cells[column]);
      const { textContent, dataset, title } = row.element.cells[column];
      return [textContent, dataset.v, title];
    }
    function value(row, column) {
      const [text, sort, hover] = content(row, column), given = sort ?? (hover || text);
      return given === "" ? null : isNaN(given) ? given.toLowerCase() : Number(given);
    }
    function words(row) {
      row.words ??= (columns.map((_, column) => { const [text, sort, hover] = content(row, column); return `${sort ?? text} ${hover ?? ""}`; }).join(" ")
        + " " + (row.detail ? row.detail.map((part) => (part.rows ? part.rows.flat(2).join(" ") : part)).join(" ") : "")).toLowerCase();
      return row.words;
    }
    function made(row) {
      if (row.element) return row.element;
      const tr = (row.element = element("tr", row.classes)), name = columns.findIndex((classes) => classes);
      if (row.points) tr.dataset.points = row.points;
      tr.append(...row.cells.map((given, column) => cell(given, columns[column])));
      const at = tr.cells[name];
      if (isTree) {
        tr.style.setProperty("--depth", row.depth);
        at.className = "branch";
        if (row.parent) at.prepend(opener("parts of " + at.textContent, row.open));
      } else if (row.detail) at.prepend(opener("details of " + at.textContent, false, "opener"));
      return tr;
    }
    function detail(row) {
      if (row.below) return row.below;
      row.below = element("tr", "detail");
      const at = row.below.insertCell();
      at.colSpan = columns.length;
      at.append(...row.detail.map((part) => (typeof part === "string" ? element("p", "", part) : small(part))));
      return row.below;
    }

    function unfolded() {
      let closed = Infinity;
      return rows.filter((row) => {
        if (row.depth <= closed) closed = Infinity;
        const isSeen = closed === Infinity;
        if (isSeen && row.parent && !row.open) closed = row.depth;
        return isSeen;
      });
    }
    function search() {
      const wanted = filter ? filter.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
      const inWindow = (row) => !period || row.points.split(" ").some((point) => period.points.has(point));
      found = isTree ? unfolded() : order.filter((row) => inWindow(row) && wanted.every((word) => words(row).includes(word)));
      const visible = Math.min(found.length, most);
      if (shown) {
        shown.textContent = visible + " of " + rows.length + (wanted.length ? " rows match" + (visible < found.length ? " and are shown" : "") : " rows shown")
          + (period ? ", " + period.text : "");
      }
      draw();
    }
    function draw() {
      const wanted = (isTree ? found : found.slice(0, most)).flatMap((row) => (row.detail && row.open ? [made(row), detail(row)] : [made(row)]));
      if (wanted.length !== body.rows.length || wanted.some((row, place) => row !== body.rows[place])) body.replaceChildren(...wanted);
    }
    function sort(column, direction) {
      const head = heads[column], before = head.getAttribute("aria-sort");
      direction ??= before ? (before === "ascending" ? "descending" : "ascending") : usual(head);
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", direction);
      const sign = direction === "ascending" ? 1 : -1, values = new Map(rows.map((row) => [row, value(row, column)]));
      const numbers = rows.map((_, place) => place), of = rows.map((row) => values.get(row));
      // What was not measured comes last in either direction.
      order = numbers.sort((a, b) => {
        const x = of[a], y = of[b];
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return (x < y ? -1 : x > y ? 1 : 0) * sign || a - b;
      }).map((place) => rows[place]);
      search();
    }
    function more(count) {
      most = count;
      if (all) {
        all.setAttribute("aria-pressed", String(most > first));
        all.textContent = most > first ? "Show the first " + first : "Show all " + rows.length;
      }
      search();
    }
    function toggle(row) {
      row.open = !row.open;
      made(row).querySelector("button[aria-expanded]").setAttribute("aria-expanded", String(row.open));
      search();
    }
    const rowOf = (target) => rows.find((row) => row.element && row.element === target.closest("tr"));

    // The address of what is seen: other people open the same view.
    function note() {
      const sorted = heads.find((head) => head.hasAttribute("aria-sort")), asked = new URLSearchParams();
      if (sorted && sorted !== initial) asked.set("sort", sorted.dataset.key);
      if (sorted && sorted.getAttribute("aria-sort") !== usual(sorted)) { asked.set("sort", sorted.dataset.key); asked.set("order", sorted.getAttribute("aria-sort")); }
      if (filter?.value) asked.set("filter", filter.value);
      const section = box.closest("section"), link = section.querySelector("h2 .link");
      link.hash = section.id + (asked.size ? "?" + asked : "");
      // A page inside another page may not have an address of its own.
      try { history.replaceState(null, "", link.hash); } catch (error) { /* the link next to the heading has it */ }
    }
    function open(asked) {
      const column = columnOf(asked.get("sort"));
      if (filter) filter.value = asked.get("filter") || "";
      if (column >= 0) sort(column, ["ascending", "descending"].find((one) => one === asked.get("order")) ?? usual(heads[column]));
      else search();
    }

    for (const [column, head] of heads.entries()) head.querySelector("button")?.addEventListener("click", () => { sort(column); note(); });
    body.addEventListener("click", (event) => {
      const row = rowOf(event.target);
      if (!row) return;
      if (event.target.closest("button[aria-expanded]")) toggle(row);
      else if (row.points && !event.target.closest("a")) choose(row);
    });
    filter?.addEventListener("input", () => { search(); note(); });
    all?.addEventListener("click", () => more(most > first ? first : CHUNK));
    scroller.addEventListener("scroll", () => {
      if (most > first && most < found.length && scroller.scrollTop + scroller.clientHeight > scroller.scrollHeight - 1000) { most += CHUNK; search(); }
    });
    scroller.addEventListener("keydown", (event) => {
      if (event.target !== scroller || isTree) return;
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        const next = found[Math.max(0, Math.min(found.length - 1, found.indexOf(cursor) + step))];
        if (!next) return;
        event.preventDefault();
        reach(next);
      } else if (event.key === "Enter" && cursor?.detail) toggle(cursor);
    });
    function choose(row) {
      cursor = row;
      for (const old of document.querySelectorAll("tr.chosen")) old.classList.remove("chosen");
      made(row).classList.add("chosen");
      document.dispatchEvent(new CustomEvent("points", { detail: row.points ? row.points.split(" ") : [] }));
    }
    // Show a row, whatever hides it.
    function reach(row) {
      if (!found.includes(row)) { if (filter) filter.value = ""; period = null; search(); }
      const place = found.indexOf(row);
      if (place >= most) more(Math.ceil((place + 1) / CHUNK) * CHUNK);
      choose(row);
      made(row).scrollIntoView({ block: "nearest" });
    }
    // A mark of a figure asks for its row; a figure that shows a part of the time asks for the rows that ran in it.
    document.addEventListener("chosen", (event) => {
      const row = event.detail.row || rows.find((one) => one.points.split(" ").includes(event.detail.point));
      if (!row || event.detail.row) return;
      event.detail.row = row;
      reach(row);
    });
    document.addEventListener("window", (event) => {
      if (isTree || !rows.some((row) => row.points)) return;
      period = event.detail && { points: new Set(event.detail.points), text: event.detail.text };
      search();
    });
    search();
    return { section: box.closest("section").id, open };
  }

  // --- links ----------------------------------------------------------------------------------------------------------------------

  const grids = Promise.all(Array.from(document.querySelectorAll(".data"), grid));
  async function follow() {
    const [name, query] = location.hash.slice(1).split("?");
    // A section that is folded as a whole is what the link asks for.
    document.getElementById(name)?.querySelector(":scope > details:only-child")?.setAttribute("open", "");
    if (!query) return;
    (await grids).find((one) => one.section === name)?.open(new URLSearchParams(query));
    document.getElementById(name)?.scrollIntoView();
  }
  addEventListener("hashchange", follow);
  follow();

  const links = new Map(Array.from(document.querySelectorAll("nav a"), (link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) links.get(target.id).setAttribute("aria-current", String(isIntersecting));
  }, { root: document, rootMargin: "-15% 0px -75%" }); // without a root, a frame ignores the margin
  for (const name of links.keys()) seen.observe(document.getElementById(name));

  window.rooflines = { inflated };
})();
