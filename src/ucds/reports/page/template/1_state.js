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
  return `pair ${Math.min(...c.pair)} ${Math.max(...c.pair)}`;
}

function sentence(c) {
  if (c.kind === "moved") return `${DATA.ids[c.sample]} belongs to ${clusterName(c.to)}`;
  if (c.kind === "merged") return `${clusterName(c.one)} and ${clusterName(c.other)} are one`;
  const [one, other] = c.pair.map((i) => DATA.ids[i]);
  return `${one} and ${other} belong ${c.kind === "same" ? "to one cluster" : "to two clusters"}`;
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
  const of = (kind) => state.corrections.filter((c) => c.kind === kind);
  const pairs = (kind) => of(kind).map((c) => c.pair.map((i) => DATA.ids[i]));
  return {
    format: "ucds-corrections/1",
    model: DATA.model,
    merged: of("merged").map((c) => ({ clusters: [c.one, c.other], samples: [typicalIds(c.one), typicalIds(c.other)] })),
    moved: of("moved").map((c) => ({ sample: DATA.ids[c.sample], cluster: c.to, with: typicalIds(c.to) })),
    same: pairs("same"),
    different: pairs("different"),
  };
}

// Takes over the content of a saved file; returns what is wrong with it, or nothing.
function readFile(content) {
  if (content.model !== DATA.model) return "This file was saved from the report of another model.";
  const place = new Map(DATA.ids.map((id, i) => [id, i]));
  if (content.format === "ucds-names/1") {
    state.names = { ...content.names };
  } else if (content.format === "ucds-corrections/1") {
    const pairs = (kind) => content[kind].map((ids) => ({ kind, pair: ids.map((id) => place.get(id)) }));
    state.corrections = [
      ...content.merged.map((c) => ({ kind: "merged", one: c.clusters[0], other: c.clusters[1] })),
      ...content.moved.map((c) => ({ kind: "moved", sample: place.get(c.sample), to: c.cluster })),
      ...pairs("same"),
      ...pairs("different"),
    ].filter((c) => [c.sample ?? 0, ...(c.pair ?? [])].every((i) => i !== undefined));
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
