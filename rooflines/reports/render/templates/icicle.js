// The icicle of modules: measures to choose from, zoom, keys. Without this the figure shows the time.
(function () {
  "use strict";
  const ROW = 26, TEXT = 7, MEASURES = [["time", "s", 3], ["FLOPs", "FLOP", 4], ["bytes", "B", 5], ["headroom", "s", 6]];
  const [DEPTH, NAME, TYPE, TIME, FLOPS, BYTES, HEADROOM, EFFICIENCY] = [0, 1, 2, 3, 4, 5, 6, 7];
  function si(value, unit) {
    if (value === null) return "unknown";
    const [factor, prefix] = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]]
      .find(([least]) => value >= least && (unit !== "s" || least <= 1)) || [1, ""];
    return Number((value / factor).toPrecision(3)) + " " + prefix + unit;
  }
  const percent = (share) => Number((share * 100).toPrecision(2)) + " %";

  function icicle(figure, facts) {
    const above = [], roots = [];
    const nodes = facts.nodes.map((facts) => {
      const parent = above[facts[DEPTH] - 1], node = { facts, parent, children: [], path: [parent?.path, facts[NAME]].filter(Boolean).join(".") };
      (parent ? parent.children : roots).push(node);
      above.length = facts[DEPTH];
      above.push(node);
      return node;
    });
    const draw = figure.querySelector(".draw"), controls = document.createElement("div");
    let [, unit, measure] = MEASURES[0], top = null, shown = [];
    const value = (node) => node.facts[measure] || 0;
    const sum = (list) => list.reduce((all, node) => all + value(node), 0);

    function tell({ path, facts: own }) {
      return [path || "(model)", facts.types[own[TYPE]], "time " + si(own[TIME], "s") + ", " + percent(own[TIME] / facts.whole) + " of the step",
        "work " + si(own[FLOPS], "FLOP"), "traffic " + si(own[BYTES], "B"), "headroom " + si(own[HEADROOM], "s"),
        "efficiency " + (own[EFFICIENCY] === null ? "unknown" : percent(own[EFFICIENCY]))].join("\n");
    }
    // Children share the width of their parent; what is in none of them stays empty.
    function place(list, of, x, width, level) {
      for (const node of list) {
        const own = of > 0 ? (value(node) / of) * width : 0;
        if (own >= 1 && level < facts.levels) {
          shown.push({ node, x, width: own, level });
          place(node.children, Math.max(value(node), sum(node.children)), x, own, level + 1);
        }
        x += own;
      }
    }
    function make(parent, tag, attributes, text) {
      const element = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
      for (const [name, content] of Object.entries(attributes)) element.setAttribute(name, content);
      if (text !== undefined) element.textContent = text;
      return element;
    }
    function show(focused) {
      const width = draw.clientWidth, list = top ? [top] : roots;
      shown = [];
      place(list, sum(list), 0, width, 0);
      const height = ROW * (1 + Math.max(0, ...shown.map((cell) => cell.level)));
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      for (const [name, content] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}`, class: "icicle", role: "group" })) svg.setAttribute(name, content);
      for (const cell of shown) {
        const { node, x, level } = cell, own = node.facts, name = own[NAME] || facts.types[own[TYPE]], fits = Math.floor((cell.width - 8) / TEXT);
        cell.element = make(svg, "g", { tabindex: -1, role: "button", "aria-label": tell(node).replaceAll("\n", ", "), "data-path": node.path });
        const known = own[HEADROOM] !== null && own[TIME] > 0, [low, high] = facts.shades;
        make(cell.element, "rect", { x, y: level * ROW, width: cell.width, height: ROW, class: known ? "" : "unknown", "fill-opacity": known ? low + (high - low) * Math.min(1, own[HEADROOM] / own[TIME]) : 1 });
        if (fits > 1) make(cell.element, "text", { x: x + cell.width / 2, y: level * ROW + ROW / 2 + 4 }, name.length > fits ? name.slice(0, fits - 1) + "…" : name);
        make(cell.element, "title", {}, tell(node));
        cell.element.addEventListener("click", () => zoom(node));
      }
      draw.replaceChildren(shown.length ? svg : "No module has any.");
      const first = shown.find((cell) => cell.node === focused) || shown[0];
      first?.element.setAttribute("tabindex", 0);
      if (focused) first?.element.focus();
    }
    // A module fills the figure; chosen again, its parent does.
    function zoom(node) {
      const next = node === top ? node.parent || null : node.children.length || top ? node : top;
      top = next && !next.parent && roots.length === 1 ? null : next;
      show(node);
    }
    draw.addEventListener("keydown", (event) => {
      const at = shown.findIndex((cell) => cell.element === document.activeElement), cell = shown[at];
      if (!cell) return;
      const level = shown.filter((other) => other.level === cell.level), place = level.indexOf(cell);
      const to = { ArrowRight: level[place + 1], ArrowLeft: level[place - 1], ArrowDown: shown.find((other) => other.node.parent === cell.node),
        ArrowUp: shown.find((other) => other.node === cell.node.parent) };
      if (event.key in to) {
        if (to[event.key]) {
          cell.element.setAttribute("tabindex", -1);
          to[event.key].element.setAttribute("tabindex", 0);
          to[event.key].element.focus();
        }
      } else if (event.key === "Enter" || event.key === " ") zoom(cell.node);
      else if (event.key === "Escape" || event.key === "Backspace") { if (top) zoom(top); }
      else return;
      event.preventDefault();
    });
    controls.className = "measures";
    for (const [name, of, column] of MEASURES) {
      const button = controls.appendChild(document.createElement("button"));
      Object.assign(button, { type: "button", className: "small", textContent: name, disabled: !nodes.some((node) => node.facts[column]) });
      button.setAttribute("aria-pressed", String(column === measure));
      button.addEventListener("click", () => {
        [unit, measure] = [of, column];
        for (const other of controls.children) other.setAttribute("aria-pressed", String(other === button));
        show();
      });
    }
    draw.before(controls);
    draw.setAttribute("role", "group");
    new ResizeObserver(() => { if (draw.clientWidth !== draw.firstChild.clientWidth) show(); }).observe(draw);
    show();
  }
  for (const data of document.querySelectorAll("script.marks")) {
    window.rooflines.inflated(data).then((facts) => { if (facts.icicle) icicle(data.closest("figure"), facts.icicle); });
  }
})();
