(() => {
  const root = document.getElementById("explorer");
  if (!root) return;
  const groups = report.explorer.groups;
  const at = (id) => document.getElementById(id);
  const [list, reading, search, sort, which] = ["questions", "reading", "search", "sort", "group"].map(at);
  const state = { group: 0, question: -1, kind: "sample", columns: new Set(), shown: [] };
  const read = new Map();
  const element = (name, className, text) => {
    const found = document.createElement(name);
    if (className) found.className = className;
    if (text !== undefined) found.textContent = text;
    return found;
  };

  function answers(chunk) {
    if (!read.has(chunk)) read.set(chunk, inflate(at(`chunk-${chunk}`).textContent).then(JSON.parse));
    return read.get(chunk);
  }

  function change(question, key) {
    const values = question[key].filter((value) => value !== null);
    return values.length ? values.at(-1) - values[0] : 0;
  }

  function filtered() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = groups[state.group].questions.map((question, number) => ({ question, number }));
    found = found.filter(({ question }) => words.every((word) => question.text.toLowerCase().includes(word)));
    if (sort.value === "saved") found.sort((a, b) => change(a.question, "len") - change(b.question, "len"));
    if (sort.value === "lost") found = found.filter(({ question }) => change(question, "acc") < 0)
      .sort((a, b) => change(a.question, "acc") - change(b.question, "acc"));
    if (sort.value === "gained") found = found.filter(({ question }) => change(question, "acc") > 0)
      .sort((a, b) => change(b.question, "acc") - change(a.question, "acc"));
    return found;
  }

  const arrow = (values, unit) => {
    const known = values.filter((value) => value !== null);
    return known.length > 1 ? `${known[0]} → ${known.at(-1)}${unit}` : `${known[0] ?? "–"}${unit}`;
  };

  function item({ question, number }) {
    const entry = element("li");
    const row = element("button");
    const figures = element("span", "n");
    const change_ = change(question, "acc");
    row.type = "button";
    row.tabIndex = -1;
    row.dataset.question = number;
    figures.append(
      element("span", change_ < 0 ? "down" : change_ > 0 ? "up" : "", arrow(question.acc, " %")),
      element("span", "", arrow(question.len, " tokens")),
    );
    row.append(element("span", "q", `${number + 1} · ${question.text}`), figures);
    row.addEventListener("click", () => open(number));
    entry.append(row);
    return entry;
  }

  function fill() {
    state.shown = filtered();
    const entries = state.shown.map(item);
    list.replaceChildren(...(entries.length ? entries : [element("li", "empty", "No question is like that.")]));
    mark();
  }

  function mark() {
    for (const row of list.querySelectorAll("[aria-current]")) row.removeAttribute("aria-current");
    const row = list.querySelector(`[data-question="${state.question}"]`);
    row?.setAttribute("aria-current", "true");
    if (row) { // scrolls the list alone, never the page
      const { top, bottom } = row.getBoundingClientRect();
      const box = list.getBoundingClientRect();
      if (top < box.top) list.scrollTop -= box.top - top;
      if (bottom > box.bottom) list.scrollTop += bottom - box.bottom;
    }
  }

  async function open(number) {
    const group = groups[state.group];
    const question = group.questions[number];
    if (!question) return;
    state.question = number;
    mark();
    const packed = question.chunk === null ? null : await answers(question.chunk);
    if (state.question !== number) return; // another one was asked for meanwhile
    const head = element("p", "question", packed?.question ?? question.text);
    const gold = element("p", "gold", "Right answer: ");
    gold.append(element("b", "", packed ? packed.answer || "unknown here" : "not in this page"));
    gold.append(` · ${question.data}`);
    reading.replaceChildren(head, gold, picks(group), columns(group, question, packed));
    history.replaceState(null, "", `#q=${state.group}.${number}`);
  }

  function picks(group) {
    const row = element("div", "picks");
    group.columns.forEach((column, place) => {
      if (!column.texts || group.columns.length <= 3 || !group.rollouts) return;
      const toggle = button(column.name, () => {
        if (!state.columns.delete(place)) state.columns.add(place);
        open(state.question);
      });
      toggle.setAttribute("aria-pressed", String(state.columns.has(place)));
      row.append(toggle);
    });
    return row;
  }

  function columns(group, question, packed) {
    const row = element("div", "answers");
    if (!packed) {
      row.append(element("p", "note", "Its answers were left out to keep the page small: see the evaluations' folders, or give --texts."));
      return row;
    }
    const places = group.columns.map((column, place) => place).filter((place) => group.columns[place].texts);
    places.forEach((place, order) => {
      const present = packed.columns[order].length > 0 || group.rollouts > 0;
      if (present && (state.columns.has(place) || !group.rollouts)) row.append(card(group.columns[place], place, question, packed.columns[order]));
    });
    return row;
  }

  const ABSENT = { sample: "No response is here.", shortest: "None of the responses is right.", wrong: "None of the responses is wrong." };
  const VERDICTS = { correct: "✓ right", wrong: "✗ wrong", no_answer: "no answer", ungraded: "ungraded" };

  function card(column, place, question, found) {
    const box = element("article", "answer");
    const answer = found.find((each) => each.kinds.includes(state.kind));
    box.append(element("h3", "", column.name));
    const known = question.acc[place] !== null;
    box.append(element("p", "mean", known ? `${question.acc[place]} % right · mean ${question.len[place] ?? "?"} tokens` : ""));
    if (!answer) {
      box.append(element("p", "note", ABSENT[state.kind]));
      return box;
    }
    const chips = element("div", "chips");
    const chip = (text, kind = "") => chips.append(element("span", `chip ${kind}`, text));
    chip(VERDICTS[answer.verdict] ?? answer.verdict, Object.hasOwn(VERDICTS, answer.verdict) ? answer.verdict : "");
    if (answer.tokens !== null) chip(`${answer.tokens} tokens`);
    if (answer.redundant) chip(`${answer.redundant} % repeats or doubts`);
    if (answer.cut) chip("cut off");
    if (answer.verdict !== "correct" && answer.extracted !== null) chip(`answers ${answer.extracted}`);
    box.append(chips, markedText(answer.pieces));
    return box;
  }

  function markedText(pieces) {
    const text = element("p", "response");
    for (const [kind, piece] of pieces) {
      if (kind === 3) text.append(element("span", "gap", `${Number(piece).toLocaleString("en")} characters are left out here`));
      else if (kind) text.append(element("mark", kind === 1 ? "repeat" : "doubt", piece));
      else text.append(piece);
    }
    return text;
  }

  function choose(number) {
    state.group = number;
    const { columns: every, questions, result } = groups[number];
    const places = every.map((_, place) => place).filter((place) => every[place].texts);
    const half = places[places.indexOf(result) >> 1]; // between the base and what it came to
    state.columns = new Set(places.length <= 3 ? places : [places[0], half, result]);
    state.question = -1;
    which.value = String(number);
    const here = questions.filter((question) => question.chunk !== null).length;
    const left = places.length < every.length ? `, at ${places.length} of ${every.length} checkpoints` : "";
    if (!groups[number].rollouts) {
      at("coverage").textContent = `What the policy answered in ${every.length} steps of training; nothing was evaluated yet.`;
      return fill();
    }
    at("coverage").textContent = here === questions.length && !left
      ? `All ${here.toLocaleString("en")} questions, with up to three answers of each model: the first that was sampled, the shortest right one, a wrong one. Shown side by side.`
      : `The numbers of all ${questions.length.toLocaleString("en")} questions, and the answers to ${here.toLocaleString("en")} of them${left}: of each the first that was sampled, the shortest right one, a wrong one. The rest is left out to keep the page small.`;
    fill();
  }

  function best() {
    const able = groups[state.group].questions.map((question, number) => ({ question, number }))
      .filter(({ question }) => question.chunk !== null && change(question, "acc") >= 0);
    able.sort((a, b) => change(a.question, "len") - change(b.question, "len"));
    return able[0]?.number ?? 0;
  }

  function step(by) {
    const place = state.shown.findIndex(({ number }) => number === state.question);
    const next = state.shown[Math.min(state.shown.length - 1, Math.max(0, place + by))];
    if (next) open(next.number);
  }

  function fromAddress() {
    const found = /^#q=(\d+)\.(\d+)$/.exec(location.hash);
    if (!found || !groups[found[1]]?.questions[found[2]]) return false;
    choose(Number(found[1]));
    open(Number(found[2]));
    return true;
  }

  globalThis.openQuestion = (label, number) => {
    const place = Math.max(0, groups.findIndex((group) => group.label === label));
    if (place !== state.group) choose(place);
    search.value = "";
    sort.value = "all";
    fill();
    open(number);
    globalThis.stayAt?.(root);
    root.scrollIntoView();
  };

  groups.forEach((group, number) => which.append(new Option(group.label, number)));
  which.hidden = groups.length < 2;
  which.addEventListener("change", () => { choose(Number(which.value)); open(best()); });
  search.addEventListener("input", () => { fill(); if (state.shown.length) open(state.shown[0].number); });
  sort.addEventListener("change", () => { fill(); if (state.shown.length) open(state.shown[0].number); });
  at("kind").addEventListener("change", (event) => { state.kind = event.target.value; open(state.question); });
  document.addEventListener("keydown", (event) => {
    const { top, bottom } = root.getBoundingClientRect();
    const away = bottom < 80 || top > innerHeight - 80;
    const typing = event.target.closest?.("input, select, textarea, dialog") && event.target.type !== "radio";
    if (away || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      event.preventDefault();
      step(event.key === "ArrowRight" ? 1 : -1);
    }
  });
  addEventListener("hashchange", fromAddress);
  if (fromAddress()) return;
  choose(0);
  new IntersectionObserver((seen, watcher) => {
    if (!seen.some((each) => each.isIntersecting) || state.question >= 0) return;
    watcher.disconnect();
    const address = location.hash;
    open(best()).then(() => history.replaceState(null, "", address || location.pathname + location.search));
  }, { rootMargin: "600px" }).observe(root);
})();
