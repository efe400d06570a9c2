"use strict";
// What the page can do beyond being read: exact instants under the pointer, zoom, filters and sorting.
// Everything shown is already in the page; names are only ever set as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const start = Date.parse(data.start);
  const by = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  document.documentElement.classList.add("live");

  // --- words ------------------------------------------------------------------------------------
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const two = (n) => String(n).padStart(2, "0");
  const utc = (ms, seconds = true) => {
    const d = new Date(ms);
    return `${d.getUTCDate()} ${MONTHS[d.getUTCMonth()]} ${two(d.getUTCHours())}:${two(d.getUTCMinutes())}` + (seconds ? `:${two(d.getUTCSeconds())}` : "");
  };
  const local = (ms) => {
    const d = new Date(ms);
    return `${d.getDate()} ${MONTHS[d.getMonth()]} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  };
  const both = (ms) => `${utc(ms)} UTC\n${local(ms)} local`;
  const span = (s) => {
    const parts = [];
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
      const count = Math.floor(s / size);
      s -= count * size;
      if (parts.length || count) parts.push(`${count}${unit}`);
      if (parts.length === 2) break;
    }
    return parts.filter((part) => !part.startsWith("0")).join(" ") || "0s";
  };

  // --- the tip ----------------------------------------------------------------------------------
  const tip = by("tip");
  const say = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const x = event.clientX + 14, y = event.clientY + 16;
    tip.style.left = `${Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : y}px`;
  };
  const hush = () => { tip.hidden = true; };

  const gpusAt = (s) => {
    const { x, paid, ready, used } = data.gpus;
    let low = 0, high = x.length;
    while (low < high) { const middle = (low + high) >> 1; if (x[middle] <= s) low = middle + 1; else high = middle; }
    return low ? `GPUs: ${paid[low - 1]} paid, ${ready[low - 1]} ready, ${used[low - 1]} used` : "";
  };
  const nodeText = (rect, origin) => {
    const node = rect.parentNode, from = origin + rect.x.baseVal.value * 1000, length = rect.width.baseVal.value;
    const phase = rect.getAttribute("class").slice(2);
    return `${node.dataset.node}  ${node.dataset.type}\n${phase} for ${span(length)}\nfrom ${utc(from)} UTC (${local(from)} local)\nto ${utc(from + length * 1000)} UTC`;
  };
  const blockText = (track) => [track.dataset.block, ...track.dataset.marks.split(";").filter(Boolean).map((mark) => {
    const [word, at, before] = mark.split("|");
    return `${word}: ${utc(Date.parse(at))} UTC, ${before}`;
  })].join("\n");

  // --- the timeline -----------------------------------------------------------------------------
  const view = by("view"), axis = by("axis"), lines = by("gridlines"), cursor = by("cursor"), drag = by("drag");
  const wholeAxis = [...axis.children], wholeLines = [...lines.querySelectorAll("i")];
  const MOST = Math.max(1, data.length / 300);  // five minutes across the screen are close enough
  let zoom = 1, dragFrom = null;
  const trackWidth = () => axis.getBoundingClientRect().width;
  const secondAt = (event) => {
    const box = axis.getBoundingClientRect();
    return Math.max(0, Math.min(data.length, (event.clientX - box.left) / box.width * data.length));
  };

  const STEPS = [60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400];
  const drawTicks = () => {
    if (zoom <= 1) { axis.replaceChildren(...wholeAxis); wholeLines.forEach((line) => lines.prepend(line)); lines.querySelectorAll(".fine").forEach((line) => line.remove()); return; }
    const perSecond = trackWidth() / data.length;
    const step = STEPS.find((size) => size * perSecond >= 74) || 86400;
    const first = Math.max(0, view.scrollLeft / perSecond - step), last = (view.scrollLeft + view.clientWidth) / perSecond + step;
    axis.replaceChildren();
    lines.querySelectorAll(".fine").forEach((line) => line.remove());
    const offset = (start / 1000) % step;
    for (let s = Math.ceil((first + offset) / step) * step - offset; s <= Math.min(last, data.length); s += step) {
      const midnight = (start / 1000 + s) % 86400 === 0;
      const tick = make("span", `tick ${midnight ? "t-day" : "t-hour"}`, midnight ? utc(start + s * 1000, false).slice(0, -6) : utc(start + s * 1000, false).slice(-5));
      const line = make("i", "fine t-hour");
      tick.style.left = line.style.left = `${s / data.length * 100}%`;
      axis.append(tick);
      lines.prepend(line);
    }
  };
  const zoomTo = (factor, centre) => {
    const width = view.clientWidth - view.querySelector(".label").offsetWidth;
    zoom = Math.max(1, Math.min(MOST, factor));
    view.style.setProperty("--z", zoom);
    view.classList.toggle("zoomed", zoom > 1);
    view.scrollLeft = centre / data.length * trackWidth() - width / 2;
    drawTicks();
  };
  const centre = () => (view.scrollLeft + (view.clientWidth - view.querySelector(".label").offsetWidth) / 2) / trackWidth() * data.length;
  const zoomBetween = (from, to) => zoomTo(data.length / Math.max(1, to - from), (from + to) / 2);
  let waiting = false;
  view.addEventListener("scroll", () => { if (!waiting && zoom > 1) { waiting = true; requestAnimationFrame(() => { waiting = false; drawTicks(); }); } });
  addEventListener("resize", drawTicks);

  view.addEventListener("pointermove", (event) => {
    const track = event.target.closest(".track");
    if (!track) { cursor.hidden = true; hush(); return; }
    const s = secondAt(event);
    cursor.hidden = false;
    cursor.style.left = `${s / data.length * 100}%`;
    if (dragFrom !== null) {
      drag.hidden = false;
      drag.style.left = `${Math.min(s, dragFrom) / data.length * 100}%`;
      drag.style.width = `${Math.abs(s - dragFrom) / data.length * 100}%`;
      say(event, `${utc(start + Math.min(s, dragFrom) * 1000)} UTC\nfor ${span(Math.abs(s - dragFrom))}`);
      return;
    }
    if (event.target.dataset.say) say(event, `${event.target.dataset.say}\n${both(Date.parse(event.target.dataset.at))}`);
    else if (event.target.matches("g[data-node] > rect")) say(event, nodeText(event.target, start));
    else if (track.dataset.block && event.target.matches("rect")) say(event, blockText(track));
    else say(event, `${both(start + s * 1000)}\n${gpusAt(s)}`);
  });
  view.addEventListener("pointerleave", () => { cursor.hidden = true; hush(); });
  view.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType === "mouse" && event.target.closest(".track")) { dragFrom = secondAt(event); event.preventDefault(); }
  });
  let dragged = false;
  addEventListener("pointerup", (event) => {
    if (dragFrom === null) return;
    const s = secondAt(event), from = dragFrom, pixels = Math.abs(s - from) / data.length * trackWidth();
    dragFrom = null;
    drag.hidden = true;
    dragged = pixels > 6;
    if (dragged) zoomBetween(Math.min(s, from), Math.max(s, from));
  });
  view.addEventListener("click", (event) => { if (dragged) { event.preventDefault(); dragged = false; } }, true);
  view.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") zoomTo(zoom * 2, centre());
    else if (event.key === "-") zoomTo(zoom / 2, centre());
    else if (event.key === "0") zoomTo(1, 0);
  });
  document.querySelector(".zoom").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.from) zoomBetween((Date.parse(button.dataset.from) - start) / 1000, (Date.parse(button.dataset.to) - start) / 1000);
    else if (button.dataset.zoom === "all") zoomTo(1, 0);
    else zoomTo(zoom * (button.dataset.zoom === "in" ? 2 : 0.5), centre());
  });
  document.addEventListener("pointermove", (event) => {
    if (event.target.closest && event.target.closest("#view")) return;
    const time = event.target.closest && event.target.closest("time");
    const rect = event.target.matches && event.target.matches(".strip g[data-node] > rect") ? event.target : null;
    if (time) say(event, both(Date.parse(time.dateTime)));
    else if (rect) say(event, nodeText(rect, Date.parse(rect.closest(".strip").dataset.start)));
    else hush();
  });

  // --- jobs -------------------------------------------------------------------------------------
  const { words, states, rows, shown } = data.jobs;
  const [NAME, STREAM, TEAM, GPUS, PODS, ARRIVED, STARTED, FINISHED, STATE, LATE, RESTARTS, SOURCES, REASON] = Array(13).keys();
  const wait = (row) => (row[STARTED] ?? data.length) - row[ARRIVED];
  const ran = (row) => row[STARTED] === null ? -1 : (row[FINISHED] ?? data.length) - row[STARTED];
  const KEYS = { name: (r) => r[NAME], state: (r) => r[STATE], stream: (r) => words[r[STREAM]], team: (r) => words[r[TEAM]], gpus: (r) => r[GPUS],
    arrived: (r) => r[ARRIVED], wait, ran, restarts: (r) => r[RESTARTS], sources: (r) => words[r[SOURCES]], reason: (r) => words[r[REASON]] };
  const table = by("jobs-table"), jobForm = document.querySelector("[data-filter=jobs]");
  let sort = null, upwards = true;
  const compare = (a, b) => {
    const x = KEYS[sort](a), y = KEYS[sort](b);
    return (typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true })) * (upwards ? 1 : -1);
  };
  const cell = (tr, className, text) => { const td = make("td", className, text); tr.append(td); return td; };
  const jobRow = (row) => {
    const tr = make("tr"), state = states[row[STATE]];
    cell(tr, "mono", row[NAME]);
    const td = cell(tr, "");
    td.append(make("span", `state s-${state}`, state));
    if (row[LATE]) td.append(" ", make("span", "state s-late", "late"));
    cell(tr, "", words[row[STREAM]]);
    cell(tr, "", words[row[TEAM]]);
    const gpus = cell(tr, "n", row[GPUS]);
    if (row[PODS] > 1) gpus.append(make("small", "", ` in ${row[PODS]}`));
    const time = make("time", "", utc(start + row[ARRIVED] * 1000, false));
    time.dateTime = new Date(start + row[ARRIVED] * 1000).toISOString();
    cell(tr, "").append(time);
    cell(tr, "n", span(wait(row)));
    cell(tr, "n", ran(row) < 0 ? "–" : span(ran(row)));
    cell(tr, "n", row[RESTARTS] || "");
    cell(tr, "mono", words[row[SOURCES]]);
    cell(tr, "why", words[row[REASON]]);
    return tr;
  };
  const showJobs = () => {
    const state = jobForm.state.value, stream = jobForm.stream.value, text = jobForm.text.value.trim().toLowerCase();
    let found = rows.filter((row) => (!state || (state === "late" ? row[LATE] : states[row[STATE]] === state))
      && (!stream || words[row[STREAM]] === stream)
      && (!text || [row[NAME], words[row[TEAM]], words[row[SOURCES]], words[row[REASON]]].some((word) => word.toLowerCase().includes(text))));
    if (sort) found = found.slice().sort(compare);
    table.tBodies[0].replaceChildren(...found.slice(0, shown).map(jobRow));
    by("jobs-count").textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` + (found.length > shown ? `, the first ${shown} listed` : "");
  };
  jobForm.addEventListener("input", showJobs);
  jobForm.addEventListener("submit", (event) => event.preventDefault());
  for (const th of table.querySelectorAll("th[data-sort]")) {
    const button = make("button", "", th.textContent);
    button.type = "button";
    th.replaceChildren(button);
    button.addEventListener("click", () => {
      upwards = sort === th.dataset.sort ? !upwards : true;
      sort = th.dataset.sort;
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", upwards ? "ascending" : "descending");
      showJobs();
    });
  }

  // --- journal ----------------------------------------------------------------------------------
  const journalForm = document.querySelector("[data-filter=journal]"), journalRows = [...by("journal-table").tBodies[0].rows];
  const showJournal = () => {
    const kind = journalForm.kind.value, text = journalForm.text.value.trim().toLowerCase();
    let count = 0;
    for (const row of journalRows) {
      const fits = (!kind || row.cells[1].textContent === kind) && (!text || row.textContent.toLowerCase().includes(text));
      row.hidden = !fits;
      count += fits;
    }
    by("journal-count").textContent = `${count.toLocaleString("en")} of ${journalRows.length.toLocaleString("en")}`;
  };
  journalForm.addEventListener("input", showJournal);
  journalForm.addEventListener("submit", (event) => event.preventDefault());

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => {
      const target = by(button.dataset.copy), range = document.createRange();
      range.selectNodeContents(target);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      if (navigator.clipboard) navigator.clipboard.writeText(target.textContent).then(() => { button.textContent = "copied"; }, () => {});
    });
  }
})();
