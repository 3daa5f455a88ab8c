// What can be done with a figure: point at a mark, find its row, switch marks, zoom, save. Without this the figures are complete, too.
(function () {
  "use strict";
  const NEAR = 9, LEAST_DRAG = 6;
  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.hidden = true;

  function tell(lines, event) {
    tip.replaceChildren(...lines.map((line, number) => {
      const row = document.createElement(number ? "div" : "b");
      row.textContent = line;
      return row;
    }));
    tip.hidden = !lines.length;
    const left = event.clientX + 14 + tip.offsetWidth < innerWidth ? event.clientX + 14 : Math.max(4, event.clientX - 14 - tip.offsetWidth);
    tip.style.left = left + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4)) + "px";
  }
  function make(parent, tag, attributes) {
    const element = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }
  const number = (element, name) => Number(element.getAttribute(name));
  const values = (text) => (text.match(/-?[\d.]+(?:e-?\d+)?/g) || []).map(Number);
  const seen = (mark) => mark.element.getAttribute("visibility") !== "hidden" && mark.inside;

  // A mark and the points in the SVG that say where it is: the corners of a line, the middle of anything else.
  function read(element, axes) {
    const path = element.matches("g") ? element.querySelector(":scope > path, :scope > g > path") : null;
    const text = element.querySelector("text"), use = element.matches("use") ? element : element.querySelector("use");
    const mark = { element, axes, key: element.dataset.mark, kind: element.dataset.mark.split(":")[0], radius: 3, inside: true };
    if (text) Object.assign(mark, { text, at: [number(text, "x"), number(text, "y")], turn: values(text.getAttribute("transform") || "")[0] || 0 });
    else if (use) mark.at = [number(use, "x"), number(use, "y")];
    else if (element.matches("circle")) Object.assign(mark, { at: [number(element, "cx"), number(element, "cy")], radius: number(element, "r") });
    else if (path) Object.assign(mark, { path, d: path.getAttribute("d") });
    else {
      const all = values(element.getAttribute("d")), of = (axis) => all.filter((_, place) => place % 2 === axis);
      mark.at = [0, 1].map((axis) => (Math.min(...of(axis)) + Math.max(...of(axis))) / 2);
      mark.radius = (Math.max(...of(0)) - Math.min(...of(0))) / 2;
    }
    mark.now = mark.at;
    mark.fixed = mark.kind.startsWith("at-");
    return mark;
  }

  function duration(seconds, digits = 3) {
    const size = Math.abs(seconds), [scale, unit] = size >= 1 || !size ? [1, "s"] : size >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
    return Number((seconds * scale).toPrecision(digits)) + " " + unit;
  }

  function live(figure, facts) {
    for (const lane of facts.lanes || []) lane.segments = lane.items.map((item, place) => ({ ...facts.items[item], label: lane.label,
      begin: lane.begins_ns[place] / 1e9, end: (lane.begins_ns[place] + lane.durations_ns[place]) / 1e9 }));
    const drawings = Array.from(figure.querySelectorAll("svg"), (svg) => drawing(svg, facts, figure));
    const switches = Array.from(figure.querySelectorAll("[data-switch]"));
    const isOn = (one) => (one.matches("input") ? one.checked : one.getAttribute("aria-pressed") === "true");
    const reset = figure.querySelector(".reset"), save = figure.querySelector(".save");
    figure.addEventListener("zoom", () => { if (reset) reset.hidden = !drawings.some((one) => one.zoomed()); });
    for (const one of switches) {
      one.addEventListener(one.matches("input") ? "change" : "click", () => {
        if (one.matches("button")) one.setAttribute("aria-pressed", String(!isOn(one)));
        for (const mark of figure.querySelectorAll("[data-to]")) {
          if (mark.dataset.to === one.dataset.switch) mark.setAttribute("visibility", isOn(one) ? "visible" : "hidden");
        }
        // Some roofs lie above what the axes show.
        const wide = facts.wide && switches.some((other) => facts.wide.with.includes(other.dataset.switch) && isOn(other));
        if (one.matches("input")) for (const each of drawings) each.home(wide ? { y: facts.wide.y } : {});
      });
    }
    for (const chip of figure.querySelectorAll("[data-device]")) {
      chip.addEventListener("click", () => {
        for (const other of figure.querySelectorAll("[data-device]")) other.setAttribute("aria-pressed", String(other === chip));
        for (const mark of figure.querySelectorAll("svg [data-to]")) {
          const front = mark.dataset.to === chip.dataset.device;
          const kind = mark.dataset.mark.split(":")[0];
          if (["line", "at-line"].includes(kind)) {
            const inked = mark.querySelector("path, text");
            inked.style[kind === "line" ? "stroke" : "fill"] = front ? "var(--accent)" : "var(--muted)";
            if (kind === "line") inked.style.strokeWidth = front ? 1.2 : 0.7;
            if (front) mark.parentNode.append(mark);
          } else mark.setAttribute("visibility", front ? "visible" : "hidden");
        }
      });
    }
    if (reset) reset.addEventListener("click", () => { for (const one of drawings) one.home(); });
    if (save) save.addEventListener("click", () => savePicture(Array.from(figure.querySelectorAll("svg")).find((svg) => svg.clientWidth), figure.id));
  }

  function drawing(svg, facts, figure) {
    const places = JSON.parse(svg.dataset.axes);
    const groups = Array.from(svg.querySelectorAll("g[id*='-axes_']"));
    const marks = groups.flatMap((group, place) => Array.from(group.querySelectorAll("[data-mark]"), (element) => read(element, places[place])));
    const lead = places[places.length - 1];
    let first = {}, view = first, drag = null;

    const at = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const under = (point) => places.findIndex(({ box }) =>
      point.x >= box[0] - 2 && point.x <= box[0] + box[2] + 2 && point.y >= box[1] - 2 && point.y <= box[1] + box[3] + 2);
    const range = (axes, name) => view[name] || axes[name];
    const span = ({ box }, name) => (name === "x" ? [box[0], box[2]] : [box[1] + box[3], -box[3]]);
    // From a value to its place in the SVG and back; ``moved`` is where something is now that was drawn at a place.
    function place(axes, name, shown) {
      const [start, length] = span(axes, name), [from, to] = range(axes, name);
      return start + ((shown - from) / (to - from)) * length;
    }
    function value(axes, name, at, [from, to] = range(axes, name)) {
      const [start, length] = span(axes, name);
      return from + ((at - start) / length) * (to - from);
    }
    const moved = (axes, name, at) => (view[name] ? place(axes, name, value(axes, name, at, axes[name])) : at);

    function show(wanted) {
      const isNew = view.x !== wanted.x;
      view = wanted;
      for (const mark of marks.filter((one) => !one.fixed)) {
        const { axes, at, path, text, element } = mark;
        if (path) {
          const corners = view.y && facts.lines?.[mark.key]?.map(([x, y]) => place(axes, "x", x) + " " + place(axes, "y", y));
          path.setAttribute("d", mark.kind === "lane" ? stretches(mark) : corners ? "M " + corners.join(" L ")
            : mark.d.replace(/(-?[\d.]+) (-?[\d.]+)/g, (_, x, y) => moved(axes, "x", +x).toFixed(2) + " " + moved(axes, "y", +y).toFixed(2)));
          continue;
        }
        mark.now = [moved(axes, "x", at[0]), moved(axes, "y", at[1])];
        element.setAttribute("transform", `translate(${(mark.now[0] - at[0]).toFixed(2)} ${(mark.now[1] - at[1]).toFixed(2)})`);
        if (text && mark.turn) {
          const stretch = (moved(axes, "y", 1) - moved(axes, "y", 0)) / (moved(axes, "x", 1) - moved(axes, "x", 0));
          const turn = (Math.atan(Math.tan((mark.turn * Math.PI) / 180) * stretch) * 180) / Math.PI;
          text.setAttribute("transform", `rotate(${turn.toFixed(2)} ${at[0]} ${at[1]})`);
        }
        mark.inside = under({ x: mark.now[0], y: mark.now[1] }) >= 0;
        element.style.display = mark.inside ? "" : "none";
      }
      for (const name of ["x", "y"]) if (facts[name]) renumber(name);
      figure.dispatchEvent(new Event("zoom"));
      if (facts.lanes && isNew) announce();
    }
    // The segments of a category in the part of a lane that is shown, from their times: the path was drawn for the whole step.
    function stretches(mark) {
      if (!view.x) return mark.d;
      const [, lane, category] = mark.key.match(/^lane:(\d+)-(.*)$/), { axes } = mark, [low, high] = range(axes, "x");
      const y = values(mark.d)[1], at = (time) => place(axes, "x", Math.min(high, Math.max(low, time)));
      return facts.lanes[lane].segments.filter((one) => one.category === category && one.end > low && one.begin < high)
        .map((one) => `M ${at(one.begin).toFixed(2)} ${y} H ${Math.max(at(one.end), at(one.begin) + 0.3).toFixed(2)}`).join(" ") || "M 0 0";
    }
    // Tell the tables which rows ran in the part of the step that is shown; null: in all of it.
    function announce() {
      const [low, high] = range(places[0], "x"), short = facts.unplaced.length;
      const inside = facts.lanes.flatMap((lane) => lane.segments).filter((one) => !one.launched && one.end > low && one.begin < high);
      const points = [...inside.map((one) => one.key), ...facts.unplaced];
      const more = short ? `, with ${short} operator${short > 1 ? "s" : ""} too short to place` : "";
      const detail = view.x ? { points, text: `${duration(low)} to ${duration(high)}${more}` } : null;
      document.dispatchEvent(new CustomEvent("window", { detail }));
    }
    // The numbers of an axis that shows something else than it was drawn with.
    function renumber(name) {
      const drawn = groups.map((group) => group.querySelector(`[id$='-${name}-axis']`)), axes = lead, x = name === "x";
      svg.querySelector(".ticks-" + name)?.remove();
      for (const axis of drawn) axis.style.display = view[name] ? "none" : "";
      if (!view[name]) return;
      const group = make(svg, "g", { class: "ticks-" + name }), like = svg.querySelector(`[id$='-${name}-axis'] text`).getAttribute("style");
      const [left, top, width, height] = axes.box;
      for (const [mark, text] of ticks(range(axes, name), facts[name])) {
        const along = place(axes, name, mark).toFixed(2);
        if (facts[name].log) make(group, "path", { d: x ? `M ${along} ${top} v ${height}` : `M ${left} ${along} h ${width}`, style: "stroke: var(--grid); stroke-width: .5" });
        make(group, "path", { d: x ? `M ${along} ${top + height} v 3` : `M ${left} ${along} h -3`, style: "stroke: var(--faint_roof); stroke-width: .6" });
        make(group, "text", { x: x ? along : left - 5, y: x ? top + height + 10 : +along + 2.6, style: `${like}; text-anchor: ${x ? "middle" : "end"}` }).textContent = text;
      }
      groups[groups.length - 1].insertBefore(group, groups[groups.length - 1].children[1]);
    }
    function ticks([low, high], { log, factor }) {
      const shift = log ? Math.log10(factor) : 0, found = [], text = (shown) => String(Number(shown.toPrecision(6)));
      const linear = (from, to) => {
        const rough = (to - from) / 6, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find((one) => one * power >= rough) * power;
        return Array.from({ length: Math.floor(to / step) - Math.ceil(from / step) + 1 }, (_, index) => (Math.ceil(from / step) + index) * step);
      };
      if (!log) return linear(low, high).map((shown) => [shown, text(shown / factor)]);
      if (high - low < 0.7) return linear(10 ** (low - shift), 10 ** (high - shift)).map((shown) => [Math.log10(shown) + shift, text(shown)]);
      for (let decade = Math.floor(low - shift); decade <= high - shift; decade += 1) {
        for (const step of high - low < 2.5 ? [1, 2, 5] : [1]) {
          const mark = decade + Math.log10(step) + shift;
          if (mark >= low && mark <= high) found.push([mark, text(step * 10 ** decade)]);
        }
      }
      return found;
    }

    function gap(mark, point) {
      if (mark.now) return Math.hypot(mark.now[0] - point.x, mark.now[1] - point.y);
      const all = values(mark.path.getAttribute("d"));
      let nearest = Infinity;
      for (let i = 0; i + 3 < all.length; i += 2) {
        const [ax, ay, bx, by] = all.slice(i, i + 4), squared = (bx - ax) ** 2 + (by - ay) ** 2;
        const along = squared ? Math.min(1, Math.max(0, ((point.x - ax) * (bx - ax) + (point.y - ay) * (by - ay)) / squared)) : 0;
        nearest = Math.min(nearest, Math.hypot(point.x - ax - along * (bx - ax), point.y - ay - along * (by - ay)));
      }
      return nearest;
    }
    // The mark at the pointer: of points and signs the one with the nearest middle, else a line.
    function nearest(point) {
      const reach = NEAR / svg.getScreenCTM().a;
      const close = marks.filter((mark) => facts.texts[mark.key] && seen(mark)).map((mark) => ({ mark, gap: gap(mark, point) }))
        .filter((one) => one.gap <= Math.max(one.mark.now ? one.mark.radius : 0, reach)).sort((one, other) => one.gap - other.gap);
      return close.find((one) => one.mark.now)?.mark || close[0]?.mark;
    }
    function told(mark) {
      const lines = facts.texts[mark.key].map((line) => facts.said[line]);
      const same = marks.filter((other) => other !== mark && other.kind === mark.kind && other.now && mark.now && seen(other) && facts.texts[other.key]
        && Math.hypot(other.now[0] - mark.now[0], other.now[1] - mark.now[1]) < 2);
      if (same.length) lines.push("and here: " + same.slice(0, 4).map((other) => facts.said[facts.texts[other.key][0]]).join(", ") + (same.length > 4 ? ` and ${same.length - 4} more` : ""));
      return lines;
    }
    // The segment of a lane at the pointer, or the nearest one within reach.
    function segment(point) {
      const lane = facts.lanes[Math.floor(value(places[0], "y", point.y))];
      const time = value(places[0], "x", point.x), far = (one) => Math.max(one.begin - time, time - one.end, 0);
      const found = lane?.segments.reduce((best, one) => (best && far(best) <= far(one) ? best : one), null);
      return found && place(places[0], "x", time + far(found)) - point.x <= NEAR / 3 / svg.getScreenCTM().a ? found : null;
    }
    // The readings at the pointer's time.
    function readings(point) {
      const row = under(point);
      if (row < 0) return [];
      if (facts.lanes && row === 0) {
        const one = segment(point);
        return one ? [one.name, one.launched && `launched ${one.launched}`, one.module,
          `begins at ${duration(one.begin, 6)}, lasts ${duration(one.end - one.begin)}`, one.label].filter(Boolean) : [];
      }
      const time = value(places[row], "x", point.x), lines = facts.rows[row].map(([name, unit, times, all]) => {
        const series = facts.times[times];
        let low = 0, high = series.length - 1;
        while (high - low > 1) { const middle = (low + high) >> 1; if (series[middle] < time) low = middle; else high = middle; }
        return `${name}: ${all[time - series[low] < series[high] - time ? low : high]} ${unit}`;
      });
      return [duration(time), ...lines];
    }

    svg.addEventListener("pointermove", (event) => {
      const point = at(event);
      if (drag) {
        drag.box ??= make(svg, "rect", { class: "drag" });
        const [left, top, width, height] = lead.box, whole = !facts.y;
        drag.to = { x: Math.min(Math.max(point.x, left), left + width), y: Math.min(Math.max(point.y, top), top + height) };
        const box = { x: Math.min(drag.x, drag.to.x), width: Math.abs(drag.to.x - drag.x), y: whole ? places[0].box[1] : Math.min(drag.y, drag.to.y),
          height: whole ? top + height - places[0].box[1] : Math.abs(drag.to.y - drag.y) };
        for (const [name, size] of Object.entries(box)) drag.box.setAttribute(name, size);
        return;
      }
      const mark = facts.rows ? null : nearest(point);
      svg.style.cursor = mark ? "pointer" : facts.x && under(point) >= 0 ? "crosshair" : "";
      tell(facts.rows ? readings(point) : mark ? told(mark) : [], event);
    });
    svg.addEventListener("pointerleave", () => { tip.hidden = true; });
    svg.addEventListener("pointerdown", (event) => {
      const point = at(event);
      if (!facts.x || event.pointerType === "touch" || event.button || under(point) < 0) return;
      event.preventDefault();
      svg.setPointerCapture(event.pointerId);
      drag = { x: point.x, y: point.y };
    });
    svg.addEventListener("pointerup", (event) => {
      const { box, to, ...from } = drag || {};
      drag = null;
      box?.remove();
      const scale = svg.getScreenCTM().a, far = (name) => to && Math.abs(to[name] - from[name]) * scale > LEAST_DRAG;
      if (far("x") && (!facts.y || far("y"))) {
        const between = (name) => [value(lead, name, from[name]), value(lead, name, to[name])].sort((one, other) => one - other);
        show(facts.y ? { x: between("x"), y: between("y") } : { x: between("x") });
        tip.hidden = true;
      } else if (facts.lanes || !facts.rows) choose((facts.lanes ? segment : nearest)(at(event))?.key);
    });
    const home = (wanted = first) => show((first = wanted));
    svg.addEventListener("dblclick", () => home());
    return { home, zoomed: () => view !== first };
  }

  // The points of the chosen row stand out; a chosen mark asks for its row.
  document.addEventListener("points", (event) => {
    for (const mark of document.querySelectorAll("[data-mark]")) mark.classList.toggle("chosen", event.detail.includes(mark.dataset.mark));
  });
  function choose(key) {
    document.dispatchEvent(new CustomEvent("points", { detail: [key] }));
    document.dispatchEvent(new CustomEvent("chosen", { detail: { point: key } }));
  }

  function savePicture(svg, name) {
    const style = getComputedStyle(document.documentElement), copy = svg.cloneNode(true), box = svg.viewBox.baseVal, image = new Image();
    for (const [attribute, content] of [["width", box.width * 3], ["height", box.height * 3], ["font-family", getComputedStyle(document.body).fontFamily]]) copy.setAttribute(attribute, content);
    for (const [place, disc] of svg.querySelectorAll("circle").entries()) copy.querySelectorAll("circle")[place].style.fill = getComputedStyle(disc).fill;
    image.onload = () => {
      const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
      canvas.getContext("2d").drawImage(image, 0, 0);
      Object.assign(document.createElement("a"), { download: name + ".png", href: canvas.toDataURL("image/png") }).click();
    };
    const text = new XMLSerializer().serializeToString(copy).replace(/var\((--[\w-]+)\)/g, (_, variable) => style.getPropertyValue(variable).trim());
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  }

  // Drawings for narrow windows are packed: wide windows do not need them.
  const { inflated } = window.rooflines;
  const drawn = Promise.all(Array.from(document.querySelectorAll("script.narrow"), async (script) => {
    script.replaceWith(Object.assign(document.createElement("div"), { className: "narrow", innerHTML: await inflated(script) }));
  }));
  for (const data of document.querySelectorAll("script.marks")) {
    Promise.all([inflated(data), drawn]).then(([facts]) => live(data.closest("figure"), facts));
  }
})();
