// The right side: the question that is open, or what is chosen and what can be done with it.

import { html, useEffect, useState } from "./01_kept.js";
import { ASIDE, between, count, findGroup, nameOf } from "./02_groups.js";
import { choose, chooseRows, data, name, set, state, view } from "./03_store.js";
import { answer, ask, findLike, join, move, preview, rename, setAside } from "./04_server.js";
import { swatch } from "./05_colours.js";
import { Picture, Pictures } from "./06_pictures.js";

const ANSWER_KEYS = { one: "1", two: "2", new: "N", mixed: "M", skip: "S" };
const chooseOne = (row, event) => choose(row, { toggle: event.ctrlKey || event.metaKey }, [], between);

function Question() {
  if (state.open?.of !== state.now.number) return html`<h2>Looking for the next question …</h2>`;
  const { question, worth } = state.open;
  const { answered } = state.now;
  if (!question) return html`<h2>Nothing is left to ask</h2><p class="soft">${count(answered, "action")} so far.</p>`;
  return html`<h2>${question.text}</h2>
    <p class="buttons answers">${question.answers.map(([words, given]) => {
      const key = typeof given === "number" ? String(given + 1) : ANSWER_KEYS[given];
      return html`<button type="button" key=${given} class="main" data-key=${key}
        onClick=${() => answer(given, words)}>${words} (${key})</button>`;
    })}</p>
    ${question.groups.map(
      (rows, i) => html`<section key=${i} class=${i ? "asked" : "asked first"}>
      <h3>${question.titles[i]}: ${count(question.sizes[i], data.what)}</h3>
      <${Pictures} rows=${rows} title=${question.titles[i]} choose=${chooseOne} /></section>`,
    )}
    <p class="soft">This answer may move ${count(question.changes, data.what)}.
      ${question.source === "labels" ? " The provider's labels suggest it." : ""}
      ${worth ? ` ${count(worth, "more question")} may help.` : " Further answers will change little."}</p>
    <p class="buttons"><button type="button"
      onClick=${() => chooseRows(question.doubtful)}>Choose all of the first group</button></p>`;
}

// A field that takes a cluster by the first letters of its name, or its number.
function MoveTo() {
  const [text, setText] = useState("");
  const found = findGroup(text, state.groups);
  const go = (event) => {
    event.preventDefault();
    if (!found) return;
    setText("");
    if (found.number === ASIDE) setAside();
    else move(found.number);
  };
  return html`<form class="row" onSubmit=${go}>
    <label>Move to <input id="move-to" list="clusters" autocomplete="off" value=${text}
      onInput=${(event) => setText(event.target.value)} /></label>
    <datalist id="clusters">${state.groups.map((group) => html`<option key=${group.number}
      value=${group.name}></option>`)}</datalist>
    <button type="submit" disabled=${!found}>${found ? `Move to ${found.name}` : "Move"}</button></form>`;
}

function ChosenActions() {
  return html`<${MoveTo} />
    <p class="buttons"><button type="button" onClick=${() => move("new")}>New cluster (C)</button>
      <button type="button" onClick=${setAside}>Set aside (X)</button></p>`;
}

function Facts({ row }) {
  const { clusters, sure, second } = view();
  const facts = [
    ["Cluster", name(clusters[row])],
    ["Sure", `${sure[row]}%`],
  ];
  if (second[row] >= 0 && second[row] !== clusters[row])
    facts.push(["Second choice", nameOf(second[row], state.now.names)]);
  if (data.labels?.[row] >= 0) facts.push(["Provider's label", data.labels[row]]);
  if (data.texts?.[row] && data.pictures) facts.push(["Text", data.texts[row]]);
  return html`<div class="large"><${Picture} row=${row} large /></div><h2 class="id">${data.ids[row]}</h2>
    <dl>${facts.map(([term, value]) => html`<dt>${term}</dt><dd>${value}</dd>`)}</dl>`;
}

function Near() {
  return html`<section><h3>Like ${state.near.of}</h3>
    <ul class="near">${state.near.rows.map(
      (row) => html`<li key=${row}><${Pictures} rows=${[row]} title=${data.ids[row]} choose=${chooseOne} />
      <span>${swatch(view().clusters[row])} ${name(view().clusters[row])}</span></li>`,
    )}</ul>
    <p class="buttons"><button type="button"
      onClick=${() => set({ chosen: new Set(state.near.rows), asking: false })}>Choose all of these</button>
      <button type="button" onClick=${() => set({ near: null })}>Close</button></p></section>`;
}

// What can be done with one cluster, or several.
function Picked() {
  const groups = state.groups.filter((group) => state.picked.has(group.number) && group.number !== ASIDE);
  const [parts, setParts] = useState(2);
  const [proposed, propose] = useState([]);
  const only = groups.length === 1 ? groups[0] : null;
  const live = state.live && !state.preview;
  useEffect(() => {
    let stale = false;
    propose([]);
    if (only && live) ask(`suggest/${only.number}`).then((found) => !stale && propose(found?.words ?? []));
    return () => (stale = true);
  }, [only?.number, state.now.number]);
  if (groups.length > 1) {
    return html`<h2>${groups.length} clusters</h2><ul>${groups.map((group) => html`<li key=${group.number}>
      ${swatch(group.number)} ${group.name}</li>`)}</ul>
      ${live && html`<p class="buttons"><button type="button" id="join" class="main"
        onClick=${join}>Join ${groups.length} clusters (J)</button></p>`}`;
  }
  if (!only) return null;
  const outside = view()
    .second.flatMap((number, row) => (number === only.number && view().clusters[row] !== number ? [row] : []))
    .sort((a, b) => view().sure[a] - view().sure[b])
    .slice(0, 9);
  const cut = (event) => {
    event.preventDefault();
    preview("split", { cluster: only.number, parts }, `split ${only.name} into ${parts}`);
  };
  return html`<h2>${swatch(only.number)} ${only.name}</h2>
    <p class="soft">${count(only.rows.length, data.what)}, ${Math.round(100 - 100 * only.doubt)}% sure on average</p>
    ${
      live &&
      html`<label class="row">Name <input id="name" key=${`${only.number} ${state.now.number}`} maxlength="80"
        autocomplete="off" defaultValue=${state.now.names[only.number] ?? ""}
        onChange=${(event) => rename(only.number, event.target.value.trim())} /></label>
      ${proposed.length > 0 && html`<p class="buttons suggested">${proposed.map((word) => html`<button type="button"
        key=${word} onClick=${() => rename(only.number, word)}>${word}</button>`)}</p>`}
      <form class="row" onSubmit=${cut}><label>Split into <input type="number" id="parts" min="2" max="6"
        value=${parts} onInput=${(event) => setParts(Number(event.target.value))} /></label>
      <button type="submit">Show the parts</button></form>`
    }
    ${outside.length > 0 && html`<section><h3>Just outside</h3><${Pictures} rows=${outside} title="Just outside"
      choose=${chooseOne} /></section>`}`;
}

function Chosen() {
  const rows = [...state.chosen];
  const row = state.focus;
  return html`
    ${rows.length > 1 && html`<h2>${count(rows.length, data.what)} chosen</h2>`}
    ${row >= 0 && html`<${Facts} row=${row} />`}
    ${rows.length > 0 && state.live && !state.preview && html`<${ChosenActions} />`}
    ${row >= 0 && html`<p class="buttons"><button type="button" id="like"
      onClick=${() => findLike(rows.length ? rows : [row])}>Like this (L)</button></p>`}
    ${state.near && html`<${Near} />`}
    ${row < 0 && html`<${Picked} />`}
    ${row < 0 && !state.picked.size && html`<p
      class="soft">Choose pictures in the middle, or clusters on the left.</p>`}`;
}

export function Side() {
  const asking = state.asking && state.live && !state.preview;
  const tab = (is, words) =>
    html`<button type="button" aria-pressed=${asking === is} onClick=${() => set({ asking: is })}>${words}</button>`;
  return html`<aside class="right" aria-label="Details">
    ${state.live && !state.preview && html`<p class="tabs">${tab(true, "Question (Q)")}${tab(false, "What is chosen")}
      </p>`}
    <div id="side">${asking ? html`<${Question} />` : html`<${Chosen} />`}</div></aside>`;
}
