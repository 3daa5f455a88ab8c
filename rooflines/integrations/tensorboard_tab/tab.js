// The tab: the list of runs at the left, the page of the chosen run or the comparison of two at the right. Names come from files, so
// the document is built of text only. The page is in a frame without the rights of this origin.
// The list comes by name. What is not known is last.
const ORDERS = {
  "newest first": (run) => -when(run), "by name": () => 0, "shortest step first": (run) => run.step_s ?? Infinity,
  "lowest efficiency first": (run) => run.efficiency ?? Infinity,
};
const STATES = { recording: "being recorded", waiting: "being analyzed", failed: "cannot be analyzed", large: "analyzed when opened" };
const KINDS = { run: "run", program: "monitored program", trace: "trace", ranks: "several ranks" };

let found = { runs: [] }, seen = "", shown = "";
let chosen = { run: "", with: "", view: "" }, ticked = [];

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
const filter = element("input", { type: "search", placeholder: "Filter by name, device, verdict, state", ariaLabel: "Filter runs", spellcheck: false });
const order = element("select", { ariaLabel: "Order" }, ...Object.keys(ORDERS).map((name) => new Option(name)));
const count = element("p", { role: "status" }), list = element("ul", { ariaLabel: "Runs" });
const title = element("a", { title: "Open in a new tab", target: "_blank", rel: "noopener" }), heading = element("h1", {}, title), main = element("main");

// --- the list

// When it was recorded; a trace does not say, so that of its file.
const when = (run) => Date.parse(run.created) || run.changed_ns / 1e6;
function facts(run) {
  const date = new Date(when(run)).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const status = run.status && run.status !== "complete" ? run.status : STATES[run.state];
  const size = run.state === "large" && `${(run.bytes / 1e6).toFixed(1)} MB`;
  return [status, run.name.split("/").slice(0, -1).join("/"), run.device, date, KINDS[run.kind], size].filter(Boolean).join(" · ");
}
// The step times of all runs of the same workload and device, the oldest first, with a point at this one; the line begins at 0.
const SPARK = { width: 72, height: 16, margin: 3 };
function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function spark(run) {
  const alike = found.runs.filter((one) => one.step_s && one.subject === run.subject).sort((a, b) => when(a) - when(b));
  if (!run.step_s || alike.length < 2) return [];
  const { width, height, margin } = SPARK, most = Math.max(...alike.map((one) => one.step_s));
  const place = (at) => [margin + (width - 2 * margin) * at / (alike.length - 1), height - margin - (height - 2 * margin) * alike[at].step_s / most];
  const [x, y] = place(alike.indexOf(run));
  const picture = drawn("svg", { class: "spark", width, height, role: "img", "aria-label": `step ${alike.indexOf(run) + 1} of ${alike.length} runs` });
  picture.append(drawn("title", {}), drawn("polyline", { points: alike.map((_, at) => place(at)).join(" ") }), drawn("circle", { cx: x, cy: y, r: 2.5 }));
  picture.firstChild.textContent = `Step times of ${alike.length} runs of ${run.subject}, the oldest first`;
  return [picture];
}
function row(run) {
  const texts = { figures: [run.step, run.efficiency_text].filter(Boolean).join(" · "), words: run.error ?? run.verdict ?? "", facts: facts(run) };
  const button = element("button", { title: run.name, id: `open ${run.name}` }, element("b", { textContent: run.name.split("/").pop() }), ...spark(run),
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
  const matching = found.runs.filter((run) => words.every((word) => `${run.name} ${run.verdict} ${run.error} ${facts(run)}`.toLowerCase().includes(word)));
  const focused = document.activeElement.id, { scrollTop } = list;
  list.replaceChildren(...matching.sort((a, b) => value(a) - value(b)).map(row));
  list.scrollTop = scrollTop;
  document.getElementById(focused)?.focus({ preventScroll: true });
  const waiting = found.runs.filter((run) => run.state === "waiting").length;
  count.textContent = `${matching.length} of ${found.runs.length} shown${waiting ? `, ${waiting} being analyzed` : ""}. Tick two to compare them.`;
  if (found.cut) count.textContent += " The log directory holds more than is searched.";
}
list.addEventListener("keydown", (event) => {
  const next = event.target.closest("li")[{ ArrowDown: "nextSibling", ArrowUp: "previousSibling" }[event.key]];
  if (next) event.preventDefault();
  next?.lastChild.focus();
});

// --- the page

function choose(run, other = "", section = "") {
  chosen = { run, with: other, view: section };
  const { location, history } = window.parent;
  const parts = new URLSearchParams(Object.entries(chosen).filter((part) => part[1]).map(([key, value]) => [`p.rooflines.${key}`, value]));
  if (location.hash.startsWith("#rooflines")) history.replaceState(history.state, "", `#rooflines&${parts}`);
  draw();
  list.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
  show();
}
async function show() {
  const names = [chosen.run, chosen.with].filter(Boolean), sources = names.map((name) => found.runs.find((run) => run.name === name));
  // While it is recorded, its page says so and no more.
  const stamps = sources.map((source) => source && (source.recording || [source.changed_ns, source.bytes]));
  const query = new URLSearchParams([...names.map((name) => ["run", name]), ["stamps", stamps], ["theme", document.documentElement.dataset.theme]]);
  const url = `page?${query}#${chosen.view}`;
  if (!seen || !chosen.run || url === shown) return;
  shown = url;
  title.href = url;
  title.textContent = chosen.with ? `A: ${chosen.run} · B: ${chosen.with}` : chosen.run;
  say("Analyzing. A large trace can take a minute.");
  const answer = await fetch(url).catch(() => undefined), text = await answer?.text() ?? "TensorBoard does not answer.";
  if (url !== shown) return;
  if (!answer) shown = ""; // the next poll tries again
  if (!answer?.headers.get("Content-Type").startsWith("text/html")) return void say(text);
  // A new frame: another address of the old one would be a step in the history of the browser.
  main.replaceChildren(heading, element("iframe", { title: "Report", sandbox: "allow-scripts allow-downloads", src: url }));
}
function say(text) {
  main.replaceChildren(heading, element("p", { role: "status", textContent: text }));
}

// --- following the log directory and TensorBoard

async function poll() {
  const text = await (await fetch("runs")).text();
  if (text !== seen) {
    found = JSON.parse(text);
    seen = text;
    draw();
  }
  const first = list.querySelector("li.done > button");
  if (chosen.run) show();
  else if (first) choose(first.title);
  else if (found.runs.length) say("Choose a run.");
  else say(found.searching ? "Searching the log directory." : `No runs or traces in ${found.root} yet. They appear here when they are recorded.`);
}
function paint() {
  document.documentElement.dataset.theme = window.parent.document.body.classList.contains("dark-mode") ? "dark" : "light";
  show();
}
// The choice is in TensorBoard's address: #rooflines&p.rooflines.run=NAME
function follow() {
  const parts = new URLSearchParams(window.parent.location.hash.slice(1));
  const [run, other, section] = ["run", "with", "view"].map((key) => parts.get(`p.rooflines.${key}`) ?? "");
  if (!run) return;
  ticked = other ? [run, other] : [];
  choose(run, other, section);
}
export async function render() {
  document.title = "Rooflines";
  document.documentElement.lang = "en";
  document.head.append(element("link", { rel: "stylesheet", href: "tab.css" }));
  document.body.append(element("nav", {}, element("div", { className: "tools" }, filter, order, count), list), main);
  for (const tool of [filter, order]) tool.addEventListener("input", draw);
  new MutationObserver(paint).observe(window.parent.document.body, { attributeFilter: ["class"] });
  window.parent.addEventListener("hashchange", follow);
  say("Searching the log directory.");
  follow();
  paint();
  for (;;) {
    if (!document.hidden) await poll().catch(() => undefined); // TensorBoard is being restarted
    await new Promise((resolve) => setTimeout(resolve, 3000));
  }
}
