// The chart's data as plotly traces. What is drawn was decided in Python; here are only pixels: colours of the theme, the slope of the
// text along a roof, and which of the label placements fits the width.
charts.push(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const place = document.getElementById("chart");
  const ranks = document.getElementById("ranks");
  const log = Math.log10;
  // The groups of lighter roofs that are drawn, and those that are from the start.
  const first = new Set(data.roofs.filter((roof) => roof.shown && !roof.primary).map((roof) => roof.why_secondary));
  const shown = new Set(first);
  const hidden = new Set();
  let ranges = null;

  function wide() {
    return [...shown].some((group) => !first.has(group));
  }
  function limits() {
    return wide() ? data.wide_limits : data.limits;
  }
  function axisRanges() {
    if (ranges) return ranges;
    const l = limits();
    return { x: [log(l.x_low), log(l.x_high)], y: [log(l.y_low), log(l.y_high)] };
  }
  function drawnRoofs() {
    return data.roofs.filter((roof) => roof.primary || shown.has(roof.why_secondary));
  }
  function size() {
    const width = printing ? 670 : place.clientWidth;
    const left = 30 + 7 * Math.max(3, ...data.y_ticks.map((tick) => tick.text.length));
    const margin = { l: left, r: width < 560 ? 8 : 10, t: printing || width < 560 ? 8 : 30, b: 48 };
    const height = printing ? 430 : place.clientHeight;
    return { width, height, margin, inner: [width - margin.l - margin.r, height - margin.t - margin.b] };
  }

  function narrow() {
    return size().width < 560;
  }
  function diameter(point) {
    return narrow() ? Math.max(6, point.size * 0.72) : point.size;
  }

  // The mark of a warning is as large as its point, and large enough to hold its sign.
  function markSize(point) {
    return Math.max(10, diameter(point));
  }
  // One mark for all points whose marks would cover each other, at the longest; it tells of the others.
  function marks(points, inner, range) {
    const found = [];
    for (const point of points.filter((one) => one.warning)) {
      const at = { size: markSize(point), px: pixel(log(point.x), range.x, inner[0]), py: pixel(log(point.y), range.y, inner[1]) };
      const under = found.find((mark) => Math.max(Math.abs(mark.px - at.px), Math.abs(mark.py - at.py)) < (mark.size + at.size) / 2 + 1);
      if (under) under.others.push(point.hover.split("<br>")[0]);
      else found.push({ ...at, x: point.x, y: point.y, hover: point.hover, others: [] });
    }
    for (const mark of found) {
      if (mark.others.length) mark.hover += "<br>and here: " + mark.others.slice(0, 4).join(", ") + (mark.others.length > 4 ? ` and ${mark.others.length - 4} more` : "");
    }
    return found;
  }
  function pixel(value, range, length) {
    return ((value - range[0]) / (range[1] - range[0])) * length;
  }

  function traces(colours) {
    const ink = colours.ink;
    const list = [];
    const { inner } = size();
    const range = axisRanges();
    if (data.band) {
      const { x, upper, lower } = data.band;
      list.push({
        type: "scatter", mode: "lines", x: x.concat(x.slice().reverse()), y: upper.concat(lower.slice().reverse()),
        fill: "toself", fillcolor: ink.band, line: { width: 0 }, hoverinfo: "skip",
      });
    }
    for (const roof of drawnRoofs()) {
      list.push({
        type: "scatter", mode: "lines", x: roof.x, y: roof.y, hoverinfo: "skip",
        line: { color: roof.primary ? ink.roof : ink.faint_roof, width: roof.primary ? 1.6 : 1, dash: roof.primary ? "solid" : "dot" },
      });
      // Points that cannot be seen along the line answer the pointer with the ceiling's source.
      const along = { x: [], y: [] };
      for (let end = 1; end < roof.x.length; end += 1) {
        for (let step = 0; step <= 12; step += 1) {
          along.x.push(roof.x[end - 1] * Math.pow(roof.x[end] / roof.x[end - 1], step / 12));
          along.y.push(roof.y[end - 1] * Math.pow(roof.y[end] / roof.y[end - 1], step / 12));
        }
      }
      list.push({
        type: "scatter", mode: "markers", x: along.x, y: along.y, marker: { size: 8, opacity: 0, color: ink.roof },
        hoverinfo: "text", hovertext: roof.hover,
      });
    }
    if (data.ridges.length) {
      list.push({
        type: "scatter", mode: "markers", x: data.ridges.map((r) => r.intensity), y: data.ridges.map((r) => r.flop_per_s),
        marker: { symbol: "diamond", size: 8, color: ink.roof, line: { color: ink.page, width: 1 } },
        hoverinfo: "text", hovertext: data.ridges.map((r) => r.hover),
      });
    }
    // One trace in the order of the data, longest first, so that a large point never hides a small one of another category.
    const points = data.points.filter((point) => !hidden.has(point.category));
    const fill = points.map((point) => colours.category[point.category]);
    const lines = leaders(inner, range);
    if (lines.x.length) {
      list.push({ type: "scatter", mode: "lines", x: lines.x, y: lines.y, line: { color: ink.muted, width: 0.8 }, hoverinfo: "skip" });
    }
    list.push({
      type: "scatter", mode: "markers", x: points.map((p) => p.x), y: points.map((p) => p.y),
      marker: { size: points.map(diameter), color: fill, opacity: 0.85, line: { color: ink.page, width: 1 } },
      hoverinfo: "text", hovertext: points.map((p) => p.hover), hoverlabel: { bordercolor: fill },
    });
    const warned = marks(points, inner, range);
    if (warned.length) {
      list.push({
        type: "scatter", mode: "markers+text", x: warned.map((m) => m.x), y: warned.map((m) => m.y), text: warned.map(() => "!"),
        textposition: "middle center", textfont: { color: ink.warning, size: warned.map((m) => Math.min(14, m.size - 1)), weight: 700 },
        marker: { symbol: "square", size: warned.map((m) => m.size), color: ink.page, line: { color: ink.warning, width: 1.5 } },
        hoverinfo: "text", hovertext: warned.map((m) => m.hover), hoverlabel: { bordercolor: ink.warning },
      });
    }
    if (data.ring) {
      list.push({
        type: "scatter", mode: "markers", x: [data.ring.intensity], y: [data.ring.flop_per_s],
        marker: { symbol: "circle-open", size: 26, color: ink.text, line: { width: 2.5 } },
        hoverinfo: "text", hovertext: [data.ring.hover],
      });
    }
    return list;
  }

  // The width of a roof's text in pixels, as this browser's font sets it.
  const canvas = document.createElement("canvas").getContext("2d");
  function textWidth(text) {
    canvas.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    return canvas.measureText(text).width;
  }

  // Text along the roofs: the angle depends on the pixels of the plot, the place on what the axes show.
  function roofTexts(colours, inner, range, named) {
    const perX = inner[0] / (range.x[1] - range.x[0]);
    const perY = inner[1] / (range.y[1] - range.y[0]);
    const spots = data.points.map((p) => ({ x: log(p.x), y: log(p.y), radius: (p.warning ? 1.2 * markSize(p) : diameter(p)) / 2 }));
    for (const name of named) {
      const half = plain(name.text).length * 3;
      for (const part of [-1, -0.5, 0, 0.5, 1]) spots.push({ x: name.x + (part * half) / perX, y: name.y, radius: 8 });
    }
    const lines = leaders(inner, range);
    for (let end = 1; end < lines.x.length; end += 3) {
      for (let step = 0; step <= 20; step += 1) {
        const at = (values) => log(values[end - 1]) + (log(values[end] / values[end - 1]) * step) / 20;
        spots.push({ x: at(lines.x), y: at(lines.y), radius: 1 });
      }
    }
    for (const ridge of narrow() ? [] : data.ridges.slice(0, 1)) {
      for (let across = 4; across <= 4 + textWidth(ridge.text); across += 10) {
        spots.push({ x: log(ridge.intensity) - across / perX, y: log(ridge.flop_per_s) + 10 / perY, radius: 7 });
      }
    }
    const taken = [];
    const texts = [];
    for (const roof of drawnRoofs().sort((one, other) => other.primary - one.primary)) {
      const text = narrow() || !roof.primary ? roof.short : roof.text;
      const width = textWidth(text) + 10;
      const slanted = roof.kind === "memory";
      const angle = slanted ? Math.atan2(perY, perX) : 0;
      let x, y;
      if (slanted) {
        const half = (width / 2) * Math.cos(angle) / perX;
        const start = Math.max(range.x[0], range.y[0] - log(roof.value)) + 8 * Math.cos(angle) / perX + half;
        const end = Math.min(log(roof.x[1]), range.x[1]) - half;
        if (start > end) continue;
        // The first place along the line with the fewest points under the text.
        let fewest = Infinity;
        for (let step = 0; step <= 10; step += 1) {
          const at = start + ((end - start) * step) / (narrow() ? 20 : 14);
          const across = (at - range.x[0]) * perX - 9 * Math.sin(angle);
          const up = (at + log(roof.value) - range.y[0]) * perY + 9 * Math.cos(angle);
          const covered = spots.filter((spot) => {
            const dx = (spot.x - range.x[0]) * perX - across, dy = (spot.y - range.y[0]) * perY - up;
            const along = dx * Math.cos(angle) + dy * Math.sin(angle), aside = dy * Math.cos(angle) - dx * Math.sin(angle);
            return Math.abs(along) < width / 2 + spot.radius && Math.abs(aside) < 8 + spot.radius;
          }).length;
          if (covered < fewest) { fewest = covered; x = at; }
        }
        y = x + log(roof.value);
        // The texts of other roofs keep off this one.
        for (let part = -1; part <= 1; part += 0.125) {
          const along = (part * width) / 2;
          spots.push({
            x: x + (along * Math.cos(angle) - 9 * Math.sin(angle)) / perX, y: y + (along * Math.sin(angle) + 9 * Math.cos(angle)) / perY,
            radius: 5,
          });
        }
      } else {
        const start = Math.max(range.x[0], log(roof.x[roof.x.length - 2]));
        x = range.x[1] - (width / 2) / perX;
        if (x - (width / 2) / perX < start) x = Math.max(start, range.x[0]) + (width / 2 + 4) / perX;
        x = Math.min(x, range.x[1] - (width / 2) / perX);
        y = log(roof.value);
        if (y > range.y[1] || y < range.y[0]) continue;
      }
      // Above the line, square to it.
      const middle = { x: (x - range.x[0]) * perX - 9 * Math.sin(angle), y: (y - range.y[0]) * perY + 9 * Math.cos(angle) };
      if (!slanted && taken.some((other) => Math.abs(other.y - middle.y) < 13 && Math.abs(other.x - middle.x) < (other.width + width) / 2)) continue;
      if (!slanted) taken.push({ ...middle, width });
      texts.push({
        x, y, xref: "x", yref: "y", text, showarrow: false, textangle: (-angle * 180) / Math.PI,
        xanchor: "center", yanchor: "middle", xshift: -9 * Math.sin(angle), yshift: 9 * Math.cos(angle),
        font: { size: 11, color: roof.primary ? colours.ink.text : colours.ink.muted },
      });
    }
    // Not where the name of a roof stands.
    const clear = (ridge) => {
      const x = (log(ridge.intensity) - range.x[0]) * perX, y = (log(ridge.flop_per_s) - range.y[0]) * perY, width = textWidth(ridge.text);
      return taken.every((other) => Math.abs(other.y - y) > 20 || Math.abs(other.x - x + width / 2) > (other.width + width) / 2);
    };
    for (const ridge of narrow() ? [] : data.ridges.slice(0, 1).filter(clear)) {
      texts.push({
        x: log(ridge.intensity), y: log(ridge.flop_per_s), text: ridge.text, showarrow: false, xanchor: "right", yanchor: "bottom",
        xshift: -4, yshift: 3, font: { size: 11, color: colours.ink.muted },
      });
    }
    return texts;
  }

  function fitting(inner) {
    return (wide() ? data.wide_labels : data.labels).find((candidate) => inner[0] >= candidate.least_width);
  }
  function namesOf(fit) {
    return fit.labels.filter((label) => !hidden.has(data.points[label.point].category));
  }
  function names(colours, inner) {
    const fit = fitting(inner);
    ranks.hidden = fit.least_width > 0 || !fit.labels.length;
    return namesOf(fit).map((label) => ({
      x: log(label.x), y: log(label.y), xref: "x", yref: "y", text: label.text, showarrow: false, xanchor: "center", yanchor: "middle",
      font: { size: 11, color: colours.ink.text }, borderpad: 0,
    }));
  }
  // Lines from the points to their names: to the middle of the side that faces the point, or to the nearest place above or below.
  function leaders(inner, range) {
    const lines = { x: [], y: [] };
    for (const label of namesOf(fitting(inner))) {
      const point = data.points[label.point];
      const at = (x, y) => [pixel(log(x), range.x, inner[0]), pixel(log(y), range.y, inner[1])];
      const [x, y] = at(point.x, point.y);
      const [middleX, middleY] = at(label.x, label.y);
      const half = [plain(label.text).length * 3.1 + 2, 7];
      const nearX = Math.min(Math.max(x, middleX - half[0]), middleX + half[0]);
      const nearY = Math.min(Math.max(y, middleY - half[1]), middleY + half[1]);
      const end = [nearX, Math.abs(x - nearX) >= Math.abs(y - nearY) ? middleY : nearY];
      const length = Math.hypot(end[0] - x, end[1] - y), radius = diameter(point) / 2;
      if (length < radius + 3) continue;
      const value = (px, py) => [
        Math.pow(10, range.x[0] + (px / inner[0]) * (range.x[1] - range.x[0])),
        Math.pow(10, range.y[0] + (py / inner[1]) * (range.y[1] - range.y[0])),
      ];
      for (const [vx, vy] of [value(x + ((end[0] - x) * radius) / length, y + ((end[1] - y) * radius) / length), value(...end)]) {
        lines.x.push(vx);
        lines.y.push(vy);
      }
      lines.x.push(null);
      lines.y.push(null);
    }
    return lines;
  }
  // How many characters are seen of a text with entities.
  function plain(text) {
    return text.replace(/&(?:lt|gt|amp|quot|#\w+);/g, "-");
  }
  // The name of the ring: at the first corner where it meets no other text, or nowhere; the note below the chart says it too.
  function ringName(colours, inner, range, others) {
    if (!data.ring) return [];
    const at = (x, y) => [pixel(x, range.x, inner[0]), pixel(y, range.y, inner[1])];
    const middles = others.filter((text) => !text.textangle).map((text) => {
      const [x, y] = at(text.x, text.y);
      const half = plain(text.text).length * 3 + 6;
      return [x + (text.xshift || 0) - (text.xanchor === "right" ? half : 0), y + (text.yshift || 0), half];
    });
    const [x, y] = at(log(data.ring.intensity), log(data.ring.flop_per_s));
    const half = data.ring.text.length * 3 + 4;
    const spots = data.points.filter((point) => !hidden.has(point.category)).map((p) => [...at(log(p.x), log(p.y)), diameter(p) / 2]);
    const sides = data.ring.left ? [-1, 1] : [1, -1];
    const corners = [-14, 14, 0].flatMap((up) => sides.map((side) => [side * ((up ? 12 : 16) + half), up]));
    const apart = corners.filter(([right, up]) =>
      Math.abs(x + right - inner[0] / 2) < inner[0] / 2 - half &&
      middles.every((other) => Math.abs(other[0] - x - right) > other[2] + half || Math.abs(other[1] - y - up) > 15));
    const clear = ([right, up]) => spots.every((spot) =>
      Math.hypot(Math.max(0, Math.abs(spot[0] - x - right) - half), Math.max(0, Math.abs(spot[1] - y - up) - 7)) >= spot[2]);
    const free = apart.find(clear) || apart[0];
    if (!free) return [];
    return [{
      x: log(data.ring.intensity), y: log(data.ring.flop_per_s), text: data.ring.text, showarrow: false, xanchor: "center", yanchor: "middle",
      xshift: free[0], yshift: free[1], font: { size: 11, color: colours.ink.text },
    }];
  }

  function minor(ticks) {
    return { tickmode: "array", tickvals: ticks.flatMap((tick) => [2, 3, 4, 5, 6, 7, 8, 9].map((n) => n * tick.value)), ticks: "outside", ticklen: 3 };
  }
  function axis(title, ticks, range, ink) {
    return {
      type: "log", title: { text: title, font: { size: 12 }, standoff: 8 }, range, tickmode: "array", tickvals: ticks.map((t) => t.value),
      ticktext: ticks.map((t) => t.text), gridcolor: ink.grid, linecolor: ink.line, zeroline: false, ticks: "outside", ticklen: 5,
      tickcolor: ink.line, minor: { ...minor(ticks), tickcolor: ink.grid }, showline: true,
    };
  }
  function layout(colours) {
    const { width, height, margin, inner } = size();
    const range = axisRanges();
    const ink = colours.ink;
    const named = names(colours, inner);
    const texts = roofTexts(colours, inner, range, named).concat(named);
    return {
      width, height, margin, showlegend: false, hovermode: "closest", hoverdistance: 12, dragmode: narrow() ? false : "zoom",
      paper_bgcolor: ink.page, plot_bgcolor: ink.page, font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink.text },
      hoverlabel: { bgcolor: ink.panel, font: { color: ink.text, size: 12 }, align: "left", namelength: 0 },
      xaxis: axis("arithmetic intensity, FLOP/byte", data.x_ticks, range.x, ink),
      yaxis: axis(data.y_unit, data.y_ticks, range.y, ink),
      annotations: texts.concat(ringName(colours, inner, range, texts)),
    };
  }
  function draw() {
    const colours = data.colours[chartTheme()];
    return Plotly.react(place, traces(colours), layout(colours), {
      displaylogo: false, scrollZoom: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    });
  }

  keepDrawn(place, draw);
  place.on("plotly_relayout", (change) => {
    if (change["xaxis.autorange"]) return;
    if (!("xaxis.range[0]" in change || "yaxis.range[0]" in change)) return;
    ranges = { x: place.layout.xaxis.range.slice(), y: place.layout.yaxis.range.slice() };
    draw();
  });
  place.on("plotly_doubleclick", () => { ranges = null; draw(); return false; });
  for (const box of document.querySelectorAll("input[data-roofs]")) {
    box.addEventListener("change", () => {
      if (box.checked) shown.add(box.dataset.roofs); else shown.delete(box.dataset.roofs);
      ranges = null;
      draw();
    });
  }
  for (const chip of document.querySelectorAll("button[data-category]")) {
    chip.addEventListener("click", () => {
      const seen = chip.getAttribute("aria-pressed") === "false";
      chip.setAttribute("aria-pressed", String(seen));
      if (seen) hidden.delete(chip.dataset.category); else hidden.add(chip.dataset.category);
      draw();
    });
  }
});
