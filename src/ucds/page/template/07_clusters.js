// The left side: all clusters as rows, which are chosen, searched and sorted, and onto which pictures are dragged.

import { html, useRef } from "./01_kept.js";
import { ASIDE, between, count, mostTypical, nameOf } from "./02_groups.js";
import { data, listed, set, state, view } from "./03_store.js";
import { move, setAside } from "./04_server.js";
import { Picture } from "./06_pictures.js";
import { swatch } from "./05_colours.js";

let anchor = ASIDE;

/** @type {(number: number, event: any) => void} */
function pick(number, event) {
  const order = listed().map((group) => group.number);
  const several = event.ctrlKey || event.metaKey;
  let picked = several ? new Set(state.picked) : new Set();
  if (event.shiftKey) picked = new Set([...state.picked, ...between(order, anchor, number)]);
  else if (several && state.picked.has(number)) picked.delete(number);
  else picked.add(number);
  anchor = number;
  set({ picked, asking: picked.size ? false : state.asking, chosen: new Set(), focus: -1, near: null });
}

/** @type {(props: {group: import("./02_groups.js").Group}) => any} */
function Row({ group }) {
  const over = useRef(0); // the pointer enters a child before it leaves its parent
  const mark = (event, by) => {
    over.current += by;
    event.currentTarget.classList.toggle("over", over.current > 0);
  };
  const drop = (event) => {
    event.preventDefault();
    mark(event, -over.current);
    if (group.number === ASIDE) setAside();
    else move(group.number);
  };
  const from = state.preview?.origins[group.number];
  const percent = Math.round(100 * group.doubt);
  return html`<li class="group" onDragEnter=${(event) => mark(event, 1)} onDragLeave=${(event) => mark(event, -1)}
      onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
    <button type="button" class="pick" data-cluster=${group.number} aria-pressed=${state.picked.has(group.number)}
        onClick=${(event) => pick(group.number, event)}>
      <span class="strip" aria-hidden="true">${mostTypical(group.rows, view(), 5).map((row) => html`<${Picture}
        key=${row} row=${row} />`)}</span>
      <span class="title">${swatch(group.number)} ${group.name}</span>
      <span class="size">${count(group.rows.length, data.what)}</span>
      ${from && html`<span class="from">from ${from.map((number) => nameOf(number, state.now.names)).join(", ")}
        </span>`}
      <span class="doubt" title="${percent}% in doubt"><span style=${{ width: `${percent}%` }}></span></span>
      <span class="unseen">, ${percent}% in doubt</span>
    </button>
  </li>`;
}

export function Clusters() {
  const groups = listed();
  const chooseAll = () => set({ picked: new Set(), chosen: new Set(), focus: -1, near: null });
  return html`<aside class="left" aria-label="Clusters">
    <div class="bar">
      <input id="search" type="search" placeholder="Find a name or id (/)"
        aria-label="Find a cluster by its name, or the id of a ${data.what} in it"
        value=${state.search} onInput=${(event) => set({ search: event.target.value })} />
      <label>Sort by <select value=${state.sort} onChange=${(event) => set({ sort: event.target.value })}>
        <option value="size">size</option><option value="doubt">doubt</option><option
          value="name">name</option></select></label>
      <button type="button" disabled=${!state.picked.size} onClick=${chooseAll}>Show all</button>
    </div>
    <ul class="groups">${groups.map((group) => html`<${Row} key=${group.number} group=${group} />`)}</ul>
    ${groups.length ? null : html`<p class="soft">No cluster has this name, and no ${data.what} this id.</p>`}
  </aside>`;
}
