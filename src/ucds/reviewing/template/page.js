"use strict";
const COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999", "#e07b39", "#117733", "#882255"];
const PICTURES = new Set(FIXED.pictures);
const at = (id) => document.getElementById(id);
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
  const name = FIXED.ids[row];
  if (PICTURES.has(row)) button.append(make("img", { src: `picture/${row}`, alt: name, loading: "lazy" }));
  else button.append(name);
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

function answers(question) {
  const found = [];
  if (question.kind === "one-or-two") found.push(["1", "One group", "one"], ["2", "Two groups", "two"]);
  else {
    question.clusters.slice(1).forEach((number, i) => found.push([String(i + 1), `Cluster ${number}`, i]));
    found.push(["N", "A group of its own", "new"]);
  }
  found.push(["M", "Mixed", "mixed"], ["S", "Don't know", "skip"]);
  return found;
}

function showQuestion() {
  const question = state.question;
  at("groups").replaceChildren();
  at("answers").replaceChildren();
  if (question === null) {
    at("question-title").textContent = "Nothing is left to ask";
    return;
  }
  const two = question.kind === "one-or-two";
  at("question-title").textContent = two ? "Are these one group, or two?" : "Where does the first group belong?";
  question.groups.forEach((rows, i) => {
    const name = i === 0 && !two ? "In doubt" : `Cluster ${question.clusters[i]}`;
    at("groups").append(group(`${name}: ${question.sizes[i]} samples`, rows, i === 0));
  });
  for (const [key, text, value] of answers(question)) {
    const button = make("button", { type: "button", textContent: `${text} (${key})` });
    button.dataset.key = key;
    button.addEventListener("click", () => tell("answer", { answer: value }));
    at("answers").append(button);
  }
}

function showProgress() {
  const question = state.question;
  const parts = [`${state.answered} ${state.answered === 1 ? "answer" : "answers"}`, `${state.cards.length} clusters`];
  if (question) parts.push(`this answer may move ${question.changes} samples`);
  parts.push(state.worth ? "further answers are probably worth their time" : "further answers will change little");
  if (question && question.source === "labels") parts.push("the provider's labels suggest it");
  at("progress").textContent = parts.join(" · ");
}

function showClusters() {
  const kept = at("move-to").value;
  at("move-to").replaceChildren(...state.cards.map((card) => make("option", { value: card.number, textContent: `cluster ${card.number}` })));
  at("move-to").value = kept;
  if (!at("move-to").value && state.cards.length) at("move-to").value = state.cards[0].number;
  at("cards").replaceChildren(...state.cards.map((card) => {
    const box = group(`Cluster ${card.number}: ${card.size} samples`, card.typical, false);
    const others = state.cards.filter((other) => other !== card);
    const options = [make("option", { value: "", textContent: "no other cluster" })];
    options.push(...others.map((other) => make("option", { value: other.number, textContent: `cluster ${other.number}` })));
    const select = make("select", {}, options);
    select.addEventListener("change", () => select.value && tell("join", { one: card.number, other: Number(select.value) }));
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
  const spot = (i) => [8 + FIXED.x[i] / 1000 * (width - 16), 8 + FIXED.y[i] / 1000 * (height - 16)];
  state.clusters.forEach((number, i) => {
    pen.fillStyle = COLOURS[number % COLOURS.length];
    const [x, y] = spot(i);
    pen.fillRect(x - 2, y - 2, 4, 4);
  });
  if (!state.question) return;
  pen.strokeStyle = getComputedStyle(document.body).color;
  for (const i of state.question.groups[0]) {
    pen.beginPath();
    pen.arc(...spot(i), 6, 0, 7);
    pen.stroke();
  }
}

function show(next) {
  state = next;
  at("title").textContent = `Review of ${FIXED.run}`;
  at("undo").disabled = state.answered === 0;
  at("finish").disabled = state.answered === 0;
  showProgress();
  showQuestion();
  showClusters();
  drawMap();
}

async function load() {
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
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
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
