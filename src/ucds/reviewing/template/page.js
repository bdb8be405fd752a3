"use strict";
const COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#e07b39", "#117733", "#882255"];
const at = (id) => document.getElementById(id);
let fixed = null;
let pictured = null;
let state = null;
let busy = false;
const chosen = new Set();

function make(tag, values = {}, children = []) {
  const element = Object.assign(document.createElement(tag), values);
  element.append(...children);
  return element;
}

function picture(row) {
  const button = make("button", { type: "button", className: "picture" });
  button.setAttribute("aria-pressed", String(chosen.has(row)));
  const name = fixed.ids[row];
  if (pictured.has(row)) button.append(make("img", { src: `picture/${row}`, alt: name, loading: "lazy" }));
  else {
    const text = fixed.texts?.[row];
    button.classList.toggle("words", Boolean(text));
    button.append(pictured.size ? `${name} is missing` : text || name);
  }
  button.title = name;
  button.addEventListener("click", () => {
    if (chosen.has(row)) chosen.delete(row);
    else chosen.add(row);
    button.setAttribute("aria-pressed", String(chosen.has(row)));
    at("move").disabled = chosen.size === 0;
  });
  return button;
}

function group(title, rows, asked) {
  const box = make("div", { className: asked ? "group asked" : "group" }, [make("h3", { textContent: title })]);
  box.append(make("div", { className: "pictures" }, rows.map(picture)));
  return box;
}

const KEYS = { one: "1", two: "2", new: "N", mixed: "M", skip: "S" };
const keyOf = (answer) => (typeof answer === "number" ? String(answer + 1) : KEYS[answer]);
const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
const nameOf = (number) => (state.names[number] ? `${state.names[number]} (${number})` : `cluster ${number}`);

function showQuestion() {
  const question = state.question;
  at("groups").replaceChildren();
  at("answers").replaceChildren();
  at("question-title").textContent = question ? question.text : "Nothing is left to ask";
  if (!question) return;
  question.groups.forEach((rows, i) => {
    at("groups").append(group(`${question.titles[i]}: ${count(question.sizes[i], "sample")}`, rows, i === 0));
  });
  for (const [text, value] of question.answers) {
    const button = make("button", { type: "button", textContent: `${text} (${keyOf(value)})` });
    button.dataset.key = keyOf(value);
    button.addEventListener("click", () => tell("answer", { answer: value }));
    at("answers").append(button);
  }
}

function showProgress() {
  const question = state.question;
  const parts = [count(state.answered, "answer"), count(state.cards.length, "cluster")];
  if (question) parts.push(`this answer may move ${count(question.changes, "sample")}`);
  if (question && question.source === "labels") parts.push("the provider's labels suggest it");
  parts.push(state.worth ? `${count(state.worth, "question")} may be worth asking` : "further answers will change little");
  at("progress").textContent = parts.join(" · ");
}

function showClusters() {
  const options = (cards) => cards.map((card) => make("option", { value: card.number, textContent: nameOf(card.number) }));
  const kept = at("move-to").value;
  at("move-to").replaceChildren(...options(state.cards));
  at("move-to").value = kept;
  if (!at("move-to").value && state.cards.length) at("move-to").value = state.cards[0].number;
  at("cards").replaceChildren(...state.cards.map((card) => {
    const box = group(`${nameOf(card.number)}: ${count(card.size, "sample")}`, card.typical, false);
    const name = make("input", { value: state.names[card.number] ?? "", maxLength: 80, autocomplete: "off" });
    name.addEventListener("change", () => tell("name", { cluster: card.number, name: name.value }));
    const others = state.cards.filter((other) => other !== card);
    const select = make("select", {}, [make("option", { value: "", textContent: "no other cluster" }), ...options(others)]);
    select.addEventListener("change", () => select.value && tell("join", { one: card.number, other: Number(select.value) }));
    box.append(make("label", { className: "buttons" }, ["Name ", name]));
    box.append(make("label", { className: "buttons" }, ["Same as ", select]));
    return box;
  }));
}

function drawMap() {
  const canvas = at("map");
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const spot = (i) => [8 + fixed.x[i] / 1000 * (width - 16), 8 + fixed.y[i] / 1000 * (height - 16)];
  state.clusters.forEach((number, i) => {
    pen.fillStyle = COLOURS[number % COLOURS.length];
    const [x, y] = spot(i);
    pen.fillRect(x - 2, y - 2, 4, 4);
  });
  if (!state.question) return;
  pen.strokeStyle = getComputedStyle(document.body).color;
  for (const i of state.question.doubtful) {
    pen.beginPath();
    pen.arc(...spot(i), 6, 0, 7);
    pen.stroke();
  }
}

function show(next) {
  state = next;
  at("title").textContent = `Review of ${fixed.run}`;
  at("undo").disabled = state.answered === 0;
  at("finish").disabled = state.answered === 0;
  showProgress();
  showQuestion();
  showClusters();
  drawMap();
}

async function load() {
  fixed ??= await (await fetch("fixed")).json();
  pictured ??= new Set(fixed.pictures);
  show(await (await fetch("state")).json());
}

async function tell(action, values = {}) {
  if (busy) return;
  busy = true;
  try {
    const body = JSON.stringify({ ...values, action, number: state.number });
    const response = await fetch("tell", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    const found = await response.json();
    if (response.status === 409) await load();
    else if (response.ok && !found.finished) show(found);
    at("said").textContent = found.error || found.finished || "";
  } catch {
    at("said").textContent = "The review has ended: start it again with the same command. All answers are kept.";
  } finally {
    busy = false;
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT"].includes(event.target.tagName)) return;
  const key = event.key.toUpperCase();
  if (key === "U") at("undo").click();
  document.querySelector(`#answers button[data-key="${CSS.escape(key)}"]`)?.click();
});
at("undo").addEventListener("click", () => tell("undo"));
at("finish").addEventListener("click", () => tell("finish"));
at("move").addEventListener("click", () => {
  const rows = [...chosen];
  chosen.clear();
  at("move").disabled = true;
  tell("move", { rows, to: Number(at("move-to").value) });
});
window.addEventListener("resize", () => state && drawMap());
load();
