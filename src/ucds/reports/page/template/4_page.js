// Cards, dialogs and buttons: everything a person touches outside the map.

const viewer = find("#viewer");
const gallery = find("#gallery");
let looking = { sample: -1, among: [] };
let shown = { cluster: -1, count: 0 };

function openViewer(sample, among) {
  looking = { sample, among };
  find("#viewer-title").textContent = DATA.ids[sample];
  showPicture(find(".picture", viewer), sample);
  const facts = [
    ["Cluster", clusterName(DATA.cluster[sample])],
    ["Sure", `${DATA.sure[sample]}%`],
    ["Next nearest", `${clusterName(DATA.rival[sample])}, ${DATA.rivalSure[sample]}%`],
  ];
  if (DATA.answer && DATA.answer[sample] >= 0) {
    facts.push(["Provider's label", `${DATA.answer[sample]}${DATA.overruled[sample] ? ", overruled" : ""}`]);
  }
  if (DATA.classes) facts.push(["Folder", DATA.classes.names[DATA.classes.of[sample]]]);
  find("#viewer-facts").replaceChildren(
    ...facts.flatMap(([name, value]) => {
      const [term, entry] = [document.createElement("dt"), document.createElement("dd")];
      [term.textContent, entry.textContent] = [name, value];
      return [term, entry];
    }),
  );
  const place = among.indexOf(sample);
  find("#previous").disabled = place <= 0;
  find("#next").disabled = place >= among.length - 1;
  if (!viewer.open) viewer.showModal();
}

function step(by) {
  const next = looking.among[looking.among.indexOf(looking.sample) + by];
  if (next !== undefined) openViewer(next, looking.among);
}

const membersOf = (k) => DATA.cluster.flatMap((cluster, i) => (cluster === k ? [i] : []));

function openGallery(k) {
  shown = { cluster: k, count: 0 };
  find("#gallery-title").textContent = `All of ${clusterName(k)}`;
  find(".thumbs", gallery).replaceChildren();
  showMore();
  gallery.showModal();
}

function showMore() {
  const members = membersOf(shown.cluster);
  const next = members.slice(shown.count, shown.count + 200);
  find(".thumbs", gallery).append(...next.map(thumb));
  shown.count += next.length;
  find("#more").hidden = shown.count >= members.length;
}

function showNames() {
  for (const element of all("[data-name-of]")) element.textContent = clusterName(Number(element.dataset.nameOf));
  for (const input of all("[data-name]")) {
    if (input !== document.activeElement) input.value = state.names[input.dataset.name] ?? "";
  }
}

function showEntered() {
  const names = Object.entries(state.names).map(([k, name]) => {
    const item = document.createElement("li");
    item.textContent = `Cluster ${k} is called ${name}. `;
    item.append(removal(`name of cluster ${k}`, () => setName(k, "")));
    return item;
  });
  find("#entered").replaceChildren(...names);
  const answers = Object.keys(state.answers).length;
  for (const input of all("[data-question]")) input.checked = input.value === String(state.answers[input.dataset.question] ?? "");
  find("#nothing").hidden = names.length > 0;
  find("#save-names").disabled = !names.length;
  if (find("#save-answers")) find("#save-answers").disabled = !answers;
  find("#status").textContent = `${names.length || "No"} ${names.length === 1 ? "name" : "names"}, ${answers || "no"} ${answers === 1 ? "answer" : "answers"}.`;
}

function removal(what, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Remove";
  button.setAttribute("aria-label", `Remove: ${what}`);
  button.addEventListener("click", act);
  return button;
}

function click(event) {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.show) openGallery(Number(button.dataset.show));
  else if (button.classList.contains("close")) button.closest("dialog").close();
  else if (button.dataset.sample) {
    const row = all(".thumb", button.closest(".thumbs")).map((each) => Number(each.dataset.sample));
    openViewer(Number(button.dataset.sample), row);
  }
}

async function openFile(event) {
  const [file] = event.target.files;
  if (!file) return;
  let problem = "This file cannot be read.";
  try {
    problem = readFile(JSON.parse(await file.text()));
  } catch {
    // No JSON, or not what the page writes: the text above says so.
  }
  if (problem) find("#status").textContent = problem;
  event.target.value = "";
}
