// The frame around the three parts: the head with what concerns all clusters, the preview, and the dialogs.

import { html, render, useEffect, useRef, useState } from "./01_kept.js";
import { between, count } from "./02_groups.js";
import { choose, data, set, state } from "./03_store.js";
import { ask, dropPreview, finish, preview, redo, takePreview, undo } from "./04_server.js";
import { Clusters } from "./07_clusters.js";
import { Grid } from "./08_grid.js";
import { Plane } from "./09_map.js";
import { Picture } from "./06_pictures.js";
import { Side } from "./10_side.js";

/** @type {(props: {id: string, title: string, children?: any}) => any} */
function Dialog({ id, title, children }) {
  const holder = useRef(/** @type {any} */ (null));
  useEffect(() => holder.current.showModal(), []);
  return html`<dialog ref=${holder} id=${id} aria-labelledby="${id}-title" onClose=${() => set({ dialog: "" })}>
    <h2 id="${id}-title" tabindex="-1" autofocus>${title}</h2>${children}
    <p class="buttons end"><button type="button" onClick=${() => holder.current.close()}>Close</button></p></dialog>`;
}

// What the run is: sentences, figures and tables, which a file carries and a server writes when they are asked for.
function About() {
  const holder = useRef(/** @type {any} */ (null));
  const [text, setText] = useState(data.about ?? "");
  useEffect(() => void (text || ask("about").then((found) => found && setText((data.about = found.html)))), []);
  useEffect(() => {
    for (const place of holder.current.querySelectorAll("[data-picture]"))
      render(html`<${Picture} row=${Number(place.dataset.picture)} />`, place);
    for (const cell of holder.current.querySelectorAll("[data-share]")) {
      cell.style.background = `color-mix(in srgb, var(--accent) ${cell.dataset.share}%, var(--card))`;
      if (cell.dataset.share > 50) cell.style.color = "var(--on-accent)";
    }
  }, [text]);
  const click = (event) => {
    const row = event.target.closest("[data-sample]")?.dataset.sample;
    if (row === undefined) return;
    choose(Number(row), {}, [], between);
    set({ dialog: "", screen: "side" });
  };
  return html`<${Dialog} id="about" title="About this run"><div ref=${holder} onClick=${click}
    dangerouslySetInnerHTML=${{ __html: text }}></div>
    ${text ? null : html`<p class="soft">Reading the run …</p>`}<//>`;
}

function TakeAway() {
  const { task } = state;
  const run = useRef(/** @type {any} */ (null));
  const start = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    finish({ run: form.has("run"), table: form.get("table"), folders: form.get("folders") });
  };
  const choice = (label, name, values) =>
    html`<label class="row">${label} <select name=${name}>${values.map(([value, words]) => html`<option
      value=${value}>${words}</option>`)}</select></label>`;
  return html`<${Dialog} id="finish" title="Finish, and save the result"><form onSubmit=${start}>
    <label class="row"><input type="checkbox" name="run" ref=${run} defaultChecked=${state.now.answered > 0}
      disabled=${!state.now.answered} /> A new run that sorts images as you did</label>
    ${choice("Table of all samples", "table", [
      ["", "none"],
      ["csv", "CSV, for Excel"],
      ["parquet", "Parquet"],
    ])}
    ${
      data.sortable &&
      choice("A folder for each cluster", "folders", [
        ["", "none"],
        ["copy", "with copies of the images"],
        ["link", "with links to the images"],
      ])
    }
    ${data.left_out > 0 && html`<p class="soft">
      ${count(data.left_out, data.what)} are not in the review. They go where the model of the new run puts them.</p>`}
    <p class="buttons"><button type="submit" class="main" disabled=${task?.running}>Write</button></p></form>
    ${task && html`<p role="status">${task.error ?? task.done ?? task.title}</p>`}
    ${task?.running && html`<progress aria-label="Progress"
      value=${task.total ? task.at / task.total : undefined}></progress>`}<//>`;
}

const LIVE = true; // for keys that a report as a file does not follow
/** @type {[string, string, boolean?][]} */
const KEYS = [
  ["Arrows", "go to another picture; with Shift, choose all on the way"],
  ["Space", "choose a picture, or drop it"],
  ["Ctrl-A", "choose all pictures that are shown"],
  ["T", "move the choice: type a name or number", LIVE],
  ["C", "make the choice a new cluster", LIVE],
  ["X", "set the choice aside", LIVE],
  ["L", "show pictures like the choice"],
  ["J", "join the chosen clusters", LIVE],
  ["F", "make the clusters coarser or finer", LIVE],
  ["U, Ctrl-Z", "undo the last action", LIVE],
  ["R, Ctrl-Y", "redo what was undone", LIVE],
  ["Q", "show the question; its buttons name their keys", LIVE],
  ["G, K", "grid, map"],
  ["/", "find a cluster"],
  ["Esc", "close a preview, or clear the choice"],
];

const Help =
  () => html`<${Dialog} id="help" title="Keys"><dl class="keys">${KEYS.filter(([, , live]) => state.live || !live).map(
    ([key, does]) => html`<dt>${key}</dt><dd>${does}</dd>`,
  )}</dl>
  ${state.live ? html`<p
    class="soft">Drop a picture file on the page to see what is like it. Drag chosen pictures onto a cluster on the left to move them.</p>` : null}<//>`;

// The slider from coarse to fine, while it is open, and what a preview would change.
function Preview() {
  const timer = useRef(0);
  const [n, setN] = useState(0);
  if (!state.finer && !state.preview) return null;
  const slide = (event) => {
    const wanted = Number(event.target.value);
    setN(wanted);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => preview("cut", { n: wanted }, `${wanted} clusters`), 150);
  };
  const close = (then) => () => {
    set({ finer: null });
    setN(0);
    then();
  };
  const changed = count(Object.keys(state.preview?.origins ?? {}).length, "cluster");
  const words = state.preview
    ? `Preview: ${state.preview.title}. ${changed} would change.`
    : "Slide to see other numbers of clusters.";
  return html`<div class="preview" role="region" aria-label="Preview">
    ${
      state.finer &&
      html`<label>Coarse <input type="range" id="finer" min=${state.finer.least} max=${state.finer.most}
        value=${n || state.finer.now}
      aria-valuetext=${count(n || state.finer.now, "cluster")} onInput=${slide} /> fine</label> <strong>
        ${count(n || state.finer.now, "cluster")}</strong>`
    }
    <span>${words}</span>
    <button type="button" id="take" class="main" disabled=${!state.preview} onClick=${close(takePreview)}>Take</button>
    <button type="button" onClick=${close(dropPreview)}>Cancel (Esc)</button></div>`;
}

export async function openFiner() {
  const found = await ask("cuts");
  if (found) set({ finer: found, screen: "middle" });
}

function Head() {
  const option = (value, words) => html`<option value=${value}>${words}</option>`;
  const select = (label, key, options) =>
    html`<label><span class="word">${label}</span> <select aria-label=${label} value=${state[key]}
      onChange=${(event) => set({ [key]: event.target.value })}>${options}</select></label>`;
  return html`<header><h1>${data.title}</h1>
    <p class="buttons">${
      state.live
        ? html`<button type="button" id="undo" disabled=${!state.now.can_undo} onClick=${undo}>Undo</button>
        <button type="button" id="redo" disabled=${!state.now.can_redo} onClick=${redo}>Redo</button>
        <button type="button" onClick=${openFiner}>Coarser or finer</button>
        <button type="button" id="open-finish" class="main" onClick=${() => set({ dialog: "finish" })}>Finish</button>`
        : html`<span class="soft">To change the clusters, run <code>ucds review ${data.run}</code>.</span>`
    }
      <button type="button" id="open-about" onClick=${() => set({ dialog: "about" })}>About</button>
      <button type="button" aria-label="Keys" onClick=${() => set({ dialog: "help" })}>?</button></p>
    <p class="buttons tools-row"><span class="tabs"><button type="button" aria-pressed=${state.mode === "grid"}
      onClick=${() => set({ mode: "grid" })}>Grid</button>
      <button type="button" id="open-map" aria-pressed=${state.mode === "map"}
        onClick=${() => set({ mode: "map" })}>Map</button></span>
      ${select("Show", "show", [
        option("all", "everything"),
        option("doubtful", "doubtful"),
        data.labels && option("overruled", "overruled labels"),
        data.outliers && option("outliers", "unlike all others"),
        data.twins && option("twins", "near-duplicates"),
      ])}
      ${
        state.mode === "grid"
          ? select("First", "order", [option("typical", "most typical"), option("doubtful", "most doubtful")])
          : select("Colour", "colour", [
              option("cluster", "by cluster"),
              option("confidence", "by confidence"),
              data.labels && option("label", "by provider's label"),
              data.foldered && option("folder", "by folder"),
            ])
      }
      ${state.mode === "grid" && html`<label><span class="word">Size</span> <input type="range" id="picture-side"
        aria-label="Size of the pictures" min="64" max="256" step="16" value=${state.side}
          onInput=${(event) => set({ side: Number(event.target.value) })} /></label>`}</p></header>`;
}

export function Page() {
  const screen = (is, words) =>
    html`<button type="button" aria-pressed=${state.screen === is} onClick=${() => set({ screen: is })}>${words}
      </button>`;
  const drawing = html`<p class="soft waiting">Drawing the map …</p>`; // a server takes its time for many samples
  const map = data.x ? html`<${Plane} />` : drawing;
  const middle = state.mode === "map" ? map : html`<${Grid} />`;
  return html`<div class="frame" data-screen=${state.screen}><${Head} />
    <${Clusters} />
    <main><${Preview} />${middle}</main>
    <${Side} />
    <p id="said" role="status" aria-live="polite">${state.said || data.note}</p>
    <nav class="screens" aria-label="Screens">
      ${screen("left", "Clusters")}${screen("middle", "Pictures")}${screen("side", state.chosen.size ? `Chosen (${state.chosen.size})` : "Details")}</nav>
    ${state.dialog === "about" && html`<${About} />`}${state.dialog === "finish" && html`<${TakeAway} />`}${state.dialog === "help" && html`<${Help} />`}</div>`;
}
