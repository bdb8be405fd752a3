// Tests of what follows from the numbers of clusters alone; `node --test` runs them.

import assert from "node:assert/strict";
import test from "node:test";

import * as groups from "../../src/ucds/page/template/02_groups.js";

const VIEW = {
  clusters: [2, 0, 2, -1, 0, 2],
  sure: [90, 40, 70, 100, 60, 50],
  second: [0, 2, 0, 2, 2, 0],
  typical: [500, 900, 800, 100, 700, 600],
};
const IDS = ["a/cat.png", "b/dog.png", "a/cat2.png", "odd.png", "b/fox.png", "a/lynx.png"];
const made = () => groups.makeGroups(VIEW, { 2: "cats" });

test("groups are listed by number, and what is set aside comes last", () => {
  assert.deepEqual(made().map(({ number, name, rows }) => [number, name, rows]), [
    [0, "cluster 0", [1, 4]], [2, "cats (2)", [0, 2, 5]], [-1, "in no cluster", [3]],
  ]);
  assert.equal(made()[0].doubt, 0.5);
});

test("groups are sorted by size, doubt or name, and found by name or by the id of a sample", () => {
  const by = (order, search = "") => groups.arrangeGroups(made(), order, search, IDS).map((group) => group.number);
  assert.deepEqual(by("size"), [2, 0, -1]);
  assert.deepEqual(by("doubt"), [0, 2, -1]);
  assert.deepEqual(by("name"), [2, 0, -1]);
  assert.deepEqual(by("size", "CATS"), [2]);
  assert.deepEqual(by("size", "fox"), [0]);
  assert.deepEqual(by("size", "zebra"), []);
});

test("rows come most typical or most doubtful first", () => {
  assert.deepEqual(groups.orderRows([0, 2, 5], "typical", VIEW), [2, 5, 0]);
  assert.deepEqual(groups.orderRows([0, 2, 5], "doubtful", VIEW), [5, 2, 0]);
  assert.deepEqual(groups.mostTypical([0, 1, 2, 3, 4, 5], VIEW, 3), [1, 2, 4]);
  assert.deepEqual(groups.mostTypical([3], VIEW, 3), [3]);
});

test("a cluster is found by its number, its name, or the first letters of a word of it", () => {
  const found = (text) => groups.findGroup(text, groups.makeGroups(VIEW, { 2: "wild cats", 0: "2 dogs" }))?.number;
  assert.deepEqual(["2", "wild", "cat", "2 d", "in", " ", "x"].map(found), [2, 2, 2, 0, -1, undefined, undefined]);
});

test("a range holds all from one row to another in the order of the grid", () => {
  assert.deepEqual(groups.between([5, 3, 9, 1], 1, 3), [3, 9, 1]);
  assert.deepEqual(groups.between([5, 3, 9, 1], 7, 3), [3]);
});

test("only the cells in sight, and half a screen around them, are drawn", () => {
  const grid = groups.layOut(500, 96, 50_000);
  assert.deepEqual([grid.columns, grid.step, grid.side], [5, 100, 96]);
  assert.deepEqual(groups.inSight(grid, 0, 600), [0, 45]);
  assert.deepEqual(groups.inSight(grid, 1000, 600), [35, 95]);
  assert.deepEqual(groups.inSight({ ...grid, total: 7 }, 0, 600), [0, 7]);
  assert.equal(groups.layOut(50, 96, 3).columns, 1);
});

test("a rectangle touches the cells that it overlaps, and no others", () => {
  const grid = groups.layOut(500, 96, 12);
  assert.deepEqual(groups.touched(grid, [150, 50, 250, 120]), [1, 2, 6, 7]);
  assert.deepEqual(groups.touched(grid, [-50, 205, 5000, 900]), [10, 11]);
});

test("arrow keys of the map lead to the nearest point within 45 degrees", () => {
  const [x, y] = [[0, 10, 20, 0, -5], [0, 1, 0, 30, -1]];
  const from = (dx, dy) => groups.towards(0, dx, dy, x, y, [0, 1, 2, 3, 4]);
  assert.deepEqual([from(1, 0), from(0, 1), from(-1, 0), from(0, -1)], [1, 3, 4, 0]);
});

test("labels are overruled where most of their samples lie in another cluster", () => {
  assert.deepEqual([...groups.findOverruled([7, 7, 7, -1, 8], [1, 1, 2, 5, 2])], [2]);
});

test("changes are counted, and counts are words", () => {
  assert.equal(groups.countChanged([1, 2, 3], [1, 3, 2]), 2);
  assert.deepEqual([groups.count(1, "image"), groups.count(1234, "image")], ["1 image", "1,234 images"]);
  assert.deepEqual(["a/b/c.png", "c.png"].map(groups.folderOf), ["a/b", ""]);
});
