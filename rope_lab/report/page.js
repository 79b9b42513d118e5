"use strict";
// Unpacks the data, draws charts once they are near, and lists every run. The specifications of the
// charts are made by rope_lab; here only their data change.
const smooth = document.getElementById("smooth");
const two = document.getElementById("two");
const MOST_RUNS = 200; // thin lines of a chart
let config = {}; // of Vega-Lite

function element(name, content, more) {
  const made = Object.assign(document.createElement(name), more);
  made.append(...[content].flat());
  return made;
}
const part = (className, content = "") => element("div", content, { className });
const button = (text, onclick) => element("button", text, { onclick });
const save = (download, href) => element("a", "", { download, href }).click();
function table(head, rows) {
  const first = element("thead", element("tr", head.map((name) => element("th", name))));
  const cell = (text, i) => element(i ? "td" : "th", text);
  const body = element("tbody", rows.map((row) => element("tr", row.map(cell))));
  for (const row of body.rows) [...row.cells].forEach((each, i) => { each.dataset.name = `${head[i]}: `; });
  return part("scroll stacked", element("table", [first, body]));
}

// A curve, each value as an exponential mean of those before it.
function smoothCurve(row) {
  const before = Number(smooth.value), made = { ...row };
  for (const name of ["y", "low", "high"].filter((each) => row[each])) {
    let mean = null;
    made[name] = row[name].map((value) => {
      if (value === null) return null;
      mean = before * (mean ?? value) + (1 - before) * value;
      return mean;
    });
  }
  return made;
}
// The specification with its runs; training loss smoothed.
function filled(chart) {
  const spec = structuredClone(chart.spec);
  if (!chart.runs) return spec;
  const runs = chart.runs.filter((row) => chart.schemes.includes(row.scheme));
  const others = spec.datasets ?? {}; // means
  spec.datasets = { ...others, runs: Object.keys(others).length && runs.length > MOST_RUNS ? [] : runs };
  if (!chart.smoothed) return spec;
  for (const [name, rows] of Object.entries(spec.datasets)) spec.datasets[name] = rows.map(smoothCurve);
  return spec;
}
function csv(spec) {
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const curves = Object.values(spec.datasets).flat().filter((row) => Array.isArray(row.x));
  const lines = curves.flatMap((row) => row.x.map((x, i) => [quoted(row.scheme), row.seed ?? "mean", x, row.y[i], row.low?.[i], row.high?.[i]].join()));
  return URL.createObjectURL(new Blob([["scheme,seed,x,y,low,high", ...lines, ""].join("\n")], { type: "text/csv" }));
}
async function draw(figure) {
  const spec = filled(figure.chart);
  figure.drawn = true;
  const options = { mode: "vega-lite", renderer: "svg", ast: true, actions: false, config };
  const { view } = await vegaEmbed(figure.querySelector(".plot"), spec, options);
  const tools = [button("PNG", async () => save("chart.png", await view.toImageURL("png", 2)))];
  if (figure.chart.runs) tools.push(button("CSV", () => save("chart.csv", csv(spec))));
  figure.querySelector(".tools").replaceChildren(...tools);
}

let drawing = Promise.resolve(); // one chart after the other, so that the first is there soon
const after = (act) => { drawing = drawing.then(act).catch(console.error); };
const near = new IntersectionObserver((entries) => {
  for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
    near.unobserve(target);
    after(() => target.drawn || draw(target));
  }
}, { rootMargin: "400px" });
function add(place, chart) {
  const caption = element("figcaption", [element("div", element("b", chart.title)), element("span", chart.note)]);
  const figure = element("figure", [caption, part("plot"), part("tools")], { chart });
  place.append(figure);
  near.observe(figure);
}
smooth.addEventListener("change", () => {
  near.disconnect();
  for (const figure of document.querySelectorAll("figure")) {
    figure.drawn = false;
    near.observe(figure);
  }
});
// Before printing, all charts of the open sections; this takes no timer, so that the printer waits.
addEventListener("beforeprint", () => {
  const open = [...document.querySelectorAll("figure")].filter((figure) => !figure.drawn && !figure.closest("details:not([open])"));
  open.forEach(draw);
});

// Every run of a recipe; columns that are the same in all rows are one line, as are settings.
function everyRun(details, { columns, runs, settings }) {
  const differs = (_, j) => j < 4 || runs.some((run) => run[j] !== runs[0][j]);
  const same = columns.flatMap((name, j) => (differs(name, j) ? [] : [`${name} ${runs[0][j]}`]));
  const schemes = Object.values(settings);
  const shared = Object.entries(schemes[0]).filter(([key, value]) => schemes.every((each) => each[key] === value));
  const line = (text) => element("p", text, { className: "small" });
  details.append(line(`Every run: ${same.join(", ")}`), table(columns.filter(differs), runs.map((run) => run.filter(differs))));
  details.append(line(shared.map(([key, value]) => `${key}=${value}`).join(" ")));
}
const nameOf = ([scheme, seed], { variant }) => [scheme, `seed ${seed}`, variant].filter(Boolean).join(", ");
// Two runs, A and B: the differences in values, origins and settings, and the curves of both.
function compare(groups, empty, choices) {
  const both = choices.map(({ value }, i) => {
    const [g, r] = value.split(",").map(Number), group = groups[g], run = group.runs[r];
    const [scheme, seed] = run, label = "AB"[i];
    const values = { recipe: group.title, ...Object.fromEntries(group.columns.map((name, j) => [name, run[j]])), ...group.settings[scheme] };
    const own = (row) => row.scheme === scheme && row.seed === seed;
    const curve = (note) => group.curves.filter((chart) => chart.note === note).flatMap((chart) => chart.runs.filter(own).map((row) => ({ ...row, scheme: label })));
    return { values, curve, group, name: `${label}: ${nameOf(run, group)}` };
  });
  const [a, b] = both;
  const keys = Object.keys({ ...a.values, ...b.values }).filter((key) => a.values[key] !== b.values[key]);
  const place = part("charts");
  const rows = keys.map((key) => [key, a.values[key] ?? "–", b.values[key] ?? "–"]);
  two.querySelector(".compared").replaceChildren(table(["differs", a.name, b.name], rows), place);
  for (const { title, note, log, smoothed } of a.group.curves) {
    const runs = both.flatMap(({ curve }) => curve(note));
    if (runs.length === 2) add(place, { ...empty[log ? "log" : "linear"], title, note, smoothed, runs });
  }
}

async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}
after(async () => document.head.append(element("script", await unpacked("library"))));
unpacked("data").then((text) => {
  const { sections, probed, two_runs: empty, config: settings } = JSON.parse(text);
  const groups = sections.flatMap((section) => section.groups);
  config = settings;
  document.querySelectorAll(".group").forEach((details, i) => {
    const { groups: own, charts } = sections[i], every = details.querySelector(".every");
    const curves = own.length === 1 ? own[0].curves : [];
    for (const chart of [...curves, ...charts]) add(details.querySelector(".charts"), chart);
    every.addEventListener("toggle", () => own.forEach((group) => everyRun(every, group)), { once: true });
  });
  document.querySelectorAll(".attention").forEach((place, i) => probed[i].forEach((chart) => add(place, chart)));
  const choices = [...two.querySelectorAll("select")], { runs } = groups[0];
  for (const choice of choices) {
    choice.append(...groups.map((group, g) => element("optgroup", group.runs.map((run, r) => element("option", nameOf(run, group), { value: `${g},${r}` })), { label: group.title })));
    choice.addEventListener("change", () => compare(groups, empty, choices));
  }
  choices[1].value = `0,${Math.max(0, runs.findIndex((run) => run[0] !== runs[0][0]))}`;
  two.addEventListener("toggle", () => compare(groups, empty, choices), { once: true });
});
