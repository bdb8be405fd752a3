"use strict";
// What a person enters: names of clusters and corrections. All that changes passes through this file.

const DATA = JSON.parse(document.getElementById("data").textContent);
const find = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const KEPT = `ucds ${DATA.model} ${DATA.run}`; // an unsaved state survives the loss of the page

const state = { names: { ...DATA.names }, corrections: [] };
let unsaved = false;

function clusterName(k) {
  return state.names[k] ? `${state.names[k]} (${k})` : `cluster ${k}`;
}

function setName(k, text) {
  const name = text.trim();
  if (name) state.names[k] = name;
  else delete state.names[k];
  changed();
}

// A correction about the same things replaces the earlier one.
function correct(correction) {
  state.corrections = state.corrections.filter((other) => subject(other) !== subject(correction));
  state.corrections.push(correction);
  changed();
}

function withdraw(correction) {
  state.corrections = state.corrections.filter((other) => subject(other) !== subject(correction));
  changed();
}

function subject(c) {
  if (c.kind === "moved") return `moved ${c.sample}`;
  if (c.kind === "merged") return `merged ${Math.min(c.one, c.other)} ${Math.max(c.one, c.other)}`;
  return `question ${c.question}`;
}

function sentence(c) {
  if (c.kind === "moved") return `${DATA.ids[c.sample]} belongs to ${clusterName(c.to)}`;
  if (c.kind === "merged") return `${clusterName(c.one)} and ${clusterName(c.other)} are one`;
  const [one, other] = DATA.questions[c.question].map((group) => DATA.ids[group[0]]);
  return `What is like ${one} and what is like ${other} are ${c.kind === "same" ? "one cluster" : "two clusters"}`;
}

function moveOf(sample) {
  return state.corrections.find((c) => c.kind === "moved" && c.sample === sample);
}

function changed() {
  unsaved = true;
  try {
    localStorage.setItem(KEPT, JSON.stringify(state));
  } catch {
    // Some browsers keep nothing for files; saving by the buttons works everywhere.
  }
  document.dispatchEvent(new Event("entered"));
}

function recall() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT));
    if (kept) Object.assign(state, kept);
  } catch {
    return;
  }
}

// Numbers of clusters change with the next training; typical samples stand for the cluster in the file.
const typicalIds = (k) => DATA.typical[k].map((i) => DATA.ids[i]);

function namesFile() {
  return { format: "ucds-names/1", model: DATA.model, names: state.names };
}

function correctionsFile() {
  const groups = (c) => {
    if (c.kind === "moved") return { one: [DATA.ids[c.sample]], other: typicalIds(c.to) };
    if (c.kind === "merged") return { one: typicalIds(c.one), other: typicalIds(c.other) };
    const [one, other] = DATA.questions[c.question].map((group) => group.map((i) => DATA.ids[i]));
    return { one, other };
  };
  const apart = state.corrections.filter((c) => c.kind === "different");
  const together = state.corrections.filter((c) => c.kind !== "different");
  return { format: "ucds-corrections/1", model: DATA.model, together: together.map(groups), apart: apart.map(groups) };
}

// Takes over the content of a saved file; returns what is wrong with it, or nothing.
function readFile(content) {
  if (content.model !== DATA.model) return "This file was saved from the report of another model.";
  const place = new Map(DATA.ids.map((id, i) => [id, i]));
  if (content.format === "ucds-names/1") {
    state.names = { ...content.names };
  } else if (content.format === "ucds-corrections/1") {
    const asked = DATA.questions.map((groups) => JSON.stringify(groups));
    const recover = (kind) => (pair) => {
      const [one, other] = [pair.one, pair.other].map((ids) => ids.map((id) => place.get(id)));
      const question = asked.indexOf(JSON.stringify([one, other]));
      if (question >= 0) return { kind, question };
      const to = DATA.cluster[other[0]];
      return one.length === 1 ? { kind: "moved", sample: one[0], to } : { kind: "merged", one: DATA.cluster[one[0]], other: to };
    };
    state.corrections = [...content.together.map(recover("same")), ...content.apart.map(recover("different"))];
  } else {
    return "This file holds neither names nor corrections.";
  }
  changed();
  return "";
}

function download(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(content, null, 1) + "\n"], { type: "application/json" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
