"use strict";
const report = JSON.parse(document.getElementById("payload").textContent);
const NARROW = 640;
const drawn = new Map(); // element → what it shows, to draw it again for another width

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}

let loading;
function library() {
  loading ??= inflate(document.getElementById("library").textContent).then((source) => {
    const script = document.createElement("script");
    script.textContent = source;
    document.head.append(script);
    return globalThis.charts ?? window.charts;
  });
  return loading;
}

// Fills in widths that are shares of the place ("1/2") and columns of legends; style.py does the same for print.
// Colours are variables of the style sheet, so that a theme needs no redrawing.
function resolve(spec, width, tall) {
  const narrow = width < NARROW;
  const visit = (value, key) => {
    if (Array.isArray(value)) return value.map((entry) => visit(entry));
    if (value && typeof value === "object") {
      if (key === "data") return value;
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, visit(v, k)]));
    }
    if (key === "width" && typeof value === "string" && value.includes("/")) return panelWidth(spec, value, width);
    if (key === "columns" && typeof value === "string") return Number(value.split(" or ")[narrow ? 0 : 1]);
    if (key === "labelLimit" && narrow) return 96;
    if (key === "height" && typeof value === "number" && tall && value > 60) return value * tall;
    return value;
  };
  const found = visit(spec);
  if (spec.concat && narrow) found.columns = 1;
  if (typeof found.width === "number") found.autosize = { type: "fit-x", contains: "padding" };
  return { ...found, config: { ...report.config, ...spec.config }, background: "transparent" };
}

function panelWidth(spec, share, width) {
  const [part, parts] = share.split("/").map(Number);
  if (spec.vconcat) return Math.max(160, width - 66);
  if (!spec.concat) return width;
  if (width < NARROW) return Math.max(160, width - 44);
  return Math.max(160, Math.floor(((width - 76 * (spec.columns - 1) - 44) * part) / parts));
}

async function draw(place, spec, options = {}) {
  const charts = await library();
  const width = place.clientWidth;
  const compiled = charts.compile(resolve(spec, width, options.tall)).spec;
  const runtime = charts.parse(compiled, null, { ast: true });
  const view = new charts.View(runtime, {
    expr: charts.expressionInterpreter, renderer: "svg", container: place, hover: true,
  });
  view.tooltip((_, event, __, value) => tip(event, value));
  if (options.pick) view.addEventListener("click", (_, item) => item?.datum && options.pick(item.datum));
  drawn.get(place)?.view?.finalize();
  drawn.set(place, { view, spec, options, width });
  await view.runAsync();
  return view;
}

function redraw() {
  for (const [place, { spec, options }] of drawn) if (place.isConnected) draw(place, spec, options);
}

function tip(event, value) {
  const box = document.getElementById("tip");
  box.hidden = value == null;
  if (box.hidden) return;
  box.replaceChildren();
  const list = document.createElement("dl");
  for (const [key, shown] of Object.entries(Object(value))) {
    if (shown === "null" || shown === "undefined" || shown == null) continue;
    if (key.trim() === "") {
      const head = document.createElement("b");
      head.textContent = shown;
      box.append(head);
      continue;
    }
    const name = document.createElement("dt");
    const text = document.createElement("dd");
    name.textContent = key;
    text.textContent = shown;
    list.append(name, text);
  }
  box.append(list);
  const { clientX: x, clientY: y } = event;
  const { offsetWidth: wide, offsetHeight: high } = box;
  box.style.left = `${Math.max(8, x + 16 + wide > innerWidth ? x - wide - 12 : x + 16)}px`;
  box.style.top = `${Math.max(8, y + 16 + high > innerHeight ? y - high - 12 : y + 16)}px`;
}

function button(text, action) {
  const found = document.createElement("button");
  found.type = "button";
  found.textContent = text;
  found.addEventListener("click", action);
  return found;
}

// Zoom is the bare scale binding of Vega-Lite; a grid of questions has none.
function zooms(spec) {
  return JSON.stringify(spec).includes('"bind":"scales"');
}

function figure(place) {
  const choices = report.figures[place.dataset.figure];
  const tools = document.createElement("div");
  const chart = document.createElement("div");
  const caption = document.createElement("figcaption");
  tools.className = "tools";
  chart.className = "chart";
  let shown = choices[0];
  const pick = (datum) => datum.question != null && globalThis.openQuestion?.(shown.label, datum.question);
  const show = () => {
    caption.textContent = shown.caption;
    return draw(chart, shown.spec, { pick });
  };
  if (zooms(shown.spec)) {
    const hint = document.createElement("span");
    hint.className = "hint";
    hint.textContent = "drag to move, Ctrl + wheel or pinch to zoom, double-click to reset";
    tools.append(hint);
  }
  tools.append(button("Enlarge", () => enlarge(shown.spec, pick)));
  place.replaceChildren(tools, chart, caption);
  if (choices.length > 1) tools.after(chooser(choices, (chosen) => { shown = chosen; show(); }));
  return show();
}

// About how tall a figure will be, so that nothing moves when it is drawn.
function tallness(spec) {
  const sum = (parts) => parts.map(tallness).reduce((a, b) => a + b, 0);
  if (spec.vconcat) return sum(spec.vconcat) + 30;
  if (spec.concat) return sum(spec.concat) / (innerWidth < NARROW ? 1 : spec.columns) + 20;
  if (typeof spec.height === "number") return spec.height + (spec.height > 60 ? 50 : 30);
  return spec.height.step * spec.encoding.y.sort.length + 110;
}

function chooser(choices, action) {
  const select = document.createElement("select");
  select.setAttribute("aria-label", "Which one");
  for (const [number, choice] of choices.entries()) select.append(new Option(choice.label, number));
  select.addEventListener("change", () => action(choices[Number(select.value)]));
  return select;
}

async function enlarge(spec, pick) {
  const dialog = document.getElementById("large");
  const place = dialog.querySelector("div");
  dialog.showModal();
  await draw(place, spec, { tall: 1.5, pick: (datum) => { dialog.close(); pick(datum); } });
  dialog.addEventListener("close", () => {
    drawn.get(place)?.view?.finalize();
    drawn.delete(place);
    place.replaceChildren();
    tip(null, null);
  }, { once: true });
}
