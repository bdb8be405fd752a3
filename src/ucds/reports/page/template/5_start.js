// Connects everything and shows the first state.

function showAll() {
  showNames();
  showEntered();
  drawMap();
}

function connect() {
  document.addEventListener("click", click);
  document.addEventListener("entered", showAll);
  document.addEventListener("change", (event) => {
    const { name, question } = event.target.dataset;
    if (name !== undefined) setName(name, event.target.value);
    if (question !== undefined) setAnswer(question, event.target.value);
  });
  find("#highlight").addEventListener("change", (event) => highlight(event.target.value));
  find("#zoom-in").addEventListener("click", () => zoom(1.6));
  find("#zoom-out").addEventListener("click", () => zoom(1 / 1.6));
  find("#zoom-reset").addEventListener("click", () => zoom(0));
  find("#previous").addEventListener("click", () => step(-1));
  find("#next").addEventListener("click", () => step(1));
  find("#more").addEventListener("click", showMore);
  find("#open").addEventListener("change", openFile);
  viewer.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
  find("#save-names").addEventListener("click", () => download(`${DATA.run}-names.json`, namesFile()));
  find("#save-answers")?.addEventListener("click", () => download(`${DATA.run}-answers.jsonl`, answersFile()));
  addEventListener("beforeunload", (event) => unsaved && event.preventDefault());
  addEventListener("beforeprint", () => all("[data-picture]").forEach((each) => showPicture(each, Number(each.dataset.picture))));
  new ResizeObserver(drawMap).observe(canvas);
  darkness.addEventListener("change", () => {
    drawMarks();
    drawMap();
  });
}

for (const cell of all("[data-share]")) {
  cell.style.background = `color-mix(in srgb, var(--accent) ${cell.dataset.share}%, var(--card))`;
  if (cell.dataset.share > 50) cell.style.color = "var(--on-accent)";
}
recall();
connect();
followPointer();
followKeys();
drawMarks();
showAll();
for (const picture of all("[data-picture]")) near.observe(picture);
