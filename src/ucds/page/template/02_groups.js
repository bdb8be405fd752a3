// What follows from the numbers of clusters alone: groups, orders, ranges, words. Nothing here knows of the page.

/** @typedef {{clusters: number[], sure: number[], second: number[], typical: number[]}} View */
/** @typedef {{number: number, name: string, rows: number[], doubt: number}} Group */

export const ASIDE = -1; // number of what is in no cluster

/** @type {(count: number, what: string) => string} */
export const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

/** @type {(number: number, names: Record<number, string>) => string} */
export function nameOf(number, names) {
  if (number === ASIDE) return "in no cluster";
  return names[number] ? `${names[number]} (${number})` : `cluster ${number}`;
}

// Lists the groups that have rows, ascending by their numbers; what is set aside comes last.
/** @type {(view: View, names: Record<number, string>) => Group[]} */
export function makeGroups(view, names) {
  const members = new Map();
  view.clusters.forEach((number, row) => {
    if (!members.has(number)) members.set(number, []);
    members.get(number).push(row);
  });
  const numbers = [...members.keys()].sort((a, b) => (a === ASIDE ? 1 : b === ASIDE ? -1 : a - b));
  return numbers.map((number) => {
    const rows = members.get(number);
    const sure = rows.reduce((sum, row) => sum + view.sure[row], 0);
    return { number, name: nameOf(number, names), rows, doubt: 1 - sure / (100 * rows.length) };
  });
}

/** @type {(groups: Group[], by: string, search: string, ids: string[]) => Group[]} */
export function arrangeGroups(groups, by, search, ids) {
  const sought = search.trim().toLowerCase();
  const found = groups.filter(
    (group) =>
      !sought ||
      group.name.toLowerCase().includes(sought) ||
      group.rows.some((row) => ids[row].toLowerCase().includes(sought)),
  );
  const orders = {
    size: (a, b) => b.rows.length - a.rows.length,
    doubt: (a, b) => b.doubt - a.doubt,
    name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
  };
  return found.sort(
    (a, b) => Number(a.number === ASIDE) - Number(b.number === ASIDE) || orders[by](a, b) || a.number - b.number,
  );
}

// The nearest to the middle of its group first, or the least sure first.
/** @type {(rows: number[], by: string, view: View) => number[]} */
export function orderRows(rows, by, view) {
  const { sure, typical } = view;
  return [...rows].sort(
    by === "doubtful" ? (a, b) => sure[a] - sure[b] || a - b : (a, b) => typical[b] - typical[a] || a - b,
  );
}

/** @type {(rows: number[], view: View, most: number) => number[]} */
export function mostTypical(rows, view, most) {
  /** @type {number[]} */
  const best = [];
  for (const row of rows) {
    if (best.length === most && view.typical[row] <= view.typical[best[most - 1]]) continue;
    let place = best.length;
    while (place > 0 && view.typical[best[place - 1]] < view.typical[row]) place--;
    best.splice(place, 0, row);
    best.length = Math.min(best.length, most);
  }
  return best;
}

// The group that a person means who types a number, or the beginning of a name or of a word in it.
/** @type {(text: string, groups: Group[]) => Group | undefined} */
export function findGroup(text, groups) {
  const sought = text.trim().toLowerCase();
  if (!sought) return undefined;
  const starts = (group) => group.name.toLowerCase().startsWith(sought);
  return (
    groups.find((group) => String(group.number) === sought) ??
    groups.find((group) => group.name.toLowerCase() === sought) ??
    groups.find(starts) ??
    groups.find((group) => group.name.toLowerCase().includes(` ${sought}`))
  );
}

// Of all entries from one place of a list to another, in the order of the list.
/** @type {(list: number[], from: number, to: number) => number[]} */
export function between(list, from, to) {
  const [a, b] = [list.indexOf(from), list.indexOf(to)];
  return a < 0 || b < 0 ? [to] : list.slice(Math.min(a, b), Math.max(a, b) + 1);
}

const GAP = 4; // pixels between pictures

// Lays a grid out: as many pictures in a line as fit at the side asked for, which then grow to fill the line.
/** @typedef {{columns: number, side: number, step: number, total: number}} Layout */
/** @type {(width: number, side: number, total: number) => Layout} */
export function layOut(width, side, total) {
  const columns = Math.max(1, Math.floor(width / (side + GAP)));
  const step = width / columns;
  return { columns, side: step - GAP, step, total };
}

// The first cell that is within half a screen of what is in sight, and the one after the last.
/** @type {(grid: Layout, top: number, height: number) => [number, number]} */
export function inSight({ columns, step, total }, top, height) {
  const first = Math.max(0, Math.floor((top - height / 2) / step)) * columns;
  return [first, Math.min(total, Math.ceil((top + 1.5 * height) / step) * columns)];
}

// Positions of the cells that a rectangle of the grid touches.
/** @type {(grid: Layout, box: number[]) => number[]} */
export function touched({ columns, step, total }, [left, top, right, bottom]) {
  const found = [];
  for (let line = Math.max(0, Math.floor(top / step)); line * step <= bottom; line++) {
    for (let column = Math.max(0, Math.floor(left / step)); column < columns && column * step <= right; column++) {
      if (line * columns + column < total) found.push(line * columns + column);
    }
  }
  return found;
}

// The row within 45 degrees of a direction that is nearest to a row of the map; sideways distance counts double.
/** @type {(from: number, dx: number, dy: number, x: number[], y: number[], rows: number[]) => number} */
export function towards(from, dx, dy, x, y, rows) {
  let [best, least] = [from, Infinity];
  for (const row of rows) {
    const ahead = (x[row] - x[from]) * dx + (y[row] - y[from]) * dy;
    const aside = Math.abs((x[row] - x[from]) * dy) + Math.abs((y[row] - y[from]) * dx);
    if (ahead > 0.01 && aside <= ahead && ahead + aside < least) [best, least] = [row, ahead + aside];
  }
  return best;
}

/** @type {(id: string) => string} */
export const folderOf = (id) => id.slice(0, Math.max(0, id.lastIndexOf("/")));

// Rows that lie in another cluster than most rows with the same label of the provider.
/** @type {(labels: number[], clusters: number[]) => Set<number>} */
export function findOverruled(labels, clusters) {
  const counts = new Map();
  labels.forEach((label, row) => {
    const of = counts.get(label) ?? counts.set(label, new Map()).get(label);
    of.set(clusters[row], (of.get(clusters[row]) ?? 0) + 1);
  });
  const usual = new Map(
    [...counts].map(([label, of]) => [label, [...of].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0][0]]),
  );
  return new Set(labels.flatMap((label, row) => (label >= 0 && clusters[row] !== usual.get(label) ? [row] : [])));
}

// How many rows have another number than before, for a sentence about what an action did.
/** @type {(before: number[], after: number[]) => number} */
export const countChanged = (before, after) =>
  before.reduce((sum, number, row) => sum + Number(number !== after[row]), 0);
