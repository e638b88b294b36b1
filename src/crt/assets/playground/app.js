// The playground: one question to every level at once, streamed side by side.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { family: null, at: 0, runs: [], stop: null };
const words = { correct: "✓ right", wrong: "✗ wrong", no_answer: "– no answer", ungraded: "? not graded" };

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter(Boolean));
  return node;
}

const points = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)}`;
const percent = (value) => `${Math.round(value)} %`;

function headers() {
  const key = sessionStorage.getItem("crt-key");
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function call(path, body, signal) {
  const options = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const response = await fetch(path, { ...options, headers: headers(), signal });
  if (response.status === 401) $("keyrow").hidden = false;
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Error(told.error?.message ?? `The server answered ${response.status}.`);
  }
  return response;
}

// ---- what is shown of the family

async function begin() {
  try {
    state.family = await (await call("/playground/family")).json();
  } catch (error) {
    return say(error.message, true);
  }
  const { family } = state;
  const sets = family.measured.data.map((each) => `${each.problems} problems of ${each.name}`).join(", ");
  $("family").textContent = family.name;
  document.title = `${family.name}: verbosity dial`;
  $("measured").textContent =
    `Measured on ${sets}, ${family.measured.rollouts} responses each, temperature ${family.measured.temperature}.`;
  $("promise").textContent =
    `A certified level is, with 95 % confidence, at most ${points(family.tolerance).slice(1)} percentage points less accurate than full ` +
    `on the problems it was measured on, whichever of the ${family.candidates} checkpoints was chosen.`;
  family.examples.forEach((example, i) => $("examples").append(make("option", { value: i, text: example.question })));
  $("dial").max = family.levels.length - 1;
  drawDial();
  drawLanes();
  drawCards();
  turn(family.levels.findIndex((level) => level.name === family.default));
  say("");
}

function drawDial() {
  $("stops").replaceChildren(...state.family.levels.map((level, i) => {
    const stop = make("button", { type: "button", tabindex: "-1", text: level.name });
    stop.addEventListener("click", () => turn(i));
    return stop;
  }));
}

function drawLanes() {
  const legend = make("div", { class: "legend quiet" },
    make("span", {}, make("i"), "thinking"), make("span", {}, make("i", { class: "say" }), "answer"),
    make("span", {}, make("u"), "usual length"));
  $("race").replaceChildren(...state.family.levels.map((level, i) =>
    make("div", { class: "lane", id: `lane-${i}` },
      make("span", { class: "name", text: level.name }),
      make("span", { class: "track", "aria-hidden": true }, make("i"), make("i", { class: "say" }), make("u")),
      make("span", { class: "count", text: "" }),
      make("span", { class: "verdict" }))), legend);
  bars();
}

function badge(level) {
  if (!level.certificate) return make("span", { class: "badge base", text: "reference" });
  return level.certified
    ? make("span", { class: "badge held", text: "✓ certified" })
    : make("span", { class: "badge open", text: "no certificate" });
}

function proof(level) {
  const held = level.certificate;
  if (!held) return "what the others are measured against";
  return `${points(held.difference)} points, at worst ${points(held.lower_bound)}`;
}

function drawCards() {
  $("cards").replaceChildren(...state.family.levels.map((level, i) => {
    const card = make("article", { class: "card answer", id: `card-${i}`, "aria-labelledby": `name-${i}` },
      make("header", {}, make("h3", { id: `name-${i}`, text: level.name }), badge(level)),
      make("p", { class: "facts quiet", text: typical(level) }),
      make("div", { class: "thought", "aria-label": "Thinking" }),
      make("div", { class: "said" }));
    card.addEventListener("click", () => { if (!String(getSelection())) turn(i); });
    return card;
  }));
}

const typical = (level) => `usually ${Math.round(level.len.value)} tokens, ${level.acc.value.toFixed(1)} % right`;

function turn(i) {
  const { levels } = state.family;
  state.at = Math.max(0, Math.min(levels.length - 1, i));
  const level = levels[state.at];
  $("dial").value = state.at;
  $("dial").setAttribute("aria-valuetext", `${level.name}, usually ${Math.round(level.len.value)} tokens`);
  for (const [prefix, parent] of [["lane", $("race")], ["card", $("cards")]])
    for (const node of parent.children) node.toggleAttribute("data-on", node.id === `${prefix}-${state.at}`);
  [...$("stops").children].forEach((stop, at) => stop.toggleAttribute("data-on", at === state.at));
  const figure = (value, label) => make("span", {}, make("span", { class: "figure", text: value }), make("span", { class: "label", text: label }));
  $("chosen").replaceChildren(
    figure(Math.round(level.len.value), "tokens, on average"),
    figure(`${level.acc.value.toFixed(1)} %`, `right (${level.acc.low.toFixed(1)} – ${level.acc.high.toFixed(1)})`),
    figure(percent(level.saved), "saved against full"),
    make("span", { class: "proof" }, badge(level), make("small", { text: proof(level) })));
  if (state.runs.length) summarise();
}

// ---- running

async function run() {
  const question = $("question").value.trim();
  if (!state.family) return begin();
  if (!question) { say("Type a question first, or pick one."); return $("question").focus(); }
  state.stop?.abort();
  const stop = (state.stop = new AbortController());
  const seed = Math.floor(Math.random() * 2 ** 31);
  state.runs = state.family.levels.map((level) => ({ level, thought: 0, tokens: 0, verdict: null, done: false, text: "", newText: "", newThought: "" }));
  state.runs.forEach((_, i) => clear(i));
  underWay(true);
  say("Every level is thinking…");
  const answer = $("answer").value.trim();
  await Promise.all(state.runs.map((one, i) => stream(one, i, question, answer, seed, stop.signal).catch((error) => fail(one, i, error))));
  if (state.stop !== stop) return;
  underWay(false);
  summarise();
}

function underWay(yes) {
  $("run").disabled = yes;
  $("stop").hidden = !yes;
  $("cards").setAttribute("aria-busy", yes);
}

async function stream(one, i, question, answer, seed, signal) {
  const response = await call("/v1/chat/completions", {
    model: one.level.model,
    messages: [{ role: "user", content: question }],
    measured_prompt: true,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    seed,
  }, signal);
  for await (const event of eventsOf(response)) {
    if (event.error) throw new Error(event.error.message);
    if (event.usage) count(one, event.usage);
    for (const choice of event.choices ?? []) show(one, choice);
  }
  one.done = true;
  $(`card-${i}`).classList.remove("busy");
  paint();
  boxed($(`card-${i}`).querySelector(".said"), one.text);
  facts(one, i);
  if (answer) grade(one, i, question, answer, signal).catch(() => {});  // nobody has to wait for it
}

async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const lines = held.split("\n\n");
    held = lines.pop();
    for (const line of lines) {
      const data = line.replace(/^data: ?/, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

function clear(i) {
  const card = $(`card-${i}`), lane = $(`lane-${i}`);
  card.classList.add("busy");
  card.querySelector(".thought").textContent = "";
  card.querySelector(".said").textContent = "";
  card.querySelector(".facts").textContent = typical(state.family.levels[i]);
  lane.querySelector(".count").textContent = "0";
  lane.querySelector(".verdict").textContent = "";
  bars();
}

function show(one, choice) {
  one.newThought += choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? "";
  one.newText += choice.delta?.content ?? "";
  one.text += choice.delta?.content ?? "";
  if (choice.finish_reason) one.cut = choice.finish_reason === "length";
  paintSoon();
}

// Tokens come faster than a screen can show them: everything new is painted once a frame.
function paintSoon() {
  if (state.painting) return;
  state.painting = true;
  requestAnimationFrame(() => { state.painting = false; paint(); });
}

function paint() {
  state.runs.forEach((one, i) => {
    const card = $(`card-${i}`);
    if (one.newThought) card.querySelector(".thought").append(one.newThought);
    if (one.newText) card.querySelector(".said").append(one.newText);
    one.newThought = one.newText = "";
    $(`lane-${i}`).querySelector(".count").textContent = one.tokens;
  });
  bars();
}

// What stands in a box is drawn in one; it stays text, for nothing a model writes is trusted.
function boxed(node, text) {
  const parts = text.split(/\\boxed\{([^{}]*)\}/);
  node.replaceChildren(...parts.map((part, at) => (at % 2 ? make("b", { text: part }) : part)));
}

function count(one, usage) {
  one.tokens = usage.completion_tokens;
  one.thought = usage.completion_tokens_details?.reasoning_tokens ?? 0;
  paintSoon();
}

function bars() {
  const usual = Math.max(...state.family.levels.map((level) => level.len.value));
  const widest = Math.max(usual * 1.15, ...state.runs.map((one) => one.tokens));
  state.family.levels.forEach((level, i) => {
    $(`lane-${i}`).querySelector("u").style.left = `${(100 * level.len.value) / widest}%`;
  });
  state.runs.forEach((one, i) => {
    const [think, speak] = $(`lane-${i}`).querySelectorAll(".track i");
    think.style.width = `${(100 * one.thought) / widest}%`;
    speak.style.left = `${(100 * one.thought) / widest}%`;
    speak.style.width = `${(100 * (one.tokens - one.thought)) / widest}%`;
  });
}

async function grade(one, i, question, answer, signal) {
  const told = await (await call("/playground/grade", { text: one.text, answer, question }, signal)).json();
  one.verdict = told.verdict;
  const mark = $(`lane-${i}`).querySelector(".verdict");
  mark.textContent = words[one.verdict];
  mark.className = `verdict ${["correct", "wrong"].includes(one.verdict) ? one.verdict : "other"}`;
  facts(one, i);
  if (state.runs[i] === one) summarise();
}

function facts(one, i) {
  const verdict = one.verdict ? `, ${words[one.verdict]}` : "";
  const cut = one.cut ? ", cut off" : "";
  $(`card-${i}`).querySelector(".facts").textContent =
    `${one.tokens} tokens (${one.thought} thinking)${cut}${verdict}`;
}

function fail(one, i, error) {
  one.done = true;
  paint();
  $(`card-${i}`).classList.remove("busy");
  if (error.name === "AbortError") return facts(one, i);
  one.problem = error.message;
  $(`card-${i}`).querySelector(".facts").textContent = error.message;
}

function summarise() {
  const one = state.runs[state.at], full = state.runs.at(-1);
  const problem = state.runs.find((each) => each.problem);
  if (problem) return say(problem.problem, true);
  if (!one.done || !full.done || !full.tokens) return;
  if (one === full) return say(`full took ${full.tokens} tokens${right(full)}. Turn the dial to compare.`);
  const saved = 100 * (1 - one.tokens / full.tokens);
  const less = saved >= 0 ? `${percent(saved)} fewer` : `${percent(-saved)} more`;
  $("summary").className = "summary";
  $("summary").replaceChildren(
    make("strong", { text: one.level.name }), ` took ${one.tokens} tokens${right(one)}, full ${full.tokens}${right(full)}: `,
    make("strong", { text: `${less} tokens` }), ".");
}

const right = (one) => (one.verdict ? ` (${{ correct: "right", wrong: "wrong", no_answer: "no answer", ungraded: "not graded" }[one.verdict]})` : "");

function say(text, problem = false) {
  $("summary").className = problem ? "summary problem" : "summary";
  $("summary").textContent = text || "Run a question to see how much each level thinks about it.";
}

// ---- keys, buttons, theme

const typing = () => /^(TEXTAREA|INPUT|SELECT)$/.test(document.activeElement?.tagName ?? "");

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
  else if (event.key === "Escape") state.stop?.abort();
  else if (!typing() && state.family && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
    event.preventDefault();
    turn(state.at + (event.key === "ArrowLeft" ? -1 : 1));
  }
});
$("ask").addEventListener("submit", (event) => { event.preventDefault(); run(); });
$("stop").addEventListener("click", () => state.stop?.abort());
$("dial").addEventListener("input", () => turn(Number($("dial").value)));
$("examples").addEventListener("change", () => {
  const example = state.family?.examples[$("examples").value];
  if (!example) return;
  $("question").value = example.question;
  $("answer").value = example.answer;
  run();
});
$("question").addEventListener("input", () => { $("answer").value = ""; $("examples").value = ""; });
$("key").addEventListener("change", () => { sessionStorage.setItem("crt-key", $("key").value); $("keyrow").hidden = true; begin(); });

function theme(name) {
  document.documentElement.dataset.theme = name;
}
const preferred = matchMedia("(prefers-color-scheme: dark)");
theme(localStorage.getItem("crt-theme") ?? (preferred.matches ? "dark" : "light"));
preferred.addEventListener("change", () => { if (!localStorage.getItem("crt-theme")) theme(preferred.matches ? "dark" : "light"); });
$("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("crt-theme", next);
  theme(next);
});

begin();
