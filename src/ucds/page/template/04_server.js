// The way to the server of a live page. What a person does is on the disk before an answer comes back.

import { countChanged, count } from "./02_groups.js";
import { data, name, say, set, setClusters, state } from "./03_store.js";

const ENDED = "The review has ended, and everything is saved. Run the same command to continue.";

// Sends a request and returns its answer; says in the page what went wrong, and returns nothing then.
/** @type {(path: string, body?: any) => Promise<any>} */
export async function ask(path, body) {
  try {
    const raw = body instanceof Blob;
    const headers = { "Content-Type": raw ? "application/octet-stream" : "application/json" };
    const options = body === undefined ? {} : { method: "POST", headers, body: raw ? body : JSON.stringify(body) };
    const response = await fetch(path, options);
    if (response.status === 409) {
      setClusters({ now: await ask("state"), preview: null });
      askQuestion();
      say("Another window has changed the clusters. The page now shows them: repeat your action.");
      return undefined;
    }
    const found = await response.json();
    if (response.ok) return found;
    say(found.error);
  } catch {
    say(ENDED);
  }
  return undefined;
}

/** @type {Promise<unknown>} */
let last = Promise.resolve();

// Carries out an action after those before it, and says what it did.
/** @type {(action: string, values: object, said: (moved: number) => string) => Promise<boolean>} */
export function act(action, values, said) {
  if (state.preview && state.preview.action !== action) {
    say("Take the preview, or cancel it, first.");
    return Promise.resolve(false);
  }
  const done = last.then(async () => {
    const before = state.now;
    const now = await ask("tell", { ...values, action, number: before.number });
    if (!now) return false;
    setClusters({ now, preview: null });
    set({ near: null, said: said(countChanged(before.clusters, now.clusters)) });
    askQuestion();
    return true;
  });
  last = done;
  return done;
}

// Brings the question that is open, if it is still about the clusters that are shown.
export async function askQuestion() {
  const found = await ask("question");
  if (found?.of === state.now.number) set({ open: found });
}

const things = (rows) => count(rows, data.what);

/** @type {(to: number | "new") => Promise<void>} */
export async function move(to) {
  const rows = [...state.chosen];
  if (!rows.length) return say(`Choose ${data.what}s first.`);
  const done = await act(
    "move",
    { rows, to },
    () => `Moved ${things(rows.length)} to ${to === "new" ? "a new cluster" : name(to)}.`,
  );
  if (done) chooseNothing();
}

export async function setAside() {
  const rows = [...state.chosen];
  if (!rows.length) return say(`Choose ${data.what}s first.`);
  if (await act("aside", { rows }, () => `Set ${things(rows.length)} aside.`)) chooseNothing();
}

export async function join() {
  const clusters = [...state.picked];
  if (clusters.length < 2) return say("Choose two or more clusters first: Ctrl-click, or Space.");
  await act("join", { clusters }, () => `Joined ${clusters.length} clusters.`);
}

export const rename = (cluster, text) =>
  act("name", { cluster, name: text }, () =>
    text ? `Cluster ${cluster} is called ${text}.` : `Cluster ${cluster} has no name now.`,
  );
export const answer = (given, words) =>
  act("answer", { answer: given }, (moved) => `Answered: ${words}. ${things(moved)} moved.`);
export const undo = () => act("undo", {}, (moved) => `Undid the last action: ${things(moved)} changed.`);
export const redo = () => act("redo", {}, (moved) => `Repeated the action: ${things(moved)} changed.`);

function chooseNothing() {
  set({ chosen: new Set(), anchor: -1 });
}

let asked = 0; // of several previews that are under way, the last one counts

// Shows what a split, or another number of clusters, would make of them; nothing changes.
/** @type {(action: "split" | "cut", values: object, title: string) => Promise<void>} */
export async function preview(action, values, title) {
  const mine = ++asked;
  const found = await ask("preview", { ...values, action });
  if (!found || mine !== asked) return;
  setClusters({ preview: { ...found, action, values, title } });
  set({
    picked: new Set(action === "split" ? Object.keys(found.origins).map(Number) : []),
    chosen: new Set(),
    mode: "grid",
    screen: "middle",
    near: null,
  });
  say(`Preview: ${title}. Nothing changes until you take it.`);
}

export async function takePreview() {
  const { action, values, title } = state.preview;
  await act(action, values, (moved) => `Done: ${title}. ${things(moved)} changed their cluster.`);
}

export function dropPreview() {
  asked++;
  setClusters({ preview: null });
  set({ picked: new Set(), said: "Nothing was changed." });
}

function showLike(found, of) {
  if (found)
    set({ near: { ...found, of }, asking: false, screen: "side", said: `${things(found.rows.length)} like ${of}.` });
}

/** @type {(rows: number[]) => Promise<void>} */
export async function findLike(rows) {
  if (!rows.length) return say(`Choose ${data.what}s first.`);
  showLike(state.live ? await ask("like", { rows }) : { rows: data.near?.[rows[0]] ?? [] }, things(rows.length));
}

/** @type {(file: File) => Promise<void>} */
export async function findLikeFile(file) {
  say(`Looking for ${data.what}s like ${file.name}.`);
  showLike(await ask("like", file), file.name);
}

// Writes what was asked for, while everything else goes on.
/** @type {(wanted: object) => Promise<void>} */
export async function finish(wanted) {
  let task = await ask("finish", wanted);
  while (task) {
    set({ task, said: task.said ?? state.said });
    if (!task.running) break;
    await new Promise((resolve) => setTimeout(resolve, 400));
    task = await ask("task");
  }
}
