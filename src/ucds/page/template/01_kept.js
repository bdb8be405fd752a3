// The kept libraries, which stand in the page before this script; their versions and licences are in kept/kept.json.

const kept = /** @type {any} */ (globalThis).kept ?? {};

export const { h, render } = kept.preact ?? {};
export const { useEffect, useLayoutEffect, useRef, useState } = kept.hooks ?? {};
export const html = kept.htm?.bind(h);
export const Graph = kept.Graph;
