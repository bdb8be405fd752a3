// The map: every sample as a point, alike ones near each other. A kept library draws the points and moves the view;
// this file says where they lie, what colour they have, and which are chosen, and lays pictures and names over them.
// The library would draw at every frame. Here it draws when something has changed; while the view moves, what was
// drawn last is moved and stretched in between, for without a graphics card many points take long.

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
  graph.stopFrames();
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

// Names of the groups in sight with their places: at their most typical samples, the largest groups first. A name
// that would lie over another one is left out.
/** @type {(graph: any, box: DOMRect) => [import("./02_groups.js").Group, number, number][]} */
function namesInSight(graph, box) {
  /** @type {[import("./02_groups.js").Group, number, number][]} */
  const placed = [];
  const shown = state.groups.filter((group) => !state.picked.size || state.picked.has(group.number));
  for (const group of [...shown].sort((a, b) => b.rows.length - a.rows.length)) {
    const [x, y] = graph.spaceToScreenPosition(placeOf(mostTypical(group.rows, view(), 1)[0]));
    const hidden = placed.some(
      ([other, px, py]) => Math.abs(py - y) < 20 && Math.abs(px - x) < 4 * (other.name.length + group.name.length),
    );
    if (!hidden && x > 0 && y > 0 && x < box.width && y < box.height) placed.push([group, x, y]);
  }
  return placed;
}

/** @type {(props: {graph: any, box: DOMRect}) => any} */
function Overlay({ graph, box }) {
  const at = (x, y) => ({ left: `${x}px`, top: `${y}px` });
  return html`<div class="overlay" aria-hidden="true">
    ${picturesInSight(graph, box).map(
      ([row, x, y]) => html`<span key=${row} class=${state.chosen.has(row) ? "pin chosen" : "pin"}
      style=${{ ...at(x, y), borderColor: colourOf(view().clusters[row]) }}><${Picture} row=${row} /></span>`,
    )}
    ${namesInSight(graph, box).map(
      ([group, x, y]) => html`<span key=${`name ${group.number}`} class="label" style=${at(x, y)}>${group.name}</span>`,
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

const SHARE = 6; // of the time while the view moves, drawing takes about one part of so many

// Lets the library draw into a picture, which is what a person sees: `draw` does so now, `move` when it can.
/** @type {(graph: any, picture: HTMLCanvasElement, drawn: () => void) => {draw: () => void, move: (view: any) => void}} */
function makeDrawing(graph, picture, drawn) {
  let then = { x: 0, y: 0, k: 1 }; // view of the picture, and of the library
  let now = then;
  let [begun, took, waiting] = [0, 0, 0];
  const seen = /** @type {HTMLElement} */ (picture.parentElement);
  const draw = () => {
    clearTimeout(waiting);
    begun = performance.now();
    graph.renderFrame();
    Object.assign(picture, { width: graph.canvas.width, height: graph.canvas.height });
    picture.getContext("2d")?.drawImage(graph.canvas, 0, 0); // waits for the points
    took = performance.now() - begun;
    then = now;
    seen.style.transform = "";
    drawn();
  };
  const move = (view) => {
    now = view;
    if (performance.now() - begun > SHARE * took) return draw();
    const scale = now.k / then.k;
    const [x, y] = [now.x - then.x * scale, now.y - then.y * scale];
    seen.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 150);
  };
  return { draw, move };
}

export function Plane() {
  const holder = useRef(/** @type {any} */ (null));
  const picture = useRef(/** @type {any} */ (null));
  const [map, setMap] = useState(/** @type {any} */ (null));
  const [failed, setFailed] = useState(false);
  const [tick, redraw] = useState(0);
  const [lasso, setLasso] = useState(false);
  useEffect(() => {
    const graph = new Graph(holder.current, {
      enableSimulation: false,
      rescalePositions: false,
      spaceSize: SPACE,
      backgroundColor: ground(),
      renderLinks: false,
      enableDrag: false,
      transitionDuration: 0,
      fitViewOnInit: false,
      fitViewPadding: 0.1,
      scalePointsOnZoom: false,
      attribution: "",
      pointDefaultSize: Math.max(2, Math.min(9, 600 / Math.sqrt(data.ids.length))),
      pixelRatio: Math.min(2, devicePixelRatio),
      onZoom: (event) => drawing.move(event.transform),
      onClick: (_index, _place, event) => {
        const near = nearest(graph, event.offsetX, event.offsetY, 24);
        const toggle = event.ctrlKey || event.metaKey || event.pointerType === "touch";
        if (near >= 0) choose(near, { toggle }, shownRows(), between);
        else chooseRows([]);
      },
    });
    const drawing = makeDrawing(graph, picture.current, () => redraw((before) => before + 1));
    const observer = new ResizeObserver(() => drawing.draw());
    graph.ready
      .then(() => {
        graph.setPointPositions(Float32Array.from(data.ids.flatMap((_, row) => placeOf(row))));
        paint(graph);
        graph.fitView(0);
        observer.observe(holder.current);
        setMap({ graph, draw: drawing.draw });
      })
      .catch(() => setFailed(true));
    return () => {
      observer.disconnect();
      graph.destroy();
    };
  }, []);
  useEffect(() => {
    if (!map) return;
    paint(map.graph);
    map.draw();
  }, [map, state.now, state.preview, state.colour, state.show, [...state.picked].join(), darkness.matches]);
  useEffect(() => {
    if (!map) return;
    ring(map.graph);
    map.draw();
  }, [map, state.chosen, state.focus, darkness.matches]);
  if (failed)
    return html`<p class="soft">This browser cannot draw the map, because WebGL is switched off. The grid shows the same ${data.what}s.</p>`;
  const drawn = () => setLasso(false);
  return html`<div class="plane" id="map" tabindex="0" role="application" aria-roledescription="map"
    onKeyDown=${(event) => followMapKeys(event, map.graph)}
      aria-label="Map of the ${data.what}s. Arrow keys move to the nearest point in that direction, Space chooses it, plus and minus zoom." data-tick=${tick}
      onPointerDown=${(event) => event.shiftKey && setLasso(true)}>
    <div class="points" ref=${holder}></div>
    <div class="seen"><canvas ref=${picture}></canvas>
      ${map && html`<${Overlay} graph=${map.graph} box=${holder.current.getBoundingClientRect()} />`}</div>
    ${map && lasso && html`<${Lasso} graph=${map.graph} drawn=${drawn} />`}
    <div class="tools"><button type="button" id="lasso" aria-pressed=${lasso}
      onClick=${() => setLasso(!lasso)}>Lasso</button>
      <button type="button" aria-label="Zoom in" onClick=${() => zoom(map.graph, 1.5)}>+</button>
      <button type="button" aria-label="Zoom out" onClick=${() => zoom(map.graph, 1 / 1.5)}>−</button>
      <button type="button" onClick=${() => map.graph.fitView(0)}>Whole map</button></div>
    <${Legend} />
  </div>`;
}
