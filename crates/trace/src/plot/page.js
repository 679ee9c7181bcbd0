"use strict";
// Draws the calls of one panel on a canvas. The wheel zooms at the pointer (over an axis: that axis alone), dragging moves,
// dragging with Shift zooms to the box, a double click shows everything. The pointer over a call says what it is.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const canvas = byId("plot"), tip = byId("tip"), context = canvas.getContext("2d");
  const LEFT = 84, RIGHT = 16, TOP = 8, BOTTOM = 44, NEAR = 8;

  // Columns of one panel: rank, left, right, low, high.
  function decode(panel) {
    const text = atob(panel.marks);
    let at = 0;
    const difference = () => {
      let n = 0, scale = 1, byte;
      do {
        byte = text.charCodeAt(at++);
        n += (byte & 127) * scale;
        scale *= 128;
      } while (byte & 128);
      return n % 2 ? -(n + 1) / 2 : n / 2;
    };
    const before = [0, 0, 0, 0, 0];
    const columns = before.map(() => []);
    while (at < text.length) {
      for (let i = 0; i < 5; i++) before[i] += difference();
      const [rank, left, wide, low, tall] = before;
      [rank, left, left + wide, low, low + tall].forEach((value, i) => columns[i].push(value));
    }
    return columns.map((column, i) => (i ? Float64Array : Uint32Array).from(column));
  }

  let panel, columns, whole, view, shown = () => true;

  function bounds() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    const [, left, right, low, high] = columns;
    for (let i = 0; i < left.length; i++) {
      if (left[i] < x0) x0 = left[i];
      if (right[i] > x1) x1 = right[i];
      if (low[i] < y0) y0 = low[i];
      if (high[i] > y1) y1 = high[i];
    }
    if (x0 > x1) [x0, x1, y0, y1] = [0, 1, 0, 1];
    const [dx, dy] = [Math.max(x1 - x0, 1) * 0.02, Math.max(y1 - y0, 1) * 0.02];
    return { x0: x0 - dx, x1: x1 + dx, y0: y0 - dy, y1: y1 + dy };
  }

  const TIMES = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
  const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].map((unit, i) => [1024 ** i, unit]);
  const across = data.time ? TIMES : [[1, ""]];
  function inUnit(value, units) {
    const unit = units.findLast(([scale]) => Math.abs(value) >= scale) ?? units[0];
    const shown = value / unit[0];
    return `${Number.isInteger(shown) ? shown : shown.toFixed(3)} ${unit[1]}`.trim();
  }
  function ticks(low, high, units, binary, most) {
    const [scale, unit] = units.findLast(([s]) => Math.max(Math.abs(low), Math.abs(high)) / s >= 2) ?? units[0];
    const rough = (high - low) / most / scale;
    let step;
    if (binary) step = 2 ** Math.ceil(Math.log2(rough));
    else {
      const power = 10 ** Math.floor(Math.log10(rough));
      step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= rough) ?? power * 10;
    }
    const digits = Number.isInteger(step) ? 0 : Math.min(9, Math.ceil(-Math.log10(step)) + (binary ? 2 : 0));
    const list = [];
    for (let i = Math.ceil(low / scale / step); i * step * scale <= high && list.length < 200; i++)
      list.push([i * step * scale, (i * step).toFixed(digits)]);
    return { list, unit };
  }

  let width, height;
  const toX = (x) => LEFT + (x - view.x0) / (view.x1 - view.x0) * (width - LEFT - RIGHT);
  const toY = (y) => height - BOTTOM - (y - view.y0) / (view.y1 - view.y0) * (height - TOP - BOTTOM);
  const fromX = (px) => view.x0 + (px - LEFT) / (width - LEFT - RIGHT) * (view.x1 - view.x0);
  const fromY = (py) => view.y0 + (height - BOTTOM - py) / (height - TOP - BOTTOM) * (view.y1 - view.y0);

  function draw() {
    const ratio = window.devicePixelRatio || 1, box = byId("place").getBoundingClientRect();
    [width, height] = [box.width, box.height];
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = "#fff";
    context.fillRect(0, 0, width, height);
    context.font = '11px "DejaVu Sans", Verdana, Arial, sans-serif';
    context.strokeStyle = "#e6e6e6";
    context.fillStyle = "#555";
    const x = ticks(view.x0, view.x1, across, false, Math.max(2, width / 130));
    const y = ticks(view.y0, view.y1, SIZES, true, Math.max(2, height / 70));
    context.textAlign = "center";
    for (const [value, text] of x.list) {
      const at = Math.round(toX(value)) + 0.5;
      context.beginPath(); context.moveTo(at, TOP); context.lineTo(at, height - BOTTOM); context.stroke();
      context.fillText(text, at, height - BOTTOM + 15);
    }
    context.textAlign = "right";
    for (const [value, text] of y.list) {
      const at = Math.round(toY(value)) + 0.5;
      context.beginPath(); context.moveTo(LEFT, at); context.lineTo(width - RIGHT, at); context.stroke();
      context.fillText(text, LEFT - 6, at + 4);
    }
    context.fillStyle = "#000";
    context.textAlign = "center";
    context.font = '12px "DejaVu Sans", Verdana, Arial, sans-serif';
    context.fillText(data.time ? `time (${x.unit})` : "number of the rank's call", (LEFT + width) / 2, height - 8);
    context.save();
    context.translate(16, (height - BOTTOM) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(`offset (${y.unit})`, 0, 0);
    context.restore();

    context.save();
    context.beginPath();
    context.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM);
    context.clip();
    const [rank, left, right, low, high] = columns;
    let drawn = 0, last = -1;
    for (let i = 0; i < left.length; i++) {
      if (right[i] < view.x0 || left[i] > view.x1 || high[i] < view.y0 || low[i] > view.y1 || !shown(rank[i])) continue;
      if (rank[i] !== last) context.fillStyle = data.ranks[last = rank[i]].colour;
      const px = toX(left[i]), py = toY(high[i]);
      context.fillRect(px, py, Math.max(2, toX(right[i]) - px), Math.max(2, toY(low[i]) - py));
      drawn++;
    }
    context.restore();
    if (box && drag?.box) {
      context.strokeStyle = "#000";
      context.strokeRect(drag.x, drag.y, drag.nowX - drag.x, drag.nowY - drag.y);
    }
    Object.assign(canvas.dataset, { ...view, drawn });
    const all = `${panel.calls.toLocaleString("en")} calls, ${drawn.toLocaleString("en")} in view`;
    const omitted = data.omitted ? `; ${data.omitted.toLocaleString("en")} calls of the trace are left out` : "";
    byId("note").textContent = all + omitted;
  }

  // The call nearest to a place, if one is near.
  function under(px, py) {
    const [rank, left, right, low, high] = columns;
    let best = -1, nearest = NEAR;
    for (let i = 0; i < left.length; i++) {
      if (!shown(rank[i])) continue;
      const dx = Math.max(toX(left[i]) - px, 0, px - toX(right[i]));
      if (dx > nearest) continue;
      const dy = Math.max(toY(high[i]) - py, 0, py - toY(low[i]));
      const distance = Math.max(dx, dy);
      if (distance <= nearest) [best, nearest] = [i, distance];
    }
    return best;
  }

  function tell(px, py) {
    const i = px < LEFT || py > height - BOTTOM ? -1 : under(px, py);
    tip.hidden = i < 0;
    if (i < 0) return;
    const [rank, left, right, low, high] = columns.map((column) => column[i]);
    const bytes = (n) => (n < 1024 ? `${n} B` : `${n.toLocaleString("en")} B (${inUnit(n, SIZES)})`);
    tip.textContent = [
      data.ranks[rank].name,
      `${panel.kind === "reads" ? "read" : "write"} of ${bytes(high - low)}`,
      `at offset ${bytes(low)}`,
      data.time ? `from ${inUnit(left, across)}, took ${inUnit(right - left, across)}` : `call ${left}`,
    ].join("\n");
    tip.style.left = `${Math.min(px + 14, width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${Math.min(py + 14, height - tip.offsetHeight - 4)}px`;
  }

  function zoom(px, py, factor, horizontally = true, vertically = true) {
    const [x, y] = [fromX(px), fromY(py)];
    const next = { ...view };
    if (horizontally) [next.x0, next.x1] = [x - (x - view.x0) * factor, x + (view.x1 - x) * factor];
    if (vertically) [next.y0, next.y1] = [y - (y - view.y0) * factor, y + (view.y1 - y) * factor];
    const wide = whole.x1 - whole.x0, tall = whole.y1 - whole.y0;
    // Not closer than numbers can tell apart, not farther than a little more than everything.
    if (next.x1 - next.x0 < 1e-3 || next.y1 - next.y0 < 1e-1) return;
    if (next.x1 - next.x0 > 4 * wide || next.y1 - next.y0 > 4 * tall) return;
    view = next;
    draw();
  }

  const local = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [px, py] = local(event);
    const onX = py > height - BOTTOM, onY = px < LEFT;
    zoom(px, py, Math.exp(Math.sign(event.deltaY) * 0.25), !onY, !onX);
    tell(px, py);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = local(event);
    drag = { x, y, nowX: x, nowY: y, box: event.shiftKey, view: { ...view } };
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = local(event);
    if (!drag) return tell(px, py);
    [drag.nowX, drag.nowY] = [px, py];
    if (!drag.box) {
      const dx = (drag.x - px) / (width - LEFT - RIGHT) * (view.x1 - view.x0);
      const dy = (py - drag.y) / (height - TOP - BOTTOM) * (view.y1 - view.y0);
      const from = drag.view;
      view = { x0: from.x0 + dx, x1: from.x1 + dx, y0: from.y0 + dy, y1: from.y1 + dy };
    }
    draw();
  });
  const release = () => {
    const done = drag;
    drag = null;
    if (done?.box && Math.abs(done.nowX - done.x) > 4 && Math.abs(done.nowY - done.y) > 4) {
      const xs = [done.x, done.nowX].map(fromX).sort((a, b) => a - b);
      const ys = [done.y, done.nowY].map(fromY).sort((a, b) => a - b);
      view = { x0: xs[0], x1: xs[1], y0: ys[0], y1: ys[1] };
    }
    draw();
  };
  window.addEventListener("pointerup", () => drag && release());
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  const everything = () => { view = { ...whole }; draw(); };
  canvas.addEventListener("dblclick", everything);
  byId("all").addEventListener("click", everything);
  const middle = () => [(LEFT + width - RIGHT) / 2, (TOP + height - BOTTOM) / 2];
  byId("in").addEventListener("click", () => zoom(...middle(), 0.5));
  byId("out").addEventListener("click", () => zoom(...middle(), 2));
  window.addEventListener("resize", draw);

  // "0-3,7": which ranks are drawn.
  byId("ranks").addEventListener("input", (event) => {
    const parts = event.target.value.split(",").map((part) => part.trim().match(/^(\d+)(?:-(\d+))?$/)).filter(Boolean);
    const wanted = (rank) => parts.some(([, from, to]) => rank >= +from && rank <= +(to ?? from));
    const keep = data.ranks.map(({ rank }) => wanted(rank));
    shown = parts.length ? (index) => keep[index] : () => true;
    draw();
  });

  function show(index) {
    panel = data.panels[index];
    columns = decode(panel);
    whole = bounds();
    everything();
  }
  const select = byId("panel");
  data.panels.forEach((p, i) => select.add(new Option(`${p.name}, ${p.kind}: ${p.calls.toLocaleString("en")} calls`, i)));
  select.addEventListener("change", () => show(+select.value));
  const legend = byId("legend");
  // Of many ranks some, evenly: enough to read the colours by.
  const every = Math.ceil(data.ranks.length / 16);
  for (const { name, colour } of data.ranks.filter((_, i) => i % every === 0)) {
    const entry = document.createElement("span"), patch = document.createElement("i");
    patch.style.background = colour;
    entry.append(patch, name);
    legend.append(entry);
  }
  if (every > 1) legend.append(`${data.ranks.length} ranks`);
  if (data.panels.length) show(0);
  else byId("note").textContent = "no reads or writes with a known offset are selected";
})();
