// Pictures: cut out of WebP sheets by their place as a background, so that a sheet is decoded only when it is seen.

const PER_SHEET = DATA.columns * DATA.columns;
const sheetAddresses = [];

function sheetAddress(number) {
  if (!sheetAddresses[number]) {
    const text = atob(document.getElementById(`sheet-${number}`).textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    sheetAddresses[number] = URL.createObjectURL(new Blob([bytes], { type: "image/webp" }));
  }
  return sheetAddresses[number];
}

function showPicture(element, sample) {
  if (!DATA.sheets) {
    element.textContent = DATA.captions[sample];
    return;
  }
  const sheet = Math.floor(sample / PER_SHEET);
  const row = Math.floor((sample % PER_SHEET) / DATA.columns);
  const column = sample % DATA.columns;
  const rows = Math.ceil(Math.min(PER_SHEET, DATA.ids.length - sheet * PER_SHEET) / DATA.columns);
  const place = (at, count) => (count > 1 ? (100 * at) / (count - 1) : 0);
  element.style.backgroundImage = `url("${sheetAddress(sheet)}")`;
  element.style.backgroundSize = `${100 * DATA.columns}% ${100 * rows}%`;
  element.style.backgroundPosition = `${place(column, DATA.columns)}% ${place(row, rows)}%`;
}

const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      near.unobserve(entry.target);
      showPicture(entry.target, Number(entry.target.dataset.picture));
    }
  },
  { rootMargin: "400px" },
);

function thumb(sample) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "thumb";
  button.dataset.sample = sample;
  button.setAttribute("aria-label", `${DATA.ids[sample]}, ${DATA.sure[sample]}% sure`);
  const picture = document.createElement("span");
  picture.className = "picture";
  picture.dataset.picture = sample;
  const note = document.createElement("small");
  note.textContent = `${DATA.sure[sample]}%`;
  button.append(picture, note);
  near.observe(picture);
  return button;
}

// Marks: colour and shape together tell clusters apart; colours alone repeat, and not everybody sees them.

const SHAPES = [
  "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z",
  "M-.9-.9H.9V.9H-.9Z",
  "M0-1.2L1.2 0L0 1.2L-1.2 0Z",
  "M0-1.1L1.1.85H-1.1Z",
  "M0 1.1L1.1-.85H-1.1Z",
  "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
  "M-1.1 0L.85-1.1V1.1Z",
];
const STAR = "M0-1L.24-.32L.95-.31L.38.12L.59.81L0 .4L-.59.81L-.38.12L-.95-.31L-.24-.32Z";
const darkness = matchMedia("(prefers-color-scheme: dark)");

function colourOf(k) {
  const colours = darkness.matches ? DATA.colours.dark : DATA.colours.light;
  return colours[k % colours.length];
}

function drawMarks() {
  for (const mark of all("[data-mark]")) {
    const k = Number(mark.dataset.mark);
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", SHAPES[k % SHAPES.length]);
    path.setAttribute("fill", colourOf(k));
    mark.replaceChildren(path);
  }
}
