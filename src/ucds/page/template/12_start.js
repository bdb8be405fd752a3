// Reads samples and clusters, from the file or from the server; shows the page; follows keys and dropped files.

import { html, render } from "./01_kept.js";
import { chooseRows, set, setClusters, setData, data, shownRows, state, watch } from "./03_store.js";
import {
  ask,
  askQuestion,
  dropPreview,
  findLike,
  findLikeFile,
  join,
  move,
  redo,
  setAside,
  undo,
} from "./04_server.js";
import { darkness } from "./05_colours.js";
import { openFiner, Page } from "./11_frame.js";

// Sets the focus when the page has been drawn, which was asked for before.
const focus = (selector) => requestAnimationFrame(() => /** @type {any} */ (document.querySelector(selector))?.focus());

const DOES = {
  t: () => {
    set({ asking: false, screen: "side" });
    focus("#move-to");
  },
  c: () => move("new"),
  x: setAside,
  Delete: setAside,
  j: join,
  f: openFiner,
  u: undo,
  r: redo,
  l: () => findLike(state.chosen.size ? [...state.chosen] : [state.focus].filter((row) => row >= 0)),
  q: () => set({ asking: true, screen: "side" }),
};
const LOOKS = {
  g: () => {
    set({ mode: "grid", screen: "middle" });
    focus("#grid");
  },
  k: () => {
    set({ mode: "map", screen: "middle" });
    focus("#map");
  },
  l: DOES.l,
  "?": () => set({ dialog: "help" }),
  "/": () => {
    set({ screen: "left" });
    focus("#search");
  },
  Escape: () => (state.preview || state.finer ? (set({ finer: null }), dropPreview()) : chooseRows([])),
};
const WITH_CONTROL = { a: () => chooseRows(shownRows()), z: undo, y: redo };

/** @type {(event: KeyboardEvent) => void} */
function followKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (
    state.dialog ||
    event.altKey ||
    (["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName) && event.key !== "Escape")
  )
    return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  let does = LOOKS[key] ?? (state.live ? DOES[key] : undefined);
  if (event.ctrlKey || event.metaKey) does = key === "z" && event.shiftKey ? redo : WITH_CONTROL[key];
  const button = /** @type {HTMLElement | null} */ (
    document.querySelector(`.answers button[data-key="${CSS.escape(key.toUpperCase())}"]`)
  );
  if (button && !event.ctrlKey && !event.metaKey) does = () => button.click();
  if (!does) return;
  event.preventDefault();
  does();
}

function followDrops() {
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    const file = event.dataTransfer?.files[0];
    event.preventDefault();
    if (file && state.live) findLikeFile(file);
  });
}

async function start() {
  const written = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
  const live = !written.fixed;
  const [fixed, now] = live ? await Promise.all([ask("fixed"), ask("state")]) : [written.fixed, written.now];
  if (!fixed || !now) return void (document.body.textContent = state.said);
  if (!live) fixed.about = document.getElementById("about-text")?.innerHTML;
  setData({ ...fixed, missing: new Set(fixed.missing), foldered: fixed.ids.some((id) => id.includes("/")) });
  document.title = data.title;
  Object.assign(state, { live, asking: live });
  setClusters({ now });
  const show = () => render(html`<${Page} />`, document.getElementById("page"));
  let waiting = false;
  watch(() => {
    if (!waiting)
      requestAnimationFrame(() => {
        waiting = false;
        show();
      });
    waiting = true;
  });
  darkness.addEventListener("change", () => set({}));
  addEventListener("keydown", followKey);
  followDrops();
  show();
  if (live) askQuestion();
  const askMap = () => ask("map").then((places) => places && (setData({ ...data, ...places }), set({})));
  if (live) setTimeout(askMap, data.placed ? 0 : 1500); // the first pictures come before what keeps a processor busy
}

start();
