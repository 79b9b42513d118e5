"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const library = unpack(document.getElementById("library").textContent);

/* Vega-Embed, from its gzipped text: a third of its size. */
async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const text = new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const script = document.createElement("script");
  script.textContent = await text;
  document.head.append(script);
  return window.vegaEmbed;
}

/* A frame's rows, without what is filtered out, and the ends of its value axis. */
function rowsOf(frame, off) {
  const there = (y) => y !== null && !(frame.positive && y <= 0);
  const point = (s, i, y) => ({ s, scheme: data.titles[s], color: `var(--c${s})`, x: frame.x[i], y });
  const runs = [], means = [];
  for (const [s, seed, ys, open] of frame.runs) {
    if (off.schemes.has(s) || off.seeds.has(seed)) continue;
    ys.forEach((y, i) => there(y) && runs.push({ ...point(s, i, y), seed, open }));
  }
  const shown = frame.means.filter(([s]) => !off.schemes.has(s));
  const all = [...runs.map((row) => row.y), ...shown.flatMap(([, , ys]) => ys.filter(there))];
  const least = Math.min(...all), most = Math.max(...all), room = 0.05 * (most - least) || 1;
  const ends = frame.span ?? (frame.positive ? [least / 1.15, most * 1.15] : [least - room, most + room]);
  const [lo, hi] = all.length ? ends : [0.1, 1];
  const within = (y, otherwise) => (y === null ? otherwise : Math.min(Math.max(y, lo), hi));
  for (const [s, n, ys, lows, highs] of shown)
    ys.forEach((y, i) => there(y) && means.push({ ...point(s, i, y), n, low: within(lows[i] ?? null, y), high: within(highs[i] ?? null, y) }));
  const marks = frame.marks.filter(({ s }) => !off.schemes.has(s));
  return { runs, means, marks, near: [...runs, ...means.map((row) => ({ ...row, seed: `mean of ${row.n}` }))], signals: { lo, hi, faint: Math.min(0.16, 0.45 / shown.length) } };
}

function filtered(group) {
  const off = (kind, as) => new Set([...group.querySelectorAll(`input[data-${kind}]:not(:checked)`)].map((box) => as(box.dataset[kind])));
  return { schemes: off("scheme", Number), seeds: off("seed", String) };
}

/* The height of a chart in pixels; one in rows is as high as these. */
const heightOf = (frame, { runs, means }) => frame.height ?? frame.row * new Set(means.length ? means.map(({ s }) => s) : runs.map(({ x }) => x)).size;

async function draw(figure) {
  const frame = data.frames[figure.dataset.frame], spec = structuredClone(data.specs[figure.dataset.spec]);
  const { signals, ...sets } = rowsOf(frame, filtered(figure.closest(".group")));
  spec.height = heightOf(frame, sets);
  spec.datasets = sets;
  for (const param of spec.params.filter(({ name }) => name in signals)) param.value = signals[param.name];
  const options = { mode: "vega-lite", renderer: "svg", actions: false, defaultStyle: false, ast: true, config: data.config, tooltip: tell, logLevel: 1 };
  figure.view = (await (await library)(figure.querySelector(".plot"), spec, options)).view;
}

function redraw(group) {
  for (const figure of group.querySelectorAll("figure.chart")) {
    if (!figure.view) continue;
    const frame = data.frames[figure.dataset.frame], { signals, ...sets } = rowsOf(frame, filtered(group));
    if (frame.row) delete sets.near;
    if (!frame.marks.length) delete sets.marks;
    for (const [name, rows] of Object.entries(sets)) figure.view.data(name, rows);
    for (const [name, value] of Object.entries(signals)) figure.view.signal(name, value);
    figure.querySelector(".plot").style.minHeight = 0;
    figure.view.height(heightOf(frame, sets)).runAsync();
  }
}

/* What stands beside the pointer: text alone, whatever the records hold. */
const tip = document.getElementById("tip");
function tell(handler, event, item, said) {
  tip.hidden = !said;
  if (!said) return;
  const row = item.datum.datum ?? item.datum; // where the nearest is told of, Vega-Lite looks for text in the wrong place
  const told = Object.entries(said).map(([name, value]) => [name, name === "scheme" || name === "seed" ? row[name] : value]);
  tip.replaceChildren(...told.flatMap(([name, value]) => {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = name;
    dd.textContent = value;
    return [dt, dd];
  }));
  const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8), y = event.clientY + 14;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : y}px`;
}

/* Zooms by `factor` about the middle, or moves by shares of what is seen; a factor of 0 shows all, as a double click does. */
function zoom(figure, factor, right = 0, up = 0) {
  if (!figure.view) return;
  if (!factor) {
    figure.querySelector("svg").dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    return;
  }
  const logs = data.frames[figure.dataset.frame].positive;
  for (const [axis, move, log] of [["x", right, false], ["y", up, logs]]) {
    const [from, to] = figure.view.scale(axis).domain().map((value) => (log ? Math.log(value) : value));
    const middle = (from + to) / 2 + move * (to - from), half = (factor * (to - from)) / 2;
    figure.view.signal(`zoom_${axis}`, [middle - half, middle + half].map((value) => (log ? Math.exp(value) : value)));
  }
  figure.view.runAsync();
}
const ZOOMS = { in: 0.6, out: 1 / 0.6, all: 0 };
const KEYS = { "+": [0.6], "=": [0.6], "-": [1 / 0.6], "0": [0], ArrowLeft: [1, -0.1], ArrowRight: [1, 0.1], ArrowUp: [1, 0, 0.1], ArrowDown: [1, 0, -0.1] };

let drawn = Promise.resolve(); // one chart after the other, so that the first is there soon
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    drawn = drawn.then(() => draw(target)).catch(console.error);
  }
}, { rootMargin: "400px" });
const buttons = document.getElementById("zoom");
for (const figure of document.querySelectorAll("figure.chart")) {
  seen.observe(figure);
  if (!("zooms" in figure.dataset)) continue;
  const caption = figure.querySelector("figcaption"), plot = figure.querySelector(".plot");
  plot.setAttribute("aria-label", `${caption.textContent}. Arrow keys move, plus and minus zoom, 0 shows all`);
  plot.setAttribute("role", "group");
  plot.tabIndex = 0;
  plot.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
    event.preventDefault();
    zoom(figure, ...KEYS[event.key]);
  });
  caption.append(buttons.content.cloneNode(true));
  caption.addEventListener("click", ({ target }) => target.dataset.zoom && zoom(figure, ZOOMS[target.dataset.zoom]));
}

/* Boxes to filter a group's charts by scheme and seed, made of what its first chart shows. */
function filters(form) {
  const group = form.closest(".group"), figure = group.querySelector("figure.chart");
  const frame = data.frames[figure.dataset.frame], pair = JSON.parse(form.dataset.pair);
  const schemes = [...new Set(frame.runs.map(([s]) => s))], seeds = [...new Set(frame.runs.map(([, seed]) => seed))].sort((a, b) => a - b);
  if (schemes.length < 2 && seeds.length < 2) return;
  const boxes = (kind) => [...form.querySelectorAll(`input[data-${kind}]`)];
  const check = (kind, whether) => boxes(kind).forEach((box) => { box.checked = whether(box.dataset[kind]); });
  function fieldset(title, kind, values, buttons) {
    const [set, legend, chips] = ["fieldset", "legend", "div"].map((name) => document.createElement(name));
    legend.textContent = title;
    set.append(legend, chips);
    for (const value of values) {
      const label = document.createElement("label"), box = document.createElement("input");
      label.className = "chip";
      Object.assign(box, { type: "checkbox", checked: true });
      box.dataset[kind] = value;
      label.append(box);
      if (kind === "scheme") label.append(document.createElement("i"));
      if (kind === "scheme") label.lastChild.style.background = `var(--c${value})`;
      label.append(kind === "scheme" ? data.titles[value] : value);
      chips.append(label);
    }
    for (const [text, act] of buttons) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: text });
      button.addEventListener("click", () => { act(); redraw(group); });
      chips.append(button);
    }
    form.append(set);
  }
  const both = pair.length === 2 && schemes.length > 2, names = pair.map((s) => data.titles[s]).join(" and ");
  fieldset("Schemes", "scheme", schemes, [["all", () => check("scheme", () => true)], ...(both ? [[`only ${names}`, () => check("scheme", (s) => pair.includes(Number(s)))]] : [])]);
  fieldset("Seeds", "seed", seeds, [["all", () => check("seed", () => true)], ["none, means alone", () => check("seed", () => false)]]);
  const shown = JSON.parse(form.dataset.shown);
  if (shown.length && shown.length < schemes.length) check("scheme", (s) => shown.includes(Number(s)));
  if ("quiet" in form.dataset) check("seed", () => false);
  form.addEventListener("change", () => redraw(group));
  form.addEventListener("submit", (event) => event.preventDefault());
}
document.querySelectorAll(".filters").forEach(filters);

const contents = document.querySelector("nav details"), wide = matchMedia("(min-width: 75rem)");
const unfold = () => { contents.open = wide.matches; };
wide.addEventListener("change", unfold);
unfold();
const open = () => { const target = document.getElementById(location.hash.slice(1)); if (target?.tagName === "DETAILS") target.open = true; };
addEventListener("hashchange", open);
open();
