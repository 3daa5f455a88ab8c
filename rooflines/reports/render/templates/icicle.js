// The icicle of modules: measures to choose from, zoom, keys. Without this the figure shows the time.
(function () {
  "use strict";
  const ROW = 26, TEXT = 7, MEASURES = ["time", "FLOPs", "bytes", "headroom"];

  function make(parent, tag, attributes, text = "") {
    const element = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
    for (const [name, content] of Object.entries(attributes)) element.setAttribute(name, content);
    element.textContent = text;
    return element;
  }

  function icicle(figure, facts) {
    const nodes = [], roots = [], draw = figure.querySelector(".draw"), controls = document.createElement("div");
    for (const [parent, name, text, opacity, ...values] of facts.nodes) {
      const above = nodes[parent], path = [above?.path, name].filter(Boolean).join(".");
      const node = { above, path, label: name || text.split("\n")[0], text: `${path || "(model)"}\n${text}`, opacity, values, children: [] };
      nodes.push(node);
      (above ? above.children : roots).push(node);
    }
    let measure = 0, top = null, shown = [];
    const value = (node) => node.values[measure] || 0;
    const sum = (list) => list.reduce((all, node) => all + value(node), 0);

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
    function show(chosen, inside = top) {
      const width = draw.clientWidth, list = inside ? [inside] : roots;
      [top, shown] = [inside, []];
      place(list, sum(list), 0, width, 0);
      const height = ROW * (1 + Math.max(0, ...shown.map((cell) => cell.level)));
      draw.textContent = shown.length ? "" : "No module has any.";
      const svg = make(draw, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "icicle", role: "group" });
      for (const cell of shown) {
        const { label, text, opacity, path } = cell.node, x = cell.x, y = cell.level * ROW, fits = Math.floor((cell.width - 8) / TEXT);
        cell.element = make(svg, "g", { role: "button", "aria-label": text.replaceAll("\n", ", "), "data-path": path });
        make(cell.element, "rect", { x, y, width: cell.width, height: ROW, class: opacity ? "" : "unknown", "fill-opacity": opacity || 1 });
        if (fits > 1) make(cell.element, "text", { x: x + cell.width / 2, y: y + ROW / 2 + 4 }, label.length > fits ? label.slice(0, fits - 1) + "…" : label);
        make(cell.element, "title", {}, text);
        cell.element.addEventListener("click", () => zoom(cell.node));
      }
      enter(shown.find((cell) => cell.node === chosen) || shown[0], chosen);
    }
    // One cell is reached with the tab key, the others from it.
    function enter(chosen, focused) {
      for (const cell of shown) cell.element.setAttribute("tabindex", cell === chosen ? 0 : -1);
      if (focused) chosen?.element.focus();
    }
    // A module fills the figure; chosen again, its parent does.
    const zoom = (node) => show(node, top === node ? node.above || null : node);
    draw.addEventListener("keydown", (event) => {
      const here = shown.find((cell) => cell.element === document.activeElement);
      if (!here) return;
      const level = shown.filter((cell) => cell.level === here.level), place = level.indexOf(here);
      const to = { ArrowRight: level[place + 1], ArrowLeft: level[place - 1], ArrowDown: shown.find((cell) => cell.node.above === here.node),
        ArrowUp: shown.find((cell) => cell.node === here.node.above) };
      if (event.key in to) enter(to[event.key] || here, true);
      else if (event.key === "Enter" || event.key === " ") zoom(here.node);
      else if (event.key === "Escape" || event.key === "Backspace") { if (top) zoom(top); }
      else return;
      event.preventDefault();
    });
    controls.className = "measures";
    MEASURES.forEach((name, index) => {
      const button = controls.appendChild(document.createElement("button"));
      Object.assign(button, { type: "button", className: "small", textContent: name, disabled: !nodes.some((node) => node.values[index]) });
      button.setAttribute("aria-pressed", String(!index));
      button.addEventListener("click", () => {
        measure = index;
        for (const other of controls.children) other.setAttribute("aria-pressed", String(other === button));
        show();
      });
    });
    draw.before(controls);
    draw.setAttribute("role", "group"); // an image may hold nothing to press
    new ResizeObserver(() => { if (draw.clientWidth !== draw.lastChild.clientWidth) show(); }).observe(draw);
    show();
  }
  const read = (data) => window.rooflines.inflated(data).then((facts) => { if (facts.icicle) icicle(data.closest("figure"), facts.icicle); });
  document.querySelectorAll("script.marks").forEach(read);
})();
