"use strict";
// What works without it: everything. It keeps a page up to date, counts the selected machines and remembers nothing.

const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function duration(seconds) {
  const left = Math.max(0, Math.round(seconds));
  for (let i = 0; i < units.length - 1; i += 1) {
    const [size, unit] = units[i];
    if (left >= size) {
      const [smaller, name] = units[i + 1];
      const more = Math.floor((left % size) / smaller);
      return `${Math.floor(left / size)} ${unit}${more ? ` ${more} ${name}` : ""}`;
    }
  }
  return `${left} s`;
}

// The clock of the database, which may differ from those of the browser and of the server.
let ahead = Number(document.getElementById("main")?.dataset.now ?? Date.now()) - Date.now();

function timeLeft(ends, late, now) {
  if (ends - now >= 1000) return duration((ends - now) / 1000);
  return now < late ? "any moment" : `late by ${duration((now - late) / 1000)}`;
}

function showAges() {
  for (const one of document.querySelectorAll("time[data-late]")) {
    one.textContent = timeLeft(Date.parse(one.dateTime), Date.parse(one.dataset.late), Date.now() + ahead);
  }
  for (const one of document.querySelectorAll("time[data-age]")) {
    one.textContent = duration((Date.now() + ahead - Date.parse(one.dateTime)) / 1000);
  }
}

function countSelected() {
  const label = document.getElementById("selected");
  const boxes = [...document.querySelectorAll('input[name="node"]')];
  const all = document.getElementById("check-all");
  const bar = document.getElementById("bar");
  if (!label) return;
  const chosen = boxes.filter((box) => box.checked).length;
  label.textContent = chosen ? `${chosen} selected:` : "Select machines, then:";
  if (bar) bar.hidden = !chosen && !document.getElementById("all-that-match").checked;
  if (all) {
    all.hidden = false;
    all.checked = chosen > 0 && chosen === boxes.length;
    all.indeterminate = chosen > 0 && chosen < boxes.length;
  }
}

document.addEventListener("change", (event) => {
  if (event.target.id === "check-all") {
    for (const box of document.querySelectorAll('input[name="node"]')) box.checked = event.target.checked;
  }
  countSelected();
});

// With the Shift key, all from the box that was clicked before to this one.
let clicked = null;

document.addEventListener("click", (event) => {
  const box = event.target;
  if (!box.matches('input[name="node"]')) return;
  const boxes = [...document.querySelectorAll('input[name="node"]')];
  const [from, to] = [boxes.indexOf(clicked), boxes.indexOf(box)].sort((a, b) => a - b);
  if (event.shiftKey && from >= 0) for (const one of boxes.slice(from, to + 1)) one.checked = box.checked;
  clicked = box;
});

// The search box completes the last word, which may be a field.
let fields = null;

document.addEventListener("input", (event) => {
  const box = event.target;
  if (box.id !== "q" || !box.list) return;
  fields ??= [...box.list.options].map((one) => [one.value, one.textContent]);
  const word = /[\w.]*$/.exec(box.value)[0];
  const before = box.value.slice(0, box.value.length - word.length);
  const fitting = fields.filter(([name]) => word && name.startsWith(word) && name !== word);
  box.list.replaceChildren(...fitting.map(([name, meaning]) => new Option(meaning, before + name)));
});

// Keys: "/" searches, "j" and "k" go from row to row, "x" selects one, "?" says so.
function rows() {
  const found = [...document.querySelectorAll("main tbody tr, main .problems li")];
  return found.filter((row) => row.querySelector("a[href]") && row.checkVisibility());
}

function move(by) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  if (!next) return;
  next.querySelector("th a[href], a[href]").focus();
  next.scrollIntoView({ block: "nearest" });
}

const keys = {
  "/": () => (document.getElementById("q") ?? document.getElementById("find"))?.focus(),
  "?": () => document.getElementById("keys").showModal(),
  j: () => move(1),
  k: () => move(-1),
  x: () => rows().find((row) => row.contains(document.activeElement))?.querySelector("input[name=node]")?.click(),
};

document.addEventListener("keydown", (event) => {
  const typing = document.activeElement.matches("input:not([type=checkbox]), textarea, select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});

const showKeys = document.getElementById("show-keys");
if (showKeys) {
  showKeys.hidden = false;
  showKeys.addEventListener("click", keys["?"]);
}

// What can be pasted can be copied, where the browser lets a page do so: over HTTPS, or from this machine.
function offerCopies() {
  for (const one of document.querySelectorAll("button.copy")) one.hidden = !navigator.clipboard;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const { copy, copyLink } = button.dataset;
  await navigator.clipboard.writeText(copy ?? new URL(copyLink, location.href).href);
  button.textContent = "Copied";
});

// A link to a folded part unfolds it.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target?.matches("details")) target.open = true;
}

window.addEventListener("hashchange", unfold);
unfold();

// A question, and what was done, are no places to come back to: the browser would ask whether to send the form again.
const back = document.getElementById("main")?.dataset.back;
if (back) history.replaceState(null, "", back);

// What was done is said once: a page that looks for news of itself asks without it.
const done = document.getElementById("done");
if (done) history.replaceState(null, "", location.href.replace(/[?&]done=\w+/, ""));

// The theme is a cookie of the pages, so that each comes in it at once.
const theme = document.getElementById("theme");
document.getElementById("theme-choice").hidden = false;
theme.addEventListener("change", () => {
  document.documentElement.dataset.theme = theme.value;
  document.cookie = `ferroscope-theme=${theme.value}; path=/ui; max-age=31536000; samesite=lax`;
});

// Where the names of the pages do not fit beside each other, that of this page is among those that are seen.
const pages = document.querySelector(".top nav");
const here = pages?.querySelector("[aria-current]");
if (here) pages.scrollLeft = here.offsetLeft - pages.offsetLeft - (pages.clientWidth - here.offsetWidth) / 2;

// The heading of a list stays in sight where the list is not wider than the page: a list that scrolls would keep it.
function fit() {
  for (const list of document.querySelectorAll(".scroll.list")) {
    list.classList.remove("fits");
    list.classList.toggle("fits", list.scrollWidth <= list.clientWidth);
  }
}

window.addEventListener("resize", fit);

// Whether somebody is at work on the page, so that news would take something away. What was done stays where it is.
function isBusy(main) {
  const active = document.activeElement;
  const entered = [...main.querySelectorAll("input, textarea")].some((one) => one.value !== one.defaultValue);
  return entered || (active !== main && active.id !== "done" && main.contains(active)) || main.querySelector("input:checked[name=node], details[open]:not(.notes, .fold)");
}

// What has changed is said once, in a sentence, also to somebody at work; what is counted up each second is not said.
let told = { ...document.getElementById("main")?.dataset };

function tell(news) {
  const { subject, state, trial } = news.dataset;
  const said = [];
  if (state && state !== told.state) said.push(`${subject} changed from ${told.state} to ${state}.`);
  if (trial && trial !== told.trial) said.push(trial);
  if (said.length) document.getElementById("live-note").textContent = said.join(" ");
  told = { ...news.dataset };
}

async function refresh(main) {
  const answer = await fetch(location.href, {
    headers: main.dataset.tag ? { "If-None-Match": `"${main.dataset.tag}"` } : {}, cache: "no-store", redirect: "manual",
  });
  if (answer.type === "opaqueredirect") throw new Error("login");
  const now = Number(answer.headers.get("Ferroscope-Now"));
  if (now) ahead = now - Date.now();
  if (answer.status === 304) return false;
  if (!answer.ok) throw new Error(String(answer.status));
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const news = page.getElementById("main");
  if (news) tell(news);
  if (isBusy(main) || !news) return true;
  // Another release has another script, and what it shows may need that.
  const [script, newer] = [document, page].map((one) => one.querySelector("script[src]").getAttribute("src"));
  if (script !== newer) return location.reload();
  // In another window, somebody else may have logged in.
  const [who, other] = [document, page].map((one) => one.querySelector(".who")?.textContent);
  if (who !== other) document.querySelector(".top").replaceWith(page.querySelector(".top"));
  for (const child of [...main.childNodes]) if (child.id !== "done") child.remove();
  main.append(...news.childNodes);
  Object.assign(main.dataset, news.dataset);
  countSelected();
  offerCopies();
  fit();
  return true;
}

// Where a look is led elsewhere, and for some answers.
const WHY = {
  login: "you are no longer logged in; load the page again", 403: "you may not see this any more", 404: "this is no longer there",
  500: "the service has an internal error", 503: "the service cannot reach its database, or is too busy",
};
const SILENT = "the service does not answer";

function keepUpToDate(main) {
  const note = document.getElementById("live-note");
  let failures = 0;
  // While nothing changes, it looks half as often.
  let unchanged = 0;
  const next = () => setTimeout(turn, 1000 * Number(main.dataset.live) * Math.min(2 ** failures, 12) * (unchanged > 5 ? 2 : 1));
  async function turn() {
    if (!document.hidden) {
      try {
        unchanged = (await refresh(main)) ? 0 : unchanged + 1;
        if (failures) note.textContent = "";
        failures = 0;
      } catch (error) {
        failures += 1;
        note.textContent = `Not up to date: ${WHY[error.message] ?? SILENT}. Trying again.`;
      }
    }
    next();
  }
  next();
}

// A form is sent when the service answers: to a browser's page about an error, what somebody has entered is lost.
// Return why it is not to be sent now, "" if it is.
async function hindrance() {
  try {
    const answer = await fetch(location.href, { method: "HEAD", cache: "no-store", redirect: "manual" });
    return answer.status < 500 ? "" : (WHY[answer.status] ?? SILENT);
  } catch {
    return SILENT;
  }
}

document.addEventListener("submit", async (event) => {
  const { target: form, submitter } = event;
  if (form.method !== "post" || form.dataset.sure) return;
  event.preventDefault();
  if (form.dataset.asks) return;
  form.dataset.asks = "yes";
  document.getElementById("not-sent")?.remove();
  const why = await hindrance();
  if (!why) {
    form.dataset.sure = "yes";
    form.requestSubmit(submitter);
  } else {
    const note = Object.assign(document.createElement("p"), { id: "not-sent", className: "alert", role: "alert" });
    note.textContent = `Not sent: ${why}. What you entered is still here; try again in a moment.`;
    form.append(note);
  }
  delete form.dataset.sure;
  delete form.dataset.asks;
});

// A long import goes on by itself; while BMCs are tried, after a second.
const rest = document.querySelector("form[data-continue]");

async function goOn() {
  if (await hindrance()) setTimeout(goOn, 5000);
  else rest.submit();
}

if (rest) setTimeout(goOn, 1000 * Number(rest.dataset.continue));

countSelected();
offerCopies();
fit();
setInterval(showAges, 1000);
const main = document.getElementById("main");
if (main && main.dataset.live) keepUpToDate(main);
