// The timeline of the devices: rows that share the time. Which rows, lines and marks there are was decided in Python.
charts.push(function () {
  "use strict";
  const data = JSON.parse(document.getElementById("usage-data").textContent);
  const place = document.getElementById("usage-chart");
  const rowHeight = 84, rowGap = 30, top = 26, bottom = 40;
  let focus = data.focus;

  function size() {
    const width = printing ? 670 : place.clientWidth;
    const rows = data.rows.length;
    const height = top + rows * rowHeight + (rows - 1) * rowGap + bottom;
    return { width, height, margin: { l: 46, r: width < 560 ? 8 : 150, t: top, b: bottom } };
  }
  function significant(value) {
    return value === 0 ? "0" : Number(value.toPrecision(3)).toString();
  }
  // The share of the plot's height that a row fills, the first on top.
  function domain(index) {
    const whole = data.rows.length * rowHeight + (data.rows.length - 1) * rowGap;
    const high = 1 - (index * (rowHeight + rowGap)) / whole;
    return [Math.max(0, high - rowHeight / whole), high];
  }
  function suffix(index) {
    return index ? String(index + 1) : "";
  }

  function traces(ink) {
    const list = [];
    data.rows.forEach((row, index) => {
      // What is in focus lies on top.
      const lines = row.lines.slice().sort((one, other) => (one.device === focus) - (other.device === focus));
      for (const line of lines) {
        const strong = line.device === focus, second = line.second;
        list.push({
          type: "scatter", mode: "lines", x: line.x, y: line.y, xaxis: "x", yaxis: "y" + suffix(index),
          line: { color: strong ? ink.accent : ink.muted, width: strong ? 1.8 : 1, dash: second ? "dot" : "solid" },
          hovertemplate: line.y.map((value) => `${line.name}: ${significant(value)} ${row.unit}<extra></extra>`),
        });
      }
    });
    return list;
  }

  // Names at the right end of the lines, pushed apart; where there are too many for the row only those in focus.
  function names(ink, width) {
    if (width < 560) return [];
    const list = [];
    data.rows.forEach((row, index) => {
      const all = row.lines.map((line) => ({ line, y: ((line.y[line.y.length - 1] - row.bottom) / (row.top - row.bottom)) * rowHeight }));
      const shown = (all.length > 5 ? all.filter((one) => one.line.device === focus) : all).sort((one, other) => one.y - other.y);
      let least = 0;
      for (const one of shown) { one.at = Math.max(one.y, least); least = one.at + 13; }
      const over = Math.max(0, least - 13 - rowHeight);
      const [low, high] = domain(index);
      for (const one of shown) {
        list.push({
          xref: "paper", yref: "paper", x: 1, xanchor: "left", xshift: 6, y: low + ((one.at - over) / rowHeight) * (high - low),
          yanchor: "middle", showarrow: false, text: one.line.name,
          font: { size: 11, color: one.line.device === focus ? ink.accent : ink.muted },
        });
      }
    });
    return list;
  }

  function shapes(ink) {
    const list = [];
    data.rows.forEach((row, index) => {
      const [low, high] = domain(index);
      const field = { type: "rect", layer: "below", xref: "x", yref: "paper", y0: low, y1: high, line: { width: 0 } };
      if (data.window_text) list.push({ ...field, x0: data.window[0], x1: data.window[1], fillcolor: ink.band });
      for (const mark of data.window_text ? data.marks : []) {
        list.push({ type: "line", layer: "below", xref: "x", yref: "paper", x0: mark, x1: mark, y0: low, y1: high, line: { color: ink.line, width: 0.6 } });
      }
      for (const level of row.levels.filter((one) => one.device === focus)) {
        list.push({
          type: "line", xref: "paper", yref: "y" + suffix(index), x0: 0, x1: 1, y0: level.value, y1: level.value,
          line: { color: ink.text, width: 1, dash: "dash" },
        });
      }
      if (row.name === "clock") {
        for (const held of data.held.filter((one) => one.device === focus)) {
          list.push({ ...field, layer: "above", x0: held.begin, x1: held.end, y1: low + (high - low) * 0.07, fillcolor: ink.warning });
        }
      }
    });
    return list;
  }

  function layout(ink) {
    const { width, height, margin } = size();
    const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink.text };
    const last = data.rows.length - 1;
    const found = {
      width, height, margin, font, showlegend: false, hovermode: "x", hoverdistance: 30, dragmode: width < 560 ? false : "zoom",
      paper_bgcolor: ink.page, plot_bgcolor: ink.page, shapes: shapes(ink), annotations: names(ink, width),
      hoverlabel: { bgcolor: ink.panel, font: { color: ink.text, size: 12 }, align: "left", namelength: 0 },
      xaxis: {
        range: [data.begin, data.end], anchor: "y" + suffix(last), title: { text: data.time_text, font: { size: 12 }, standoff: 6 },
        gridcolor: ink.grid, linecolor: ink.line, tickcolor: ink.line, zeroline: false, showgrid: false, ticks: "outside", ticklen: 4,
        hoverformat: ".2f",
      },
    };
    data.rows.forEach((row, index) => {
      found["yaxis" + suffix(index)] = {
        domain: domain(index), range: [row.bottom, row.top], anchor: "x", fixedrange: true, nticks: 4, gridcolor: ink.grid, linecolor: ink.line,
        zeroline: false, ticks: "", tickfont: { size: 11, color: ink.muted },
      };
      found.annotations.push({
        xref: "paper", yref: "paper", x: 0, xanchor: "left", xshift: -38, y: domain(index)[1], yanchor: "bottom", yshift: 3, showarrow: false,
        text: row.unit ? `${row.name}, ${row.unit}` : row.name, font: { size: 12, color: ink.text },
      });
      for (const level of row.levels.filter((one) => one.device === focus)) {
        found.annotations.push({
          xref: "paper", yref: "y" + suffix(index), x: 0, xanchor: "left", xshift: 4, y: level.value, yanchor: "bottom", showarrow: false,
          text: `${level.text} ${significant(level.value)} ${row.unit}`, font: { size: 11, color: ink.muted },
        });
      }
    });
    return found;
  }

  function draw() {
    const ink = data.colours[chartTheme()];
    return Plotly.react(place, traces(ink), layout(ink), {
      displaylogo: false, scrollZoom: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    });
  }

  keepDrawn(place, draw);
  for (const chip of document.querySelectorAll("button[data-device]")) {
    chip.addEventListener("click", () => {
      focus = chip.dataset.device;
      for (const other of document.querySelectorAll("button[data-device]")) other.setAttribute("aria-pressed", String(other === chip));
      draw();
    });
  }
});
