// The tab: the list of runs at the left, the page of the chosen run or the comparison of two at the right. Names come from files, so
// the document is built of text only. The page is in a frame without the rights of this origin.
const POLL_MS = 3000;
const KEYS = ["run", "with", "view"];
// The list comes by name. What is not known is last.
const ORDERS = {
  "newest first": (run) => -run.changed_s, "by name": () => 0, "shortest step first": (run) => run.step_s ?? Infinity,
  "lowest efficiency first": (run) => run.efficiency ?? Infinity,
};
const STATES = { recording: "being recorded", waiting: "being analyzed", failed: "cannot be analyzed", large: "analyzed when opened" };
const KINDS = { run: "run", program: "monitored program", trace: "trace", ranks: "several ranks" };

let found = { runs: [] }, seen = "", shown = "";
let chosen = read(), ticked = chosen.with ? [chosen.run, chosen.with] : [];

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
const filter = element("input", { type: "search", placeholder: "Filter by name, device, verdict, state", ariaLabel: "Filter runs", spellcheck: false });
const order = element("select", { ariaLabel: "Order" }, ...Object.keys(ORDERS).map((name) => new Option(name)));
const count = element("p", { role: "status" }), list = element("ul", { ariaLabel: "Runs" });
const title = element("strong"), message = element("p", { role: "status" });
const alone = element("a", { textContent: "Open in a new tab", target: "_blank", rel: "noopener" });
const page = element("iframe", { title: "Report" });
page.setAttribute("sandbox", "allow-scripts allow-downloads");

// --- what is chosen, in TensorBoard's address: #rooflines&p.rooflines.run=NAME

function read() {
  const parts = new URLSearchParams(window.parent.location.hash.slice(1));
  return Object.fromEntries(KEYS.map((key) => [key, parts.get(`p.rooflines.${key}`) ?? ""]));
}
function theme() {
  return window.parent.document.body.classList.contains("dark-mode") ? "dark" : "light";
}

// --- the list

function facts(run) {
  const when = new Date(run.changed_s * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const status = run.status && run.status !== "complete" ? run.status : STATES[run.state];
  const size = run.state === "large" && `${Math.round(run.bytes / 1e6)} MB`;
  return [status, run.name.split("/").slice(0, -1).join("/"), run.device, when, KINDS[run.kind], size].filter(Boolean).join(" · ");
}
function row(run) {
  const figures = [run.step, run.efficiency_text].filter(Boolean).join(" · ");
  const texts = { figures, words: run.error ?? run.verdict ?? "", facts: facts(run) };
  const button = element("button", { title: run.name, id: `open ${run.name}` }, element("b", { textContent: run.name.split("/").pop() }),
    ...Object.entries(texts).map(([className, textContent]) => element("span", { className, textContent })));
  button.addEventListener("click", () => { ticked = []; choose(run.name); });
  const tick = element("input", { type: "checkbox", id: `tick ${run.name}`, ariaLabel: `Compare ${run.name}`,
    checked: ticked.includes(run.name), disabled: !run.comparable });
  tick.addEventListener("change", () => {
    ticked = ticked.filter((name) => name !== run.name).concat(tick.checked ? [run.name] : []).slice(-2);
    if (ticked.length === 2) choose(...ticked);
    else if (chosen.with) choose(ticked[0]);
    else draw();
  });
  return element("li", { className: run.state, ariaCurrent: [chosen.run, chosen.with].includes(run.name) }, tick, button);
}
function draw() {
  const words = filter.value.toLowerCase().split(/\s+/), value = ORDERS[order.value];
  const shown = found.runs.filter((run) => words.every((word) => `${run.name} ${run.verdict} ${run.error} ${facts(run)}`.toLowerCase().includes(word)));
  const focused = document.activeElement.id, { scrollTop } = list;
  list.replaceChildren(...shown.sort((a, b) => value(a) - value(b)).map(row));
  list.scrollTop = scrollTop;
  document.getElementById(focused)?.focus({ preventScroll: true });
  const waiting = found.runs.filter((run) => run.state === "waiting").length;
  count.textContent = `${shown.length} of ${found.runs.length} shown${waiting ? `, ${waiting} being analyzed` : ""}. Tick two to compare them.`;
  if (found.cut) count.textContent += " The log directory holds more than is searched.";
}
list.addEventListener("keydown", (event) => {
  const next = event.target.closest("li")[{ ArrowDown: "nextSibling", ArrowUp: "previousSibling" }[event.key]];
  if (next) event.preventDefault();
  next?.lastChild.focus();
});

// --- the page

function choose(run, other = "") {
  chosen = { run, with: other, view: "" };
  const { location, history } = window.parent;
  const parts = new URLSearchParams(KEYS.filter((key) => chosen[key]).map((key) => [`p.rooflines.${key}`, chosen[key]]));
  if (location.hash.startsWith("#rooflines")) history.replaceState(history.state, "", `#rooflines&${parts}`);
  draw();
  list.querySelector("[aria-current=true]").scrollIntoView({ block: "nearest" });
  show();
}
async function show() {
  const names = [chosen.run, chosen.with].filter(Boolean), stamps = names.map((name) => found.runs.find((run) => run.name === name)?.stamp);
  const query = new URLSearchParams([...names.map((name) => ["run", name]), ["stamps", stamps], ["theme", theme()]]);
  const url = `page?${query}#${chosen.view}`;
  if (url === shown || !names.length) return;
  shown = url;
  title.textContent = chosen.with ? `A: ${chosen.run} · B: ${chosen.with}` : chosen.run;
  say("Analyzing. A large trace can take a minute.");
  try {
    const response = await fetch(url), text = await response.text();
    if (url !== shown) return;
    if (!response.headers.get("Content-Type").startsWith("text/html")) return void say(text);
    page.contentWindow.location.replace(url); // another src would be a step in the history of the browser
    alone.href = url;
    say("");
  } catch (error) {
    if (url !== shown) return;
    shown = "";
    say("TensorBoard does not answer.");
  }
}
function say(text) {
  message.textContent = text;
  page.hidden = alone.hidden = Boolean(text);
}

// --- following the log directory and TensorBoard

async function poll() {
  const text = await (await fetch("runs")).text();
  if (text !== seen) {
    found = JSON.parse(text);
    seen = text;
    draw();
  }
  const first = list.querySelector("li.done > button, li.waiting > button");
  if (chosen.run) show();
  else if (first) choose(first.title);
  else if (found.runs.length) say("Choose a run.");
  else say(found.searching ? "Searching the log directory." : `No runs or traces in ${found.root} yet. They appear here when they are recorded.`);
}
function paint() {
  document.documentElement.dataset.theme = theme();
  if (seen) show();
}
function follow() {
  const linked = read();
  if (!linked.run || KEYS.every((key) => linked[key] === chosen[key])) return;
  chosen = linked;
  ticked = chosen.with ? [chosen.run, chosen.with] : [];
  draw();
  show();
}
export async function render() {
  document.documentElement.lang = "en";
  document.head.append(element("link", { rel: "stylesheet", href: "tab.css" }));
  document.body.append(
    element("nav", {}, element("div", { className: "tools" }, filter, order, count), list),
    element("main", {}, element("div", { className: "bar" }, title, alone), message, page));
  for (const tool of [filter, order]) tool.addEventListener("input", draw);
  new MutationObserver(paint).observe(window.parent.document.body, { attributeFilter: ["class"] });
  window.parent.addEventListener("hashchange", follow);
  say("Searching the log directory.");
  paint();
  for (;;) {
    if (!document.hidden) await poll().catch(() => undefined); // TensorBoard is being restarted
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
