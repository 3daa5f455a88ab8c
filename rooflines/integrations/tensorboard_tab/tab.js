// The tab: the list of runs at the left, the page of the chosen run or the comparison of two at the right. Names come from files, so
// the document is built of text only. The page is in a frame without the rights of this origin.
const POLL_MS = 3000;
const KEYS = ["run", "with", "view"];
const SORTS = {
  newest: (run) => -run.changed_s, name: (run) => run.name.toLowerCase(), "step time": (run) => run.step_s, state: (run) => run.state,
  efficiency: (run) => run.efficiency, device: (run) => run.device?.toLowerCase(), verdict: (run) => run.verdict?.toLowerCase(),
};
const STATES = { recording: "being recorded", waiting: "being analyzed", failed: "cannot be analyzed", large: "analyzed when opened" };
const KINDS = { run: "run", program: "monitored program", trace: "trace", ranks: "several ranks" };

let runs = [], tag = "", shown = "", request = null;
let chosen = read(), ticked = chosen.with ? [chosen.run, chosen.with] : [];

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
const filter = element("input", { type: "search", placeholder: "Filter by name, device, verdict, state", ariaLabel: "Filter runs", spellcheck: false });
const sorting = element("select", { ariaLabel: "Sort by" }, ...Object.keys(SORTS).map((name) => new Option(`sort by ${name}`, name)));
const reversed = element("button", { textContent: "↓", ariaLabel: "Reverse the order", ariaPressed: "false" });
const count = element("p", { role: "status" }), list = element("ul", { ariaLabel: "Runs" });
const title = element("strong"), message = element("p", { role: "status" });
const view = element("select", { ariaLabel: "Go to a section" });
const swap = element("button", { textContent: "Swap A and B" });
const alone = element("a", { textContent: "Open in a new tab", target: "_blank", rel: "noopener" });
let page = element("iframe", { title: "Report" });
page.setAttribute("sandbox", "allow-scripts allow-downloads");

// --- what is chosen, in TensorBoard's address: #rooflines&p.rooflines.run=NAME. Where its frame may not be read, only in this tab.

function read() {
  let parts = [];
  try {
    parts = window.parent.location.hash.slice(1).split("&").map((part) => part.split("=").map(decodeURIComponent));
  } catch (error) { /* another origin, or no address of ours */ }
  const found = new Map(parts);
  return Object.fromEntries(KEYS.map((key) => [key, found.get(`p.rooflines.${key}`) || ""]));
}
function remember() {
  try {
    const parts = window.parent.location.hash.slice(1).split("&").filter((part) => part && !part.startsWith("p.rooflines."));
    if (parts[0] !== "rooflines") return;
    for (const key of KEYS) if (chosen[key]) parts.push(`p.rooflines.${key}=${encodeURIComponent(chosen[key])}`);
    window.parent.history.replaceState(window.parent.history.state, "", `#${parts.join("&")}`);
  } catch (error) { /* another origin */ }
}
function theme() {
  try {
    return window.parent.document.body.classList.contains("dark-mode") ? "dark" : "light";
  } catch (error) {
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
}

// --- the list

function facts(run) {
  const when = new Date(run.changed_s * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const status = run.status && run.status !== "complete" ? run.status : STATES[run.state];
  const size = run.state === "large" ? `${(run.bytes / 1e6).toLocaleString(undefined, { maximumSignificantDigits: 3 })} MB` : "";
  return [status, run.name.split("/").slice(0, -1).join("/"), run.device, when, KINDS[run.kind], size].filter(Boolean).join(" · ");
}
function row(run) {
  const figures = [run.step && `${run.step} a step`, run.efficiency_text && `efficiency ${run.efficiency_text}`].filter(Boolean).join(" · ");
  const texts = { figures, words: run.error || run.verdict || "", facts: facts(run) };
  const button = element("button", { title: run.name }, element("b", { textContent: run.name.split("/").pop() }),
    ...Object.entries(texts).map(([className, textContent]) => element("span", { className, textContent })));
  button.dataset.run = run.name;
  button.addEventListener("click", () => { ticked = []; choose(run.name); });
  const tick = element("input", { type: "checkbox", checked: ticked.includes(run.name), ariaLabel: `Compare ${run.name}`, disabled: !run.comparable });
  tick.addEventListener("change", () => {
    ticked = ticked.filter((name) => name !== run.name).concat(tick.checked ? [run.name] : []).slice(-2);
    if (ticked.length === 2) choose(...ticked);
    else if (chosen.with) choose(ticked[0]);
    else draw();
  });
  const isChosen = run.name === chosen.run || run.name === chosen.with;
  if (isChosen) button.setAttribute("aria-current", "true");
  return element("li", { className: `${isChosen ? "chosen " : ""}${run.state}` }, tick, button);
}
function draw() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const value = SORTS[sorting.value], sign = reversed.ariaPressed === "true" ? -1 : 1;
  const found = runs.filter((run) => words.every((word) => `${run.name} ${run.verdict} ${run.error} ${facts(run)}`.toLowerCase().includes(word)));
  found.sort((a, b) => {
    const x = value(a) ?? "", y = value(b) ?? "";
    // What is not known comes last in either direction.
    return x === "" || y === "" ? (x === "") - (y === "") : (x < y ? -1 : x > y ? 1 : 0) * sign;
  });
  const focused = document.activeElement, { scrollTop } = list, kept = focused.closest("li")?.lastChild.dataset.run;
  list.replaceChildren(...found.map(row));
  list.scrollTop = scrollTop;
  const again = [...list.children].find((item) => item.lastChild.dataset.run === kept);
  again?.[focused.type === "checkbox" ? "firstChild" : "lastChild"].focus({ preventScroll: true });
  const waiting = runs.filter((run) => run.state === "waiting").length;
  count.textContent = `${found.length} of ${runs.length} shown${waiting ? `, ${waiting} being analyzed` : ""}. Tick two to compare them.`;
}
list.addEventListener("keydown", (event) => {
  const items = [...list.children], at = items.findIndex((item) => item.contains(document.activeElement));
  const next = items[at + { ArrowDown: 1, ArrowUp: -1 }[event.key]];
  if (next) event.preventDefault();
  next?.lastChild.focus();
});

// --- the page

function choose(run, other = "", section = "") {
  chosen = { run, with: other, view: section };
  remember();
  draw();
  show();
}
async function show() {
  const names = [chosen.run, chosen.with].filter(Boolean), found = names.map((name) => runs.find((run) => run.name === name));
  const recording = found.some((run) => run?.state === "recording");
  const wanted = JSON.stringify([names, recording || found.map((run) => run?.stamp), theme()]);
  if (wanted === shown || !names.length) return;
  shown = wanted;
  request?.abort();
  request = new AbortController();
  title.textContent = chosen.with ? `A: ${chosen.run} · B: ${chosen.with}` : chosen.run;
  list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  if (found.includes(undefined)) return void say("This run is not in the log directory.", true);
  if (recording) return void say("This run is being recorded. Its report appears when it is complete.");
  say("Analyzing. A large trace can take a minute.");
  const { signal } = request, url = `page?${new URLSearchParams([...names.map((name) => ["run", name]), ["theme", theme()]])}`;
  try {
    const response = await fetch(url, { signal }), text = await response.text();
    if (!response.headers.get("Content-Type").startsWith("text/html")) return void say(text, true);
    // Scripts of a parsed document do not run; this one is only read for its sections.
    const sections = [...new DOMParser().parseFromString(text, "text/html").querySelectorAll("main > section[id]")];
    view.replaceChildren(...sections.map((part) => new Option(part.querySelector("h2")?.firstChild.textContent.trim() || "Verdict", part.id)));
    view.value = chosen.view.split("?")[0] || "verdict";
    // A new frame: another address of the old one would be a step in the history of the browser.
    const fresh = page.cloneNode();
    fresh.src = url + (chosen.view ? `#${encodeURI(chosen.view)}` : "");
    page.replaceWith(fresh);
    page = fresh;
    alone.href = url;
    say("");
  } catch (error) {
    if (signal.aborted) return;
    shown = "";
    say("TensorBoard does not answer.", true);
  }
}
function say(text, failed = false) {
  message.textContent = text;
  message.className = failed ? "failed" : "";
  message.hidden = !text;
  page.hidden = view.hidden = alone.hidden = Boolean(text);
  swap.hidden = Boolean(text) || !chosen.with;
}
view.addEventListener("change", () => {
  chosen.view = view.value;
  remember();
  page.src = `${page.src.split("#")[0]}#${encodeURI(view.value)}`;
});
swap.addEventListener("click", () => { ticked.reverse(); choose(chosen.with, chosen.run, chosen.view); });

// --- following the log directory and TensorBoard

async function poll() {
  const found = await (await fetch(`runs?seen=${tag}`)).json();
  if (!found.runs) return void (shown || show());
  ({ runs, tag } = found);
  draw();
  if (found.cut) count.textContent += " The log directory holds more than is searched.";
  const first = list.querySelector("li:not(.large, .recording, .failed) > button");
  if (chosen.run) show();
  else if (first) choose(first.dataset.run);
  else if (runs.length) say("Choose a run.");
  else say(found.searching ? "Searching the log directory." : `No runs or traces in ${found.roots.join(", ")} yet. They appear here when they are recorded.`);
}
function paint() {
  document.documentElement.dataset.theme = theme();
  if (runs.length) show();
}
function follow() {
  const found = read();
  if (!found.run || KEYS.every((key) => found[key] === chosen[key])) return;
  ticked = found.with ? [found.run, found.with] : [];
  shown = "";
  choose(found.run, found.with, found.view);
}
export async function render() {
  document.documentElement.lang = "en";
  document.head.append(element("link", { rel: "stylesheet", href: "tab.css" }));
  document.body.append(
    element("nav", {}, element("div", { className: "tools" }, filter, sorting, reversed, count), list),
    element("main", {}, element("div", { className: "bar" }, title, view, swap, alone), message, page));
  for (const tool of [filter, sorting]) tool.addEventListener("input", draw);
  reversed.addEventListener("click", () => { reversed.ariaPressed = String(reversed.ariaPressed === "false"); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  try {
    new MutationObserver(paint).observe(window.parent.document.body, { attributeFilter: ["class"] });
    window.parent.addEventListener("hashchange", follow);
  } catch (error) { /* another origin */ }
  say("Searching the log directory.");
  paint();
  for (;;) {
    if (!document.hidden) await poll().catch(() => undefined); // TensorBoard is being restarted
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
