// Colours and shapes of the groups: both together tell clusters apart, as colours repeat, and not everybody sees them.

import { html } from "./01_kept.js";
import { folderOf } from "./02_groups.js";
import { data, state, view } from "./03_store.js";

export const darkness = matchMedia("(prefers-color-scheme: dark)");

// In the order of the shapes that the map draws: circle, square, triangle, diamond, pentagon, hexagon, star, cross.
const SHAPES = [
  "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z",
  "M-.9-.9H.9V.9H-.9Z",
  "M0-1.1L1.1.85H-1.1Z",
  "M0-1.2L1.2 0L0 1.2L-1.2 0Z",
  "M0-1.1L1.05-.34L.65.89H-.65L-1.05-.34Z",
  "M1.1 0L.55.95H-.55L-1.1 0L-.55-.95H.55Z",
  "M0-1.2L.28-.4L1.14-.37L.46.15L.7.97L0 .5L-.7.97L-.46.15L-1.14-.37L-.28-.4Z",
  "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
];
export const shapeOf = (number) => (number < 0 ? 7 : number % SHAPES.length);

const palette = () => (darkness.matches ? data.colours.dark : data.colours.light);
export const colourOf = (number) => (number < 0 ? "#808080" : palette()[number % palette().length]);

/** @type {(number: number) => any} */
export function swatch(number) {
  return html`<svg class="mark" viewBox="-1.3 -1.3 2.6 2.6" aria-hidden="true"><path transform="scale(1 -1)"
    d=${SHAPES[shapeOf(number)]} fill=${colourOf(number)} /></svg>`;
}

/** @type {(hex: string) => number[]} */
export const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);

// Numbers by which the rows are coloured, and what each stands for; confidence has no numbers but shades.
/** @type {() => {of: number[], names: (number: number) => string}} */
export function colouring() {
  if (state.colour === "label")
    return { of: data.labels, names: (number) => (number < 0 ? "no label" : `label ${number}`) };
  if (state.colour === "folder") {
    const folders = [...new Set(data.ids.map(folderOf))].sort();
    const places = new Map(folders.map((folder, place) => [folder, place]));
    return { of: data.ids.map((id) => places.get(folderOf(id))), names: (number) => folders[number] || "no folder" };
  }
  return { of: view().clusters, names: (number) => state.groups.find((group) => group.number === number)?.name ?? "" };
}

// From blue for what is sure to orange for what is in doubt; both stand out on light and dark.
/** @type {(sure: number) => number[]} */
export function shade(sure) {
  const [one, other] = [channels("#d95f02"), channels("#3b7dd8")];
  return one.map((value, i) => value + (other[i] - value) * Math.min(1, Math.max(0, (sure - 30) / 70)));
}
