"use strict";
// What a person enters: names of clusters, and answers to questions. All that changes passes through this file.

const DATA = JSON.parse(document.getElementById("data").textContent);
const find = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const KEPT = `ucds ${DATA.model} ${DATA.run}`; // an unsaved state survives the loss of the page

const state = { names: { ...DATA.names }, answers: {} };
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

function setAnswer(question, choice) {
  if (choice) state.answers[question] = Number(choice);
  else delete state.answers[question];
  changed();
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

function namesFile() {
  return JSON.stringify({ format: "ucds-names/1", model: DATA.model, names: state.names }, null, 1) + "\n";
}

// Takes over the content of a saved file; returns what is wrong with it, or nothing.
function readFile(content) {
  if (content.model !== DATA.model) return "This file was saved from the report of another model.";
  if (content.format !== "ucds-names/1") return "This file holds no names.";
  state.names = { ...content.names };
  changed();
  return "";
}

// One line of JSON for the header and for each answer, as `ucds review --answers` takes them.
function answersFile() {
  const records = Object.entries(state.answers).map(([question, choice], i) => ({ ...DATA.records[question][choice], number: i + 1 }));
  return [DATA.header, ...records].map((line) => JSON.stringify(line) + "\n").join("");
}

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
  unsaved = false;
}
