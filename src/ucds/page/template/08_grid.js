// The grid: all pictures of the clusters that are shown. Only those in sight, and half a screen around, are in the page.

import { html, useEffect, useRef, useState } from "./01_kept.js";
import { between, inSight, layOut, touched } from "./02_groups.js";
import { choose, chooseRows, data, groupOf, set, shownRows, state, view } from "./03_store.js";
import { describe, Picture } from "./06_pictures.js";
import { colourOf } from "./05_colours.js";

const FAR = 5; // pixels from which a press is no click but draws a rectangle

/** @type {(event: any) => {extend?: boolean, toggle?: boolean}} */
const how = (event) => ({
  extend: event.shiftKey,
  toggle: event.ctrlKey || event.metaKey || event.pointerType === "touch",
});

// Moves from one picture to another by keys; Shift takes along what lies between, Ctrl moves without choosing.
/** @type {(event: any, rows: number[], columns: number, lines: number) => void} */
function followKeys(event, rows, columns, lines) {
  const at = rows.indexOf(state.focus);
  const ways = {
    ArrowLeft: -1,
    ArrowRight: 1,
    ArrowUp: -columns,
    ArrowDown: columns,
    PageUp: -columns * lines,
    PageDown: columns * lines,
    Home: -rows.length,
    End: rows.length,
  };
  if (event.key === " ") choose(rows[Math.max(0, at)], { toggle: true }, rows, between);
  else if (event.key === "Enter") set({ screen: "side", asking: false });
  else if (ways[event.key]) {
    const next = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + ways[event.key]))];
    if (event.ctrlKey || event.metaKey) set({ focus: next, asking: false });
    else choose(next, { extend: event.shiftKey }, rows, between);
  } else return;
  event.preventDefault();
}

/** @type {(props: {rows: number[], grid: import("./02_groups.js").Layout, top: number, height: number}) => any} */
function Cells({ rows, grid, top, height }) {
  const { columns, step } = grid;
  const [first, last] = inSight(grid, top, height);
  return rows.slice(first, last).map((row, i) => {
    const [line, column] = [Math.floor((first + i) / columns), (first + i) % columns];
    const place = { left: `${column * step}px`, top: `${line * step}px`, borderBottomColor: colourOf(groupOf(row)) };
    return html`<div key=${row} id="cell-${row}" data-row=${row} role="option"
      class=${row === state.focus ? "cell focus" : "cell"}
      style=${place} aria-selected=${state.chosen.has(row)} aria-label=${describe(row)} title=${describe(row)}
      aria-posinset=${first + i + 1} aria-setsize=${rows.length} draggable=${state.live && state.chosen.has(row)}>
      <${Picture} row=${row} />${view().sure[row] < 50 ? html`<small>${view().sure[row]}%</small>` : null}</div>`;
  });
}

// Draws a rectangle with the mouse from a picture that is not chosen; touch scrolls instead.
/** @type {(start: any, scroller: HTMLElement, rows: number[], grid: import("./02_groups.js").Layout, show: (box: number[] | null) => void) => void} */
function drawRectangle(start, scroller, rows, grid, show) {
  const here = (event) => {
    const box = scroller.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top + scroller.scrollTop];
  };
  const [x, y] = here(start);
  const before = start.ctrlKey || start.metaKey || start.shiftKey ? [...state.chosen] : [];
  let drawn = false;
  const follow = (event) => {
    const [nowX, nowY] = here(event);
    drawn ||= Math.hypot(nowX - x, nowY - y) > FAR;
    if (!drawn) return;
    const frame = scroller.getBoundingClientRect();
    scroller.scrollTop += Math.min(0, event.clientY - frame.top) + Math.max(0, event.clientY - frame.bottom);
    const box = [Math.min(x, nowX), Math.min(y, nowY), Math.max(x, nowX), Math.max(y, nowY)];
    show(box);
    chooseRows([...before, ...touched(grid, box).map((place) => rows[place])]);
  };
  const stay = (event) => event.preventDefault(); // a picture that is chosen now must not be dragged along
  const end = () => {
    removeEventListener("pointermove", follow);
    removeEventListener("pointerup", end);
    removeEventListener("dragstart", stay);
    show(null);
    if (!drawn) return;
    const swallow = (event) => event.stopPropagation(); // the click that ends the rectangle chooses nothing
    addEventListener("click", swallow, true);
    setTimeout(() => removeEventListener("click", swallow, true));
  };
  addEventListener("pointermove", follow);
  addEventListener("pointerup", end);
  addEventListener("dragstart", stay);
}

export function Grid() {
  const scroller = useRef(/** @type {any} */ (null));
  const [box, setBox] = useState({ width: 800, height: 600, top: 0 });
  const [drawn, show] = useState(/** @type {number[] | null} */ (null));
  const rows = shownRows();
  const grid = layOut(box.width, state.side, rows.length);
  const { columns, step } = grid;
  const measure = () => {
    const seen = scroller.current; // none, if the map has taken the place of the grid meanwhile
    if (seen) setBox({ width: seen.clientWidth, height: seen.clientHeight, top: seen.scrollTop });
  };
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(scroller.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    scroller.current.scrollTop = 0;
    measure();
  }, [[...state.picked].join(), state.order, state.show, Boolean(state.preview)]);
  useEffect(() => {
    const at = rows.indexOf(state.focus);
    if (at < 0) return;
    const top = Math.floor(at / columns) * step;
    const { scrollTop, clientHeight } = scroller.current;
    if (top < scrollTop) scroller.current.scrollTop = top;
    else if (top + step > scrollTop + clientHeight) scroller.current.scrollTop = top + step - clientHeight;
  }, [state.focus, state.side]);
  const press = (event) => {
    const row = Number(event.target.closest("[data-row]")?.dataset.row ?? -1);
    const free = event.button === 0 && event.pointerType !== "touch" && !state.chosen.has(row);
    if (free && event.offsetX < scroller.current.clientWidth) drawRectangle(event, scroller.current, rows, grid, show);
  };
  const click = (event) => {
    const cell = event.target.closest("[data-row]");
    if (cell) choose(Number(cell.dataset.row), how(event), rows, between);
    else if (!event.shiftKey) chooseRows([]);
  };
  return html`<div class="grid" id="grid" ref=${scroller} tabindex="0" role="listbox" aria-multiselectable="true"
      aria-label="${rows.length.toLocaleString("en")} ${data.what}s"
        aria-activedescendant=${rows.includes(state.focus) ? `cell-${state.focus}` : undefined}
      onScroll=${measure} onPointerDown=${press} onClick=${click}
      onDblClick=${() => set({ screen: "side", asking: false })}
      onDragStart=${(event) => event.dataTransfer.setData("text/plain", `${state.chosen.size} ${data.what}s`)}
      onKeyDown=${(event) => followKeys(event, rows, columns, Math.max(1, Math.floor(box.height / step)))}>
    <div class="all" role="presentation"
      style=${{ height: `${Math.ceil(rows.length / columns) * step}px`, "--side": `${grid.side}px` }}>
      <${Cells} rows=${rows} grid=${grid} top=${box.top} height=${box.height} />
      ${drawn && html`<div class="rectangle"
        style=${{ left: `${drawn[0]}px`, top: `${drawn[1]}px`, width: `${drawn[2] - drawn[0]}px`, height: `${drawn[3] - drawn[1]}px` }}></div>`}
    </div>
    ${rows.length ? null : html`<p class="soft">Nothing matches this choice.</p>`}
  </div>`;
}
