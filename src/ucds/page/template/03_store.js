// All that the page knows: the samples, which never change; the clusters, which the server tells; what a person chose.

import { arrangeGroups, findOverruled, makeGroups, orderRows } from "./02_groups.js";

/** @type {any} */
export let data = {}; // ids, texts, places on the map, and more that no action changes; see `fixed` in session.py

/** @type {any} */
export const state = {
  live: false, // whether a server carries out what a person does
  now: null, // clusters, names, question: see `state` in session.py
  preview: null, // what a split or another number of clusters would make, until it is taken
  groups: [], // of the preview, or else of the clusters as they are
  picked: new Set(), // clusters whose pictures are shown; all if none is
  chosen: new Set(), // rows that the next action is about
  focus: -1, // row that is shown at the right
  anchor: -1, // row from which a range is chosen
  near: null, // rows that are like the chosen ones, and to what
  mode: "grid",
  sort: "size",
  order: "typical",
  show: "all",
  colour: "cluster",
  search: "",
  side: 112,
  screen: "middle", // of a phone
  open: null, // the question that is open: see `question` in session.py
  asking: true, // whether the question is shown, not what is chosen
  dialog: "",
  task: null, // finish, while it runs
  said: "",
};

const watchers = new Set();

/** @type {(watcher: () => void) => void} */
export const watch = (watcher) => void watchers.add(watcher);

/** @type {(changes: object) => void} */
export function set(changes) {
  Object.assign(state, changes);
  for (const watcher of watchers) watcher();
}

/** @type {(text: string) => void} */
export const say = (text) => set({ said: text });

/** @type {(fixed: object) => void} */
export function setData(fixed) {
  data = fixed;
}

// Takes over what the server says of the clusters; choices of what is no more are dropped.
/** @type {(changes: {now?: object, preview?: object | null}) => void} */
export function setClusters(changes) {
  Object.assign(state, changes);
  state.groups = makeGroups(view(), state.now.names);
  const there = new Set(state.groups.map((group) => group.number));
  state.picked = new Set([...state.picked].filter((number) => there.has(number)));
  set({});
}

export const view = () => (state.preview ? { ...state.now, ...state.preview } : state.now);
export const name = (number) => state.groups.find((group) => group.number === number)?.name ?? `cluster ${number}`;
export const groupOf = (row) => view().clusters[row];
export const listed = () => arrangeGroups([...state.groups], state.sort, state.search, data.ids);

/** @type {{key: any[], rows: number[]}} */
let shown = { key: [], rows: [] };

// Rows of the grid, in their order. They are sorted anew only if something changed that they depend on.
export function shownRows() {
  const key = [state.now, state.preview, state.show, state.order, state.sort, [...state.picked].join()];
  if (key.every((value, i) => value === shown.key[i])) return shown.rows;
  const groups = arrangeGroups([...state.groups], state.sort, "", data.ids).filter(
    (group) => !state.picked.size || state.picked.has(group.number),
  );
  const now = view();
  const among = (rows) => {
    const found = new Set(rows);
    return (row) => found.has(row);
  };
  const sets = {
    doubtful: () => (row) => now.sure[row] < 50,
    overruled: () => among(findOverruled(data.labels, now.clusters)),
    outliers: () => among(data.outliers),
    twins: () => among(data.twins),
  };
  const wanted = sets[state.show]?.() ?? (() => true);
  const rows = groups.flatMap((group) => orderRows(group.rows.filter(wanted), state.order, now));
  if (state.order === "doubtful") rows.splice(0, rows.length, ...orderRows(rows, "doubtful", now));
  shown = { key, rows };
  return rows;
}

// Chooses a row as a click does: alone, one more or less, or all from the last one on.
/** @type {(row: number, how: {extend?: boolean, toggle?: boolean}, order: number[], range: typeof import("./02_groups.js").between) => void} */
export function choose(row, { extend, toggle }, order, range) {
  const chosen = toggle || extend ? new Set(state.chosen) : new Set();
  if (extend && state.anchor >= 0) for (const other of range(order, state.anchor, row)) chosen.add(other);
  else if (toggle && chosen.has(row)) chosen.delete(row);
  else chosen.add(row);
  set({ chosen, focus: row, anchor: extend && state.anchor >= 0 ? state.anchor : row, asking: false, near: null });
}

/** @type {(rows: Iterable<number>) => void} */
export function chooseRows(rows) {
  const chosen = new Set(rows);
  const focus = chosen.size && !chosen.has(state.focus) ? [...chosen][0] : state.focus;
  set({ chosen, focus, asking: chosen.size ? false : state.asking, near: null });
}
