// What a run writes, as a terminal shows it: overwritten lines and colours, as text only.

/** Characters of output that are shown at most. */
const SHOWN = 256 * 1024;
const MAX_LINE = 65536;
/** Lines that later output can overwrite. */
const MAX_ROWS = 64;

// Codes for terminals, ends and beginnings of lines, and the text between them; and an incomplete code at the end of a piece.
const TOKENS = /\x1b\[([0-9;:]*)([@-~])|\x1b\[[0-9;:?<=>]*[ -\/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ #%(-\/][^\n]|\x1b[0-OQ-WYZ\\`-~]|[\r\n\x08\x1b]|[^\r\n\x08\x1b]+/g;
const BEGUN_CODE = /\x1b(?:\[[0-9;:?<=>]*[ -\/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ #%(-\/])?$/;

const PLAIN = { kind: "", fore: "", back: "", key: "||" };
const noPen = () => ({ fore: null, back: null, marks: new Set() });

/** The last lines of a stream, each with its node once it is shown; the cursor is in one of them. */
const emptyScreen = () => ({ rows: [emptyRow()], row: 0, returned: false, code: "", pen: noPen(), style: PLAIN });
const emptyRow = () => ({ parts: [], node: null, changed: true, ended: false });

// Colours: the sixteen of a terminal are those of the page; the others are themselves.

const MARKS = { 1: "tb", 2: "td", 3: "ti", 4: "tu", 7: "v", 9: "ts" };
const ENDED_MARKS = { 22: ["tb", "td"], 23: ["ti"], 24: ["tu"], 27: ["v"], 29: ["ts"] };

function colour(number) {
  if (number < 16) return number;
  if (number > 231) return `rgb(${Array(3).fill(8 + 10 * (number - 232)).join(" ")})`;
  const level = (part) => (part === 0 ? 0 : 55 + 40 * part);
  const cube = number - 16;
  return `rgb(${[Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(level).join(" ")})`;
}

/** Reads `38;5;N` and `38;2;R;G;B`; gives the colour and how many numbers it took. */
function extended(numbers, index) {
  const byte = (number) => Math.min(255, number || 0);
  if (numbers[index + 1] === 5) return [colour(byte(numbers[index + 2])), 2];
  if (numbers[index + 1] === 2) return [`rgb(${[2, 3, 4].map((more) => byte(numbers[index + more])).join(" ")})`, 4];
  return [null, 1];
}

function usePen(screen, codes) {
  const { pen } = screen;
  const numbers = codes.split(/[;:]/, 32).map((code) => Number.parseInt(code, 10) || 0);
  for (let index = 0; index < numbers.length; index += 1) {
    const number = numbers[index];
    if (number === 0) Object.assign(pen, noPen());
    else if (MARKS[number]) pen.marks.add(MARKS[number]);
    else if (ENDED_MARKS[number]) for (const mark of ENDED_MARKS[number]) pen.marks.delete(mark);
    else if (number >= 30 && number <= 37) pen.fore = number - 30;
    else if (number >= 40 && number <= 47) pen.back = number - 40;
    else if (number >= 90 && number <= 97) pen.fore = number - 82;
    else if (number >= 100 && number <= 107) pen.back = number - 92;
    else if (number === 39) pen.fore = null;
    else if (number === 49) pen.back = null;
    else if (number === 38 || number === 48) {
      const [value, taken] = extended(numbers, index);
      pen[number === 38 ? "fore" : "back"] = value;
      index += taken;
    }
  }
  screen.style = styleOf(pen);
}

function styleOf({ fore, back, marks }) {
  if (marks.has("v")) [fore, back] = [back ?? "ground", fore ?? "ink"];
  const kinds = [...marks].filter((mark) => mark !== "v");
  const named = (value) => typeof value === "number" || value === "ground" || value === "ink";
  if (fore !== null && named(fore)) kinds.push(`f${fore}`);
  if (back !== null && named(back)) kinds.push(`g${back}`);
  const kind = kinds.join(" ");
  const own = (value) => (value !== null && !named(value) ? value : "");
  return { kind, fore: own(fore), back: own(back), key: `${kind}|${own(fore)}|${own(back)}` };
}

/** Adds text to parts of one style each. */
function addPart(parts, text, style) {
  const last = parts.at(-1);
  if (last?.style.key === style.key) last.text += text;
  else parts.push({ text, style });
}

const lengthOf = (parts) => parts.reduce((sum, part) => sum + part.text.length, 0);

function fillParts(node, parts) {
  node.replaceChildren(...parts.map(({ text, style }) => {
    if (style === PLAIN || style.key === PLAIN.key) return document.createTextNode(text);
    const span = made("span", style.kind, text);
    if (style.fore) span.style.color = style.fore;
    if (style.back) span.style.backgroundColor = style.back;
    return span;
  }));
}

// The cursor.

/** Moves the cursor and erases, as far as that concerns whole lines. */
function control(view, screen, code, number) {
  const count = Math.max(1, number);
  if (code === "A" || code === "F") screen.row = Math.max(0, screen.row - count);
  if (code === "B" || code === "E") screen.row = Math.min(screen.rows.length - 1, screen.row + count);
  const erases = (code === "K" && (number === 2 || screen.returned)) || (code === "J" && number === 0 && screen.returned);
  if (erases) Object.assign(screen.rows[screen.row], { parts: [], changed: true });
  if (code === "J" && number === 0) {
    for (const { node } of screen.rows.splice(screen.row + 1)) {
      if (!node?.isConnected) continue;
      view.length -= node.textContent.length;
      node.remove();
    }
  }
  if (code === "E" || code === "F" || (code === "G" && number <= 1)) screen.returned = true;
}

function backspace(row) {
  const last = row.parts.at(-1);
  if (!last) return;
  last.text = last.text.replace(/.$/su, "");
  if (last.text === "") row.parts.pop();
  row.changed = true;
}

/** Ends the line; returns a row that nothing overwrites any more. */
function newline(screen) {
  screen.row += 1;
  screen.returned = screen.row < screen.rows.length;
  if (!screen.returned) screen.rows.push(emptyRow());
  if (screen.rows.length <= MAX_ROWS) return null;
  screen.row -= 1;
  return screen.rows.shift();
}

/** Reads one token; adds a line that nothing overwrites any more, and that was never shown, to `whole`. */
function readToken(view, screen, [token, numbers, code], whole) {
  const row = screen.rows[screen.row];
  if (code === "m") usePen(screen, numbers);
  else if (code) control(view, screen, code, Number.parseInt(numbers, 10) || 0);
  else if (token === "\r") screen.returned = true;
  else if (token === "\x08") backspace(row);
  else if (token === "\n") {
    const first = newline(screen);
    if (first?.node) showRow(view, first, true);
    else if (first) for (const part of [...first.parts, { text: "\n", style: PLAIN }]) addPart(whole, part.text, part.style);
  } else if (!token.startsWith("\x1b")) {
    const text = token.replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");
    if (!text) return;
    if (screen.returned) row.parts = [];
    addPart(row.parts, text, screen.style);
    row.changed = true;
    screen.returned = false;
  }
}

/** Shows a row as it is now, in the node that it has. */
function showRow(view, row, ended) {
  if (!row.node.isConnected || (!row.changed && row.ended === ended)) return;
  view.length -= row.node.textContent.length;
  fillParts(row.node, ended ? [...row.parts, { text: "\n", style: PLAIN }] : row.parts);
  row.node.classList.toggle("whole", ended);
  view.length += row.node.textContent.length;
  Object.assign(row, { changed: false, ended });
}

/** Adds output: lines that it continues, or overwrites, are shown as they are now. */
function write(view, kind, text) {
  const screen = view.screens[kind] ??= emptyScreen();
  const piece = screen.code + text;
  screen.code = BEGUN_CODE.exec(piece.slice(-MAX_LINE))?.[0] ?? "";
  const whole = [];
  for (const token of piece.slice(0, piece.length - screen.code.length).matchAll(TOKENS)) readToken(view, screen, token, whole);
  if (whole.length > 0) append(view, kind, whole);
  const last = screen.rows.length - 1;
  screen.rows.forEach((row, index) => {
    const ended = index < last;
    // Of what has left the page only the line that continues comes back.
    if (row.node?.isConnected) return showRow(view, row, ended);
    if ((row.parts.length === 0 && !ended) || (row.node && index !== last)) return;
    row.node = append(view, kind, ended ? [...row.parts, { text: "\n", style: PLAIN }] : row.parts);
    Object.assign(row, { changed: false, ended });
  });
  if (lengthOf(screen.rows[last].parts) > MAX_LINE) view.screens[kind] = { ...emptyScreen(), pen: screen.pen, style: screen.style };
}

function append(view, kind, parts) {
  const output = at("output");
  const added = made("span", kind);
  fillParts(added, parts);
  // Whole lines are blocks: the browser does not lay them out again for what comes after them.
  added.classList.toggle("whole", parts.at(-1).text.endsWith("\n"));
  output.append(added);
  view.length += added.textContent.length;
  while (view.length > SHOWN && output.childElementCount > 1) {
    view.length -= output.firstElementChild.textContent.length;
    output.firstElementChild.remove();
  }
  stayDown();
  return added;
}

// The view of the output stays at its end, unless a reader has scrolled up. Once a frame, for each look lays it out.
let isDown = true;
let isPlanned = false;

function stayDown() {
  if (!isDown || isPlanned) return;
  isPlanned = true;
  requestAnimationFrame(() => {
    isPlanned = false;
    if (isDown) at("output").scrollTop = at("output").scrollHeight;
  });
}

at("output").addEventListener("scroll", ({ target }) => {
  isDown = target.scrollHeight - target.scrollTop - target.clientHeight < 40;
}, { passive: true });

function mark(view, text) {
  if (text) append(view, "mark", [{ text: `[${text}]\n`, style: PLAIN }]);
}

/** Text with a terminal's colours, on its own: for errors of cells. */
function coloured(text) {
  const screen = emptyScreen();
  const parts = [];
  for (const [token, numbers, code] of text.slice(0, MAX_LINE).matchAll(TOKENS)) {
    if (code === "m") usePen(screen, numbers);
    else if (!token.startsWith("\x1b")) addPart(parts, token.replace(/[\x00-\x09\x0b-\x1f\x7f]/g, ""), screen.style);
  }
  const node = made("pre", "");
  fillParts(node, parts);
  return node;
}

/** Output that is not UTF-8 is base64; a character may be cut between two pieces. */
function decoded(view, stream, { data, encoding }) {
  if (encoding !== "base64") return data;
  const decoder = view.decoders[stream] ??= new TextDecoder();
  return decoder.decode(Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0)), { stream: true });
}
