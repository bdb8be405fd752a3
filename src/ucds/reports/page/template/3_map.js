// The map: a canvas with every sample as a mark and every prototype as a star.

const canvas = find("#map");
const tip = find("#tip");
const view = { zoom: 1, x: 0.5, y: 0.5 }; // the point of the map (0..1) in the middle of the canvas
const shapes = SHAPES.map((text) => new Path2D(text));
const star = new Path2D(STAR);
let current = -1; // sample that the pointer or the keyboard is at
let highlighted = () => true;

function place(x, y) {
  const side = Math.min(canvas.clientWidth, canvas.clientHeight) * 0.94 * view.zoom;
  const wide = canvas.clientWidth > canvas.clientHeight ? canvas.clientWidth / canvas.clientHeight : 1;
  const across = side * Math.min(wide, 1.8); // use some of a wide canvas; distances of an embedding are no lengths
  return [canvas.clientWidth / 2 + (x / 1000 - view.x) * across, canvas.clientHeight / 2 + (y / 1000 - view.y) * side];
}

function drawMap() {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
  const pen = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const paper = style.getPropertyValue("--card");
  const ink = style.getPropertyValue("--ink");
  const size = Math.max(2.2, Math.min(5, 110 / Math.sqrt(DATA.ids.length))) * Math.sqrt(view.zoom);
  const draw = (shape, x, y, scale, fill, edge, alpha) => {
    pen.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * x, ratio * y);
    pen.globalAlpha = alpha;
    pen.fillStyle = fill;
    pen.fill(shape);
    if (edge) {
      pen.strokeStyle = edge;
      pen.lineWidth = 1.5 / scale;
      pen.stroke(shape);
    }
  };
  for (const strong of [false, true]) {
    for (let i = 0; i < DATA.ids.length; i++) {
      if (highlighted(i) !== strong) continue;
      const [x, y] = place(DATA.x[i], DATA.y[i]);
      draw(shapes[DATA.cluster[i] % shapes.length], x, y, size, colourOf(DATA.cluster[i]), null, strong ? 0.85 : 0.12);
    }
  }
  DATA.stars.forEach(([sx, sy], k) => {
    const [x, y] = place(sx, sy);
    draw(star, x, y, 11, colourOf(k), ink, 1);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = "600 12px system-ui, sans-serif";
    pen.lineWidth = 3;
    pen.strokeStyle = paper;
    pen.fillStyle = ink;
    const label = state.names[k] || String(k);
    const width = pen.measureText(label).width;
    const left = x + 10 + width > canvas.clientWidth ? x - 10 - width : x + 10; // whole at the right edge too
    pen.strokeText(label, left, y - 6);
    pen.fillText(label, left, y - 6);
  });
  if (current >= 0) {
    const [x, y] = place(DATA.x[current], DATA.y[current]);
    draw(shapes[0], x, y, size + 4, "transparent", ink, 1);
  }
}

function point(sample) {
  current = sample;
  tip.hidden = sample < 0;
  if (sample >= 0) {
    const [x, y] = place(DATA.x[sample], DATA.y[sample]);
    showPicture(find(".picture", tip), sample);
    find("p", tip).textContent = `${DATA.ids[sample]}: ${clusterName(DATA.cluster[sample])}, ${DATA.sure[sample]}% sure`;
    const right = x > canvas.clientWidth / 2;
    tip.style.left = `${Math.max(0, Math.min(canvas.clientWidth - 150, right ? x - 166 : x + 16))}px`;
    tip.style.top = `${Math.max(0, Math.min(y - 40, canvas.clientHeight - 215))}px`;
  }
  drawMap();
}

function nearest(x, y, reach) {
  let best = -1;
  let least = reach * reach;
  for (let i = 0; i < DATA.ids.length; i++) {
    if (!highlighted(i)) continue;
    const [px, py] = place(DATA.x[i], DATA.y[i]);
    const distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance < least) [best, least] = [i, distance];
  }
  return best;
}

// The nearest mark within 45 degrees of a direction; sideways distance counts double.
function towards(dx, dy) {
  if (current < 0) return nearest(canvas.clientWidth / 2, canvas.clientHeight / 2, Infinity);
  const [x, y] = place(DATA.x[current], DATA.y[current]);
  let best = current;
  let least = Infinity;
  for (let i = 0; i < DATA.ids.length; i++) {
    const [px, py] = place(DATA.x[i], DATA.y[i]);
    const ahead = (px - x) * dx + (py - y) * dy;
    const aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
    if (!highlighted(i) || ahead <= 0.01 || aside > ahead) continue;
    const distance = ahead + aside;
    if (distance < least) [best, least] = [i, distance];
  }
  return best;
}

function zoom(factor) {
  view.zoom = Math.max(1, Math.min(20, view.zoom * factor));
  if (view.zoom === 1) [view.x, view.y] = [0.5, 0.5];
  else if (current >= 0) [view.x, view.y] = [DATA.x[current] / 1000, DATA.y[current] / 1000];
  canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y";
  point(current);
}

function followPointer() {
  let dragged = null;
  const at = (event) => nearest(event.offsetX, event.offsetY, event.pointerType === "touch" ? 30 : 14);
  canvas.addEventListener("pointermove", (event) => {
    if (dragged && view.zoom > 1) {
      const side = Math.min(canvas.clientWidth, canvas.clientHeight) * view.zoom;
      view.x = Math.min(1, Math.max(0, view.x - event.movementX / side));
      view.y = Math.min(1, Math.max(0, view.y - event.movementY / side));
      dragged.far ||= Math.hypot(event.offsetX - dragged.x, event.offsetY - dragged.y) > 4;
      return point(-1);
    }
    const sample = at(event);
    if (sample !== current) point(sample);
  });
  canvas.addEventListener("pointerdown", (event) => (dragged = { x: event.offsetX, y: event.offsetY, far: false }));
  canvas.addEventListener("pointerup", (event) => {
    const sample = dragged?.far ? -1 : at(event);
    dragged = null;
    if (sample >= 0) openViewer(sample, [sample]);
  });
  canvas.addEventListener("pointerleave", () => {
    dragged = null;
    if (document.activeElement !== canvas) point(-1);
  });
}

function followKeys() {
  const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    if (directions[event.key]) {
      point(towards(...directions[event.key]));
      find("#said").textContent = find("p", tip).textContent;
    } else if (event.key === "Enter" && current >= 0) openViewer(current, [current]);
    else if (event.key === "+") zoom(1.6);
    else if (event.key === "-") zoom(1 / 1.6);
    else return;
    event.preventDefault();
  });
  canvas.addEventListener("blur", () => point(-1));
}

function highlight(what) {
  const outliers = new Set(DATA.outliers);
  const twins = new Set(DATA.twins);
  const choices = {
    all: () => true,
    doubtful: (i) => DATA.sure[i] < 50,
    overruled: (i) => DATA.overruled[i] === 1,
    outliers: (i) => outliers.has(i),
    twins: (i) => twins.has(i),
  };
  highlighted = choices[what] || ((i) => DATA.cluster[i] === Number(what));
  point(-1);
}
