// Pictures of samples: asked from the server by their row, or cut out of the sheets that a file carries.

import { html } from "./01_kept.js";
import { data, name, state, view } from "./03_store.js";

const PER_ROW = 16; // thumbnails in a row of a sheet, and rows of a full one
const PER_SHEET = PER_ROW * PER_ROW;
/** @type {string[]} */
const sheets = [];

// A sheet is decoded only when one of its thumbnails is seen.
/** @type {(number: number) => string} */
function sheetAddress(number) {
  if (!sheets[number]) {
    const text = atob(document.getElementById(`sheet-${number}`)?.textContent ?? "");
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    sheets[number] = URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" }));
  }
  return sheets[number];
}

/** @type {(row: number) => Record<string, string>} */
function cutOut(row) {
  const sheet = Math.floor(row / PER_SHEET);
  const [line, column] = [Math.floor((row % PER_SHEET) / PER_ROW), row % PER_ROW];
  const lines = Math.ceil(Math.min(PER_SHEET, data.ids.length - sheet * PER_SHEET) / PER_ROW);
  const place = (at, of) => (of > 1 ? (100 * at) / (of - 1) : 0);
  return {
    backgroundImage: `url("${sheetAddress(sheet)}")`,
    backgroundSize: `${100 * PER_ROW}% ${100 * lines}%`,
    backgroundPosition: `${place(column, PER_ROW)}% ${place(line, lines)}%`,
  };
}

/** @type {(row: number) => string} */
export const describe = (row) => `${data.ids[row]}, ${name(view().clusters[row])}, ${view().sure[row]}% sure`;

// The picture of a row, or its text. It is decoration: what holds it has the row's name.
/** @type {(props: {row: number, large?: boolean}) => any} */
export function Picture({ row, large }) {
  if (data.pictures === "sheets") return html`<span class="picture" style=${cutOut(row)}></span>`;
  if (data.pictures && !data.missing.has(row)) {
    return html`<img class="picture" alt="" loading="lazy" draggable=${false}
      src="picture/${row}/${large || state.side > 128 ? 256 : 128}" />`;
  }
  const text = data.texts?.[row] ?? data.ids[row];
  return html`<span class="picture words">${data.pictures ? `${text} is missing` : text}</span>`;
}

// A few pictures in a line, each a button that chooses its row.
/** @type {(props: {rows: number[], title: string, choose: (row: number, event: any) => void}) => any} */
export function Pictures({ rows, title, choose }) {
  return html`<div class="pictures" role="group" aria-label=${title}>
    ${rows.map(
      (row) => html`<button type="button" key=${row} class="thumb" aria-label=${describe(row)} title=${describe(row)}
      aria-pressed=${state.chosen.has(row)} onClick=${(event) => choose(row, event)}><${Picture}
        row=${row} /></button>`,
    )}
  </div>`;
}
