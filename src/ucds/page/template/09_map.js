// The map: every sample as a point, alike ones near each other. A kept library draws the points and moves the view;
// this file says where they lie, what colour they have, and which are chosen, and lays pictures and names over them.

import { Graph, html, useEffect, useRef, useState } from "./01_kept.js";
import { between, mostTypical, towards } from "./02_groups.js";
import { choose, chooseRows, data, set, shownRows, state, view } from "./03_store.js";
import { channels, colourOf, colouring, darkness, shade, shapeOf } from "./05_colours.js";
import { describe, Picture } from "./06_pictures.js";

const SPACE = 4096; // side of the library's plane; our places lie from 0 to 1000
const PICTURE = 52; // side of a picture on the map
const MOST_PICTURES = 150; // points in sight up to which pictures stand in place of marks
const ground = () => (darkness.matches ? "#15171b" : "#fbfbf9"); // as in page.css
/** @type {(row: number) => [number, number]} */
const placeOf = (row) => [48 + 4 * data.x[row], SPACE - 48 - 4 * data.y[row]];

// Brings colours, shapes and choice of the points up to date; what is not shown stays as a shadow.
/** @type {(graph: any) => void} */
function paint(graph) {
  const { of } = colouring();
  const shown = new Set(shownRows());
  const all = shown.size === data.ids.length;
  const colours = new Float32Array(4 * data.ids.length);
  const cache = new Map();
  for (let row = 0; row < data.ids.length; row++) {
    if (!cache.has(of[row])) cache.set(of[row], channels(colourOf(of[row])));
    const colour = state.colour === "confidence" ? shade(view().sure[row]) : cache.get(of[row]);
    colours.set([...colour, all || shown.has(row) ? 0.9 : 0.08], 4 * row);
  }
  graph.setPointColors(colours);
  graph.setPointShapes(Float32Array.from(of, shapeOf));
  graph.render();
}

// Draws rings around what is chosen. A list of rings, even an empty one, and a clear ground take twice the time.
/** @type {(graph: any) => void} */
function ring(graph) {
  graph.setConfigPartial({
    backgroundColor: ground(),
    outlinedPointIndices: state.chosen.size ? [...state.chosen] : undefined,
    focusedPointIndex: state.focus >= 0 ? state.focus : undefined,
    outlinedPointRingColor: darkness.matches ? "#ffffff" : "#000000",
    focusedPointRingColor: darkness.matches ? "#ffffff" : "#000000",
  });
}

// Rows in sight with their places on the screen, without those that another one would hide; nothing if they are
// too many for pictures.
/** @type {(graph: any, box: DOMRect) => [number, number, number][]} */
function picturesInSight(graph, box) {
  const [one, other] = [graph.screenToSpacePosition([0, 0]), graph.screenToSpacePosition([box.width, box.height])];
  const [left, right] = [Math.min(one[0], other[0]), Math.max(one[0], other[0])];
  const [low, high] = [Math.min(one[1], other[1]), Math.max(one[1], other[1])];
  const found = [];
  for (const row of shownRows()) {
    const [x, y] = placeOf(row);
    if (x < left || x > right || y < low || y > high) continue;
    if (found.length === MOST_PICTURES) return [];
    found.push(row);
  }
  /** @type {[number, number, number][]} */
  const placed = [];
  for (const row of found) {
    const [x, y] = graph.spaceToScreenPosition(placeOf(row));
    const hidden = placed.some(([, px, py]) => Math.max(Math.abs(px - x), Math.abs(py - y)) < PICTURE / 2);
    if (!hidden || row === state.focus) placed.push([row, x, y]);
  }
  return placed;
}

// The shown row nearest to a place of the screen, if it is within reach.
/** @type {(graph: any, x: number, y: number, reach: number) => number} */
function nearest(graph, x, y, reach) {
  const [spaceX, spaceY] = graph.screenToSpacePosition([x, y]);
  const [sideX] = graph.screenToSpacePosition([x + reach, y]);
  let [best, least] = [-1, Math.abs(sideX - spaceX)];
  for (const row of shownRows()) {
    const [px, py] = placeOf(row);
    const distance = Math.hypot(px - spaceX, py - spaceY);
    if (distance < least) [best, least] = [row, distance];
  }
  return best;
}

/** @type {(event: any, graph: any) => void} */
function followMapKeys(event, graph) {
  const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const rows = shownRows();
  if (ways[event.key] && rows.length) {
    const next =
      state.focus < 0 ? rows[0] : towards(state.focus, ways[event.key][0], ways[event.key][1], data.x, data.y, rows);
    if (event.shiftKey) chooseRows([...state.chosen, next]);
    set({ focus: next, anchor: next, asking: false, said: describe(next) });
  } else if (event.key === " " && state.focus >= 0) choose(state.focus, { toggle: true }, rows, between);
  else if (event.key === "Enter") set({ screen: "side", asking: false });
  else if (event.key === "+" || event.key === "-") zoom(graph, event.key === "+" ? 1.5 : 1 / 1.5);
  else return;
  event.preventDefault();
}

// Comes nearer to the point at the right, or else to the middle of what is in sight; or goes away from it.
/** @type {(graph: any, factor: number) => void} */
function zoom(graph, factor) {
  const level = graph.getZoomLevel() * factor;
  if (state.focus >= 0) graph.zoomToPointByIndex(state.focus, 0, level, true);
  else graph.zoom(level, 0);
}

// Draws a line around points with the pointer, and chooses what lies within.
/** @type {(props: {graph: any, drawn: () => void}) => any} */
function Lasso({ graph, drawn }) {
  const [path, setPath] = useState(/** @type {[number, number][]} */ ([]));
  const here = (event) => /** @type {[number, number]} */ ([event.offsetX, event.offsetY]);
  const start = (event) => {
    event.currentTarget.setPointerCapture(event.pointerId);
    setPath([here(event)]);
  };
  const end = (event) => {
    const shown = new Set(shownRows());
    const found = path.length > 2 ? graph.findPointsInPolygon(path).filter((row) => shown.has(row)) : [];
    chooseRows(event.ctrlKey || event.metaKey ? [...state.chosen, ...found] : found);
    set({ said: `${found.length.toLocaleString("en")} ${data.what}s chosen.` });
    setPath([]);
    drawn();
  };
  return html`<svg class="lasso" onPointerDown=${start}
    onPointerMove=${(event) => path.length && setPath([...path, here(event)])} onPointerUp=${end}>
    <polygon points=${path.map((point) => point.join()).join(" ")} /></svg>`;
}

// Names of the groups at their most typical samples, and pictures where few points are in sight.
/** @type {(props: {graph: any, box: DOMRect}) => any} */
function Overlay({ graph, box }) {
  const inside = ([x, y]) => x > 0 && y > 0 && x < box.width && y < box.height;
  const labels = state.groups
    .filter((group) => !state.picked.size || state.picked.has(group.number))
    .map(
      (group) =>
        /** @type {[any, number[]]} */ ([
          group,
          graph.spaceToScreenPosition(placeOf(mostTypical(group.rows, view(), 1)[0])),
        ]),
    );
  return html`<div class="overlay" aria-hidden="true">
    ${picturesInSight(graph, box).map(
      ([row, x, y]) => html`<span key=${row} class=${state.chosen.has(row) ? "pin chosen" : "pin"}
      style=${{ left: `${x}px`, top: `${y}px`, borderColor: colourOf(view().clusters[row]) }}><${Picture}
        row=${row} /></span>`,
    )}
    ${labels
      .filter(([, place]) => inside(place))
      .map(
        ([group, [x, y]]) => html`<span key=${`name ${group.number}`} class="label"
      style=${{ left: `${x}px`, top: `${y}px` }}>${group.name}</span>`,
      )}
  </div>`;
}

/** @type {() => any} */
function Legend() {
  if (state.colour === "cluster") return null;
  if (state.colour === "confidence") return html`<p class="legend">orange: in doubt, blue: sure</p>`;
  const { of, names } = colouring();
  const numbers = [...new Set(of)].sort((a, b) => a - b).slice(0, 12);
  return html`<p class="legend">${numbers.map((number) => html`<span><i
    style=${{ background: colourOf(number) }}></i> ${names(number)} </span>`)}</p>`;
}

export function Plane() {
  const holder = useRef(/** @type {any} */ (null));
  const [graph, setGraph] = useState(/** @type {any} */ (null));
  const [failed, setFailed] = useState(false);
  const [tick, redraw] = useState(0);
  const [lasso, setLasso] = useState(false);
  useEffect(() => {
    const made = new Graph(holder.current, {
      enableSimulation: false,
      rescalePositions: false,
      spaceSize: SPACE,
      backgroundColor: ground(),
      renderLinks: false,
      enableDrag: false,
      transitionDuration: 0,
      fitViewDelay: 0,
      fitViewDuration: 0,
      fitViewPadding: 0.1,
      scalePointsOnZoom: false,
      attribution: "",
      pointDefaultSize: Math.max(2, Math.min(9, 600 / Math.sqrt(data.ids.length))),
      pixelRatio: Math.min(2, devicePixelRatio),
      renderHoveredPointRing: true,
      hoveredPointRingColor: "#888888",
      onZoom: () => requestAnimationFrame(() => redraw((before) => before + 1)),
      onClick: (_index, _place, event) => {
        const near = nearest(made, event.offsetX, event.offsetY, 24);
        if (near >= 0)
          choose(
            near,
            { extend: false, toggle: event.ctrlKey || event.metaKey || event.pointerType === "touch" },
            shownRows(),
            between,
          );
        else chooseRows([]);
      },
    });
    made.ready
      .then(() => {
        made.setPointPositions(Float32Array.from(data.ids.flatMap((_, row) => placeOf(row))));
        paint(made);
        made.fitView(0);
        setGraph(made);
        setTimeout(() => redraw((before) => before + 1), 100);
      })
      .catch(() => setFailed(true));
    const observer = new ResizeObserver(() => redraw((before) => before + 1));
    observer.observe(holder.current);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, []);
  useEffect(
    () => void (graph && paint(graph)),
    [graph, state.now, state.preview, state.colour, state.show, [...state.picked].join(), darkness.matches],
  );
  useEffect(() => void (graph && ring(graph)), [graph, state.chosen, state.focus, darkness.matches]);
  if (failed)
    return html`<p class="soft">This browser cannot draw the map, because WebGL is switched off. The grid shows the same ${data.what}s.</p>`;
  const drawn = () => setLasso(false);
  return html`<div class="plane" id="map" tabindex="0" role="application" aria-roledescription="map"
    onKeyDown=${(event) => followMapKeys(event, graph)}
      aria-label="Map of the ${data.what}s. Arrow keys move to the nearest point in that direction, Space chooses it, plus and minus zoom." data-tick=${tick}
      onPointerDown=${(event) => event.shiftKey && setLasso(true)}>
    <div class="points" ref=${holder}></div>
    ${graph && html`<${Overlay} graph=${graph} box=${holder.current.getBoundingClientRect()} />`}
    ${graph && lasso && html`<${Lasso} graph=${graph} drawn=${drawn} />`}
    <div class="tools"><button type="button" id="lasso" aria-pressed=${lasso}
      onClick=${() => setLasso(!lasso)}>Lasso</button>
      <button type="button" aria-label="Zoom in" onClick=${() => zoom(graph, 1.5)}>+</button>
      <button type="button" aria-label="Zoom out" onClick=${() => zoom(graph, 1 / 1.5)}>−</button>
      <button type="button" onClick=${() => graph.fitView(0)}>Whole map</button></div>
    <${Legend} />
  </div>`;
}
