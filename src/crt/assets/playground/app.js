// The playground: one question to every level at once, streamed side by side.
"use strict";

const $ = (id) => document.getElementById(id);
const state = { family: null, level: 0, runs: [], abort: null };
const VERDICTS = { correct: "right", wrong: "wrong", no_answer: "no answer", ungraded: "not graded" };
const SIGNS = { correct: "✓", wrong: "✗", no_answer: "–", ungraded: "?" };

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
const seconds = ({ milliseconds }) => `${(milliseconds / 1000).toFixed(milliseconds < 9950 ? 1 : 0)} s`;
const meanTokens = (level) => Math.round(level.mean_tokens.value);

function headers() {
  const key = sessionStorage.getItem("crt-key");
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function request(path, body, signal) {
  const options = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const response = await fetch(path, { ...options, headers: headers(), signal });
  if (response.status === 401) $("keyrow").hidden = false;
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({}));
    throw new Error(error?.message ?? `The server answered ${response.status}.`);
  }
  return response;
}

// ---- the family

async function loadFamily() {
  try {
    state.family = await (await request("/playground/family")).json();
  } catch (error) {
    return showMessage(error.message, true);
  }
  const { family } = state;
  const { data, rollouts, temperature } = family.measured;
  const sets = data.map((set) => `${set.problems} problems of ${set.name}`).join(", ");
  $("family").textContent = family.name;
  document.title = `${family.name}: verbosity dial`;
  $("ability").textContent = family.pocket
    ? "This is a miniature model for trying things out. It solves one kind of problem: short sums, and everyday " +
      "stories about them. Any other question is refused with a sentence that says why."
    : `The levels were measured on ${sets}. They answer other questions too, but there nothing was measured.`;
  $("measured").textContent = `Measured on ${sets}, ${rollouts} responses each, temperature ${temperature}.`;
  $("promise").textContent =
    `A certified level is, with 95 % confidence, at most ${points(family.tolerance).slice(1)} percentage points less accurate than full ` +
    `on the problems it was measured on${choice(family)}.`;
  $("temperature").value = temperature;
  family.examples.forEach((example, i) => $("examples").append(make("option", { value: i, text: example.question })));
  if (family.examples.length && !$("question").value) fillExample(family.examples[0]);
  $("dial").max = family.levels.length - 1;
  drawStops();
  drawLanes();
  drawCards();
  selectLevel(family.levels.findIndex((level) => level.level === family.default));
  showMessage("");
}

// The certificate allows for how the levels were chosen.
function choice({ candidates, measured }) {
  return measured.chosen_on
    ? `, for all ${candidates} levels at once; they were chosen on other problems`
    : `, whichever of the ${candidates} checkpoints was chosen`;
}

function fillExample(example) {
  $("question").value = example.question;
  $("answer").value = example.answer;
}

function drawStops() {
  $("stops").replaceChildren(...state.family.levels.map((level, i) => {
    const stop = make("button", { type: "button", tabindex: "-1", text: level.level });
    stop.addEventListener("click", () => selectLevel(i));
    return stop;
  }));
}

function drawLanes() {
  const legend = make("div", { class: "legend quiet" },
    make("span", {}, make("i"), "thinking"), make("span", {}, make("i", { class: "content" }), "answer"),
    make("span", {}, make("u"), "mean tokens"));
  $("race").replaceChildren(...state.family.levels.map((level, i) =>
    make("div", { class: "lane", id: `lane-${i}` },
      make("span", { class: "name", text: level.level }),
      make("span", { class: "track", "aria-hidden": true }, make("i"), make("i", { class: "content" }), make("u")),
      make("span", { class: "count" }),
      make("span", { class: "time" }),
      make("span", { class: "verdict" }))), legend);
  drawBars();
}

function badge(level) {
  if (!level.certificate) return make("span", { class: "badge reference", text: "reference" });
  return level.certified
    ? make("span", { class: "badge passed", text: "✓ certified" })
    : make("span", { class: "badge open", text: "no certificate" });
}

function proof({ certificate }) {
  if (!certificate) return "what the others are measured against";
  return `${points(certificate.difference)} points, at worst ${points(certificate.lower_bound)}`;
}

const typical = (level) => `usually ${meanTokens(level)} tokens, ${level.accuracy.value.toFixed(1)} % right`;

function drawCards() {
  $("cards").replaceChildren(...state.family.levels.map((level, i) => {
    const card = make("article", { class: "card answer", id: `card-${i}`, "aria-labelledby": `name-${i}` },
      make("header", {}, make("h3", { id: `name-${i}`, text: level.level }), badge(level)),
      make("p", { class: "facts quiet", text: typical(level) }),
      make("div", { class: "content" }),
      make("details", { class: "thinking", hidden: true },
        make("summary", { text: "Thinking" }), make("div", { class: "reasoning" })));
    card.addEventListener("click", (event) => {
      if (!event.target.closest("details") && !String(getSelection())) selectLevel(i);
    });
    return card;
  }));
}

function selectLevel(i) {
  const { levels } = state.family;
  state.level = Math.max(0, Math.min(levels.length - 1, i));
  const level = levels[state.level];
  $("dial").value = state.level;
  $("dial").setAttribute("aria-valuetext", `${level.level}, usually ${meanTokens(level)} tokens`);
  for (const [prefix, parent] of [["lane", $("race")], ["card", $("cards")]])
    for (const node of parent.children) node.toggleAttribute("data-on", node.id === `${prefix}-${state.level}`);
  [...$("stops").children].forEach((stop, at) => stop.toggleAttribute("data-on", at === state.level));
  const figure = (value, label) => make("span", {}, make("span", { class: "figure", text: value }), make("span", { class: "label", text: label }));
  const { value, low, high } = level.accuracy;
  $("chosen").replaceChildren(
    figure(meanTokens(level), "tokens, on average"),
    figure(`${value.toFixed(1)} %`, `right (${low.toFixed(1)} – ${high.toFixed(1)})`),
    figure(percent(level.tokens_saved), "saved against full"),
    make("span", { class: "proof" }, badge(level), make("small", { text: proof(level) })));
  if (state.runs.length) summarise();
}

// ---- running

async function runAll() {
  const question = $("question").value.trim();
  if (!state.family) return loadFamily();
  if (!question) { showMessage("Type a question first, or pick one."); return $("question").focus(); }
  if (!$("temperature").reportValidity()) return;
  state.abort?.abort();
  const abort = (state.abort = new AbortController());
  const seed = Math.floor(Math.random() * 2 ** 31);
  const temperature = Number($("temperature").value);
  state.runs = state.family.levels.map((level) => ({
    level, reasoningTokens: 0, tokens: 0, milliseconds: 0, verdict: null, done: false, content: "", newContent: "", newReasoning: "",
  }));
  state.runs.forEach((_, i) => clearLevel(i));
  setRunning(true);
  showMessage("Every level is thinking…");
  const answer = $("answer").value.trim();
  await Promise.all(state.runs.map((run, i) => stream(run, i, { question, answer, seed, temperature }, abort.signal).catch((error) => fail(run, i, error))));
  if (state.abort !== abort) return;
  setRunning(false);
  summarise();
}

function setRunning(yes) {
  $("run").disabled = yes;
  $("stop").hidden = !yes;
  $("cards").setAttribute("aria-busy", yes);
}

async function stream(run, i, { question, answer, seed, temperature }, signal) {
  const started = performance.now();
  const response = await request("/v1/chat/completions", {
    model: `${state.family.name}:${run.level.level}`,
    messages: [{ role: "user", content: question }],
    measured_prompt: true,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    temperature,
    seed,
  }, signal);
  for await (const event of eventsOf(response)) {
    if (event.error) throw new Error(event.error.message);
    run.milliseconds = performance.now() - started;
    if (event.usage) countTokens(run, event.usage);
    for (const choice of event.choices ?? []) addText(run, choice);
  }
  run.done = true;
  $(`card-${i}`).classList.remove("busy");
  paint();
  drawBoxed($(`card-${i}`).querySelector(".content"), run.content);
  showFacts(run, i);
  if (answer) grade(run, i, question, answer, signal).catch(() => {});  // nobody has to wait for it
}

async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    const lines = buffer.split("\n\n");
    buffer = lines.pop();
    for (const line of lines) {
      const data = line.replace(/^data: ?/, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

function clearLevel(i) {
  const card = $(`card-${i}`), lane = $(`lane-${i}`);
  card.classList.add("busy");
  card.querySelector(".thinking").hidden = true;
  card.querySelector(".reasoning").textContent = "";
  card.querySelector(".content").textContent = "";
  card.querySelector(".facts").textContent = typical(state.family.levels[i]);
  for (const part of [".count", ".time", ".verdict"]) lane.querySelector(part).textContent = "";
  drawBars();
}

function addText(run, choice) {
  run.newReasoning += choice.delta?.reasoning_content ?? choice.delta?.reasoning ?? "";
  run.newContent += choice.delta?.content ?? "";
  run.content += choice.delta?.content ?? "";
  if (choice.finish_reason) run.cut = choice.finish_reason === "length";
  paintSoon();
}

function countTokens(run, usage) {
  run.tokens = usage.completion_tokens;
  run.reasoningTokens = usage.completion_tokens_details?.reasoning_tokens ?? 0;
  paintSoon();
}

// Tokens come faster than a screen can show them: everything new is painted once per frame.
function paintSoon() {
  if (state.painting) return;
  state.painting = true;
  requestAnimationFrame(() => { state.painting = false; paint(); });
}

function paint() {
  state.runs.forEach((run, i) => {
    const card = $(`card-${i}`), lane = $(`lane-${i}`);
    if (run.newReasoning) {
      card.querySelector(".thinking").hidden = false;
      card.querySelector(".reasoning").append(run.newReasoning);
    }
    if (run.newContent) card.querySelector(".content").append(run.newContent);
    run.newReasoning = run.newContent = "";
    card.querySelector("summary").textContent = `Thinking, ${run.reasoningTokens} tokens`;
    if (!run.tokens) return;
    lane.querySelector(".count").textContent = run.tokens;
    lane.querySelector(".time").textContent = seconds(run);
  });
  drawBars();
}

// What stands in a box is drawn in one; it stays text, for nothing a model writes is trusted.
function drawBoxed(node, text) {
  const parts = text.split(/\\boxed\{([^{}]*)\}/);
  node.replaceChildren(...parts.map((part, at) => (at % 2 ? make("b", { text: part }) : part)));
}

function drawBars() {
  const usual = Math.max(...state.family.levels.map((level) => level.mean_tokens.value));
  const widest = Math.max(usual * 1.15, ...state.runs.map((run) => run.tokens));
  const share = (tokens) => `${(100 * tokens) / widest}%`;
  state.family.levels.forEach((level, i) => {
    const run = state.runs[i] ?? { tokens: 0, reasoningTokens: 0 };
    const [thinking, content] = $(`lane-${i}`).querySelectorAll(".track i");
    $(`lane-${i}`).querySelector("u").style.left = share(level.mean_tokens.value);
    thinking.style.width = content.style.left = share(run.reasoningTokens);
    content.style.width = share(run.tokens - run.reasoningTokens);
  });
}

async function grade(run, i, question, answer, signal) {
  const response = await request("/playground/grade", { text: run.content, answer, question }, signal);
  run.verdict = (await response.json()).verdict;
  const mark = $(`lane-${i}`).querySelector(".verdict");
  mark.textContent = `${SIGNS[run.verdict]} ${VERDICTS[run.verdict]}`;
  mark.className = `verdict ${["correct", "wrong"].includes(run.verdict) ? run.verdict : "other"}`;
  showFacts(run, i);
  if (state.runs[i] === run) summarise();
}

function showFacts(run, i) {
  const facts = [`${run.tokens} tokens in ${seconds(run)}`];
  if (run.cut) facts.push("cut off");
  if (run.verdict) facts.push(VERDICTS[run.verdict]);
  $(`card-${i}`).querySelector(".facts").textContent = facts.join(", ");
}

function fail(run, i, error) {
  run.done = true;
  paint();
  $(`card-${i}`).classList.remove("busy");
  if (error.name === "AbortError") return showFacts(run, i);
  run.problem = error.message;
}

function summarise() {
  const run = state.runs[state.level], full = state.runs.at(-1);
  const problem = state.runs.find((each) => each.problem);
  if (problem) return showMessage(problem.problem, true);
  if (!run.done || !full.done || !full.tokens) return;
  const verdict = (each) => (each.verdict ? ` (${VERDICTS[each.verdict]})` : "");
  if (run === full) return showMessage(`full took ${full.tokens} tokens and ${seconds(full)}${verdict(full)}. Turn the dial to compare.`);
  const less = (ours, theirs, fewer, more, same) => {
    const saved = Math.round(100 * (1 - ours / theirs));
    return saved === 0 ? same : saved > 0 ? `${saved} % ${fewer}` : `${-saved} % ${more}`;
  };
  $("summary").className = "summary";
  $("summary").replaceChildren(
    make("strong", { text: run.level.level }), ` took ${run.tokens} tokens and ${seconds(run)}${verdict(run)}, `,
    `full ${full.tokens} and ${seconds(full)}${verdict(full)}: `,
    make("strong", { text: less(run.tokens, full.tokens, "fewer tokens", "more tokens", "as many tokens") }), ", ",
    less(run.milliseconds, full.milliseconds, "less time", "more time", "the same time"),
    `. On average it takes ${percent(run.level.tokens_saved)} fewer tokens.`);
}

function showMessage(text, problem = false) {
  $("summary").className = problem ? "summary problem" : "summary";
  $("summary").textContent = text || "Run the question to see how long each level thinks about it.";
  if (problem) $("summary").scrollIntoView({ block: "nearest" });  // on a phone it is below the screen
}

// ---- keys, buttons, theme

const typing = () => /^(TEXTAREA|INPUT|SELECT)$/.test(document.activeElement?.tagName ?? "");

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); runAll(); }
  else if (event.key === "Escape") state.abort?.abort();
  else if (!typing() && state.family && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
    event.preventDefault();
    selectLevel(state.level + (event.key === "ArrowLeft" ? -1 : 1));
  }
});
$("ask").addEventListener("submit", (event) => { event.preventDefault(); runAll(); });
$("stop").addEventListener("click", () => state.abort?.abort());
$("dial").addEventListener("input", () => selectLevel(Number($("dial").value)));
$("examples").addEventListener("change", () => {
  const example = state.family?.examples[$("examples").value];
  if (!example) return;
  fillExample(example);
  runAll();
});
$("question").addEventListener("input", () => { $("answer").value = ""; $("examples").value = ""; });
$("key").addEventListener("change", () => { sessionStorage.setItem("crt-key", $("key").value); $("keyrow").hidden = true; loadFamily(); });

function setTheme(name) {
  document.documentElement.dataset.theme = name;
}
const preferred = matchMedia("(prefers-color-scheme: dark)");
setTheme(localStorage.getItem("crt-theme") ?? (preferred.matches ? "dark" : "light"));
preferred.addEventListener("change", () => { if (!localStorage.getItem("crt-theme")) setTheme(preferred.matches ? "dark" : "light"); });
$("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("crt-theme", next);
  setTheme(next);
});

loadFamily();
