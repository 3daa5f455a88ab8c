// The tab: the list of runs at the left, the page of the chosen run or the comparison of two at the right. Names come from files, so
// the document is built of text nodes only. The page is in a frame without the rights of this origin.
const POLL_MS = 3000;
const KEYS = ["run", "with", "view"];
const SORTS = {
  newest: (run) => -run.changed_s,
  name: (run) => run.name.toLowerCase(),
  "step time": (run) => run.step_s ?? null,
  efficiency: (run) => run.efficiency ?? null,
  device: (run) => run.device?.toLowerCase() || null,
  verdict: (run) => run.verdict?.toLowerCase() || null,
  state: (run) => run.state,
};
const STATES = {
  recording: "being recorded", analyzing: "being analyzed", waiting: "waiting to be analyzed", failed: "cannot be analyzed",
  large: "analyzed when opened",
};
const KINDS = { run: "run", program: "monitored program", trace: "trace", ranks: "several ranks" };

let runs = [], tag = "", chosen = read(), shown = "", request = null;
let ticked = chosen.with ? [chosen.run, chosen.with] : [];

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const filter = element("input", { type: "search", placeholder: "Filter by name, device, verdict, state", ariaLabel: "Filter runs", autocomplete: "off", spellcheck: false });
const sorting = element("select", { ariaLabel: "Sort by" }, ...Object.keys(SORTS).map((name) => element("option", { value: name, textContent: `sort by ${name}` })));
const reversed = element("button", { className: "small", textContent: "↓", title: "Reverse the order", ariaLabel: "Reverse the order", ariaPressed: "false" });
const count = element("p", { role: "status" });
const list = element("ul", { ariaLabel: "Runs" });
const title = element("strong");
const view = element("select", { ariaLabel: "Go to a section", hidden: true });
const swap = element("button", { className: "small", textContent: "Swap A and B", hidden: true });
const alone = element("a", { textContent: "Open alone", target: "_blank", rel: "noopener", hidden: true });
const message = element("p", { role: "status" });
const page = element("iframe", { title: "Report", hidden: true });
page.setAttribute("sandbox", "allow-scripts allow-downloads");

// --- what is chosen, in TensorBoard's address (#rooflines&p.rooflines.run=NAME)

function address() {
  return new Map(window.parent.location.hash.slice(1).split("&").map((part) => part.split("=").map(decodeURIComponent)));
}
function read() {
  try {
    const found = address();
    return Object.fromEntries(KEYS.map((key) => [key, found.get(`p.rooflines.${key}`) || ""]));
  } catch (error) {
    return { run: "", with: "", view: "" };
  }
}
function remember() {
  try {
    const parts = window.parent.location.hash.slice(1).split("&").filter((part) => part && !part.startsWith("p.rooflines."));
    if (parts[0] !== "rooflines") return;
    for (const key of KEYS) if (chosen[key]) parts.push(`p.rooflines.${key}=${encodeURIComponent(chosen[key])}`);
    window.parent.history.replaceState(window.parent.history.state, "", `#${parts.join("&")}`);
  } catch (error) { /* a frame of another origin: the choice lasts as long as the tab */ }
}
function theme() {
  try {
    return window.parent.document.body.classList.contains("dark-mode") ? "dark" : "light";
  } catch (error) {
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
}

// --- the list

function size(bytes) {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
}
function facts(run) {
  const when = new Date(run.changed_s * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const status = run.status && run.status !== "complete" ? run.status : STATES[run.state];
  return [status, run.device, when, KINDS[run.kind], run.state === "large" ? size(run.bytes) : ""].filter(Boolean).join(" · ");
}
function row(run) {
  const figures = [run.step && `${run.step} a step`, run.efficiency_text && `efficiency ${run.efficiency_text}`].filter(Boolean).join(" · ");
  const button = element("button", { title: run.name },
    // Shortened at its beginning; the mark keeps the order of its characters.
    element("span", { className: "name" }, `\u200e${run.name}\u200e`),
    element("span", { className: "figures", textContent: figures, hidden: !figures }),
    element("span", { className: "words", textContent: run.error || run.verdict || "", hidden: !(run.error || run.verdict) }),
    element("span", { className: "facts", textContent: facts(run) }));
  button.dataset.run = run.name;
  const tick = element("input", { type: "checkbox", checked: ticked.includes(run.name), ariaLabel: `Compare ${run.name}`, title: "Tick two to compare them", disabled: !run.comparable });
  tick.addEventListener("change", () => {
    ticked = ticked.filter((name) => name !== run.name).concat(tick.checked ? [run.name] : []).slice(-2);
    if (ticked.length === 2) choose(ticked[0], ticked[1]);
    else if (chosen.with) choose(ticked[0] || chosen.run);
    else draw();
  });
  button.addEventListener("click", () => { ticked = []; choose(run.name); });
  const isChosen = run.name === chosen.run || run.name === chosen.with;
  if (isChosen) button.setAttribute("aria-current", "true");
  return element("li", { className: `${isChosen ? "chosen " : ""}${run.state}` }, tick, button);
}
function draw() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const value = SORTS[sorting.value], sign = reversed.ariaPressed === "true" ? -1 : 1;
  const found = runs.filter((run) => {
    const text = [run.name, run.verdict, run.error, facts(run)].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  found.sort((a, b) => {
    const x = value(a), y = value(b);
    // What is not known comes last in either direction.
    if (x === null || y === null) return (x === null) - (y === null);
    return (x < y ? -1 : x > y ? 1 : 0) * sign;
  });
  const { activeElement: focused } = document, { scrollTop } = list;
  const kept = focused?.closest("li")?.querySelector("button").dataset.run;
  list.replaceChildren(...found.map(row));
  list.scrollTop = scrollTop;
  const again = [...list.querySelectorAll("button")].find((button) => button.dataset.run === kept);
  if (again) (focused.type === "checkbox" ? again.previousSibling : again).focus({ preventScroll: true });
  const open = runs.filter((run) => run.state === "waiting" || run.state === "analyzing").length;
  count.textContent = `${found.length} of ${runs.length} shown${open ? `, ${open} being analyzed` : ""}. Tick two to compare them.`;
}
list.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], buttons = [...list.querySelectorAll("button")];
  const at = buttons.findIndex((button) => button.parentNode.contains(document.activeElement));
  if (!step || at < 0) return;
  event.preventDefault();
  buttons[Math.min(Math.max(at + step, 0), buttons.length - 1)].focus();
});

// --- the page

function choose(run, other = "", section = "") {
  chosen = { run, with: other, view: section };
  remember();
  draw();
  show();
}
function source(names) {
  return `page?${new URLSearchParams([...names.map((name) => ["run", name]), ["theme", theme()]])}`;
}
async function show() {
  const names = [chosen.run, chosen.with].filter(Boolean);
  const stamps = names.map((name) => runs.find((run) => run.name === name)).map((run) => run && `${run.stamp}${run.state === "recording"}`);
  const wanted = JSON.stringify([names, stamps, theme()]);
  if (wanted === shown || !names.length) return;
  shown = wanted;
  request?.abort();
  request = new AbortController();
  title.textContent = chosen.with ? `A: ${chosen.run}   B: ${chosen.with}` : chosen.run;
  const url = source(names), { signal } = request;
  say(stamps.includes(undefined) ? "This run is not in the log directory." : "Analyzing. A large trace can take a minute.");
  if (stamps.includes(undefined)) return;
  try {
    const response = await fetch(url, { signal });
    const text = await response.text();
    if (signal.aborted) return;
    if (!response.ok) return void say(text, true);
    // Scripts of a parsed document do not run; this one is only read for its sections.
    const sections = [...new DOMParser().parseFromString(text, "text/html").querySelectorAll("main > section[id]")];
    view.replaceChildren(...sections.map((part) => element("option", { value: part.id, textContent: part.querySelector("h2")?.textContent || "Verdict" })));
    view.value = sections.some((part) => part.id === chosen.view) ? chosen.view : "verdict";
    // Another run is not a step back in the history of the browser.
    const fresh = page.cloneNode();
    fresh.src = url + (chosen.view ? `#${encodeURIComponent(chosen.view)}` : "");
    document.querySelector("iframe").replaceWith(fresh);
    fresh.hidden = view.hidden = alone.hidden = false;
    message.hidden = true;
    swap.hidden = !chosen.with;
    alone.href = url;
  } catch (error) {
    if (signal.aborted) return;
    shown = "";
    say("TensorBoard does not answer.", true);
  }
}
function say(text, failed = false) {
  message.textContent = text;
  message.className = failed ? "failed" : "";
  message.hidden = false;
  document.querySelector("iframe").hidden = view.hidden = alone.hidden = swap.hidden = true;
}
view.addEventListener("change", () => {
  chosen.view = view.value;
  remember();
  const frame = document.querySelector("iframe");
  frame.src = `${frame.src.split("#")[0]}#${encodeURIComponent(view.value)}`;
});
swap.addEventListener("click", () => { ticked.reverse(); choose(chosen.with, chosen.run, chosen.view); });

// --- following the log directory and TensorBoard

async function poll() {
  try {
    const found = await (await fetch(`runs?seen=${tag}`)).json();
    if (found.runs) {
      ({ runs, tag } = found);
      draw();
      if (!runs.length) say(found.searching ? "Searching the log directory." : `No runs or traces in ${found.roots.join(", ")} yet. They appear here as soon as they are recorded.`);
      else if (!chosen.run) {
        const first = list.querySelector("li:not(.large, .recording, .failed) > button");
        first ? choose(first.dataset.run) : say("Choose a run.");
      } else show();
      if (found.cut) count.textContent += " The log directory holds more than is searched.";
    }
  } catch (error) { /* TensorBoard is being restarted */ }
}
function paint() {
  document.documentElement.dataset.theme = theme();
  if (runs.length) show();
}
function again() {
  const found = read();
  if (KEYS.every((key) => found[key] === chosen[key]) || !found.run) return;
  ticked = found.with ? [found.run, found.with] : [];
  choose(found.run, found.with, found.view);
}

export async function render() {
  document.documentElement.lang = "en";
  document.head.append(element("link", { rel: "stylesheet", href: "tab.css" }));
  document.body.append(
    element("nav", {}, element("div", { className: "tools" }, filter, sorting, reversed, count), list),
    element("main", {}, element("div", { className: "bar" }, title, view, swap, alone), message, page));
  filter.addEventListener("input", draw);
  sorting.addEventListener("change", draw);
  reversed.addEventListener("click", () => { reversed.ariaPressed = String(reversed.ariaPressed === "false"); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  try {
    new MutationObserver(paint).observe(window.parent.document.body, { attributeFilter: ["class"] });
    window.parent.addEventListener("hashchange", again);
  } catch (error) { /* a frame of another origin */ }
  paint();
  for (;;) {
    if (!document.hidden) await poll();
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
