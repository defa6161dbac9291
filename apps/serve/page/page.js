// web/shared/dom.ts
function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === void 0 || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "open")
      element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.filter(
      (child) => child !== null && child !== void 0 && child !== false
    )
  );
  return element;
}
function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}
var ICONS = {
  menu: "M4 7h16M4 12h16M4 17h10",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M8 8h8v8H8z",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  retry: "M4 12a8 8 0 1 0 2.5-5.8M4 4v4h4",
  edit: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12M10 11v5M14 11v5",
  download: "M12 4v11M7 10l5 5 5-5M5 20h14",
  settings: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  file: "M7 4h7l4 4v12H7zM14 4v4h4",
  share: "M12 15V4M8 8l4-4 4 4M6 12v8h12v-8",
  chip: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  chevron: "M7 10l5 5 5-5",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  undo: "M9 7L4 12l5 5M4 12h10a5 5 0 0 1 0 10h-2",
  spark: "M12 4l1.8 5.2L19 11l-5.2 1.8L12 18l-1.8-5.2L5 11l5.2-1.8z",
  down: "M12 5v14M6 13l6 6 6-6",
  wave: "M3 12h4l2-6 4 12 2-6h6",
  microphone: "M12 4a3 3 0 0 1 3 3v4a3 3 0 0 1-6 0V7a3 3 0 0 1 3-3zM6 11a6 6 0 0 0 12 0M12 17v3M9 20h6",
  clip: "M19 11l-7.5 7.5a4.5 4.5 0 0 1-6.4-6.4L13 4.2a3 3 0 0 1 4.3 4.2l-7.6 7.7a1.5 1.5 0 0 1-2.2-2.1L14 7.5"
};
function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg2 = document.createElementNS(space, "svg");
  svg2.setAttribute("viewBox", "0 0 24 24");
  svg2.setAttribute("class", "icon");
  svg2.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", ICONS[name]);
  svg2.append(path);
  return svg2;
}
function iconButton(name, label, onclick, className = "") {
  return h(
    "button",
    { type: "button", class: `icon-button ${className}`, "aria-label": label, title: label, onclick },
    icon(name)
  );
}
async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyBySelection(text)) return false;
  }
  const old = button?.querySelector("svg");
  if (button && old) {
    const done = icon("check");
    old.replaceWith(done);
    setTimeout(() => done.replaceWith(old), 1500);
  }
  return true;
}
function copyBySelection(text) {
  const area = h("textarea", { class: "visually-hidden", value: text });
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return done;
}
function saveFile(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1e4);
}
var toasts = null;
function toast(text, action) {
  if (!toasts)
    document.body.append(toasts = h("div", { class: "toasts", role: "status", "aria-live": "polite" }));
  const remove = () => element.remove();
  const element = h(
    "div",
    { class: "toast" },
    h("span", { class: "grow" }, text),
    action && h(
      "button",
      {
        type: "button",
        onclick: () => {
          remove();
          action.run();
        }
      },
      action.label
    ),
    action && h("button", { type: "button", "aria-label": "Close", onclick: remove }, "×")
  );
  toasts.append(element);
  const dialog = document.querySelector("dialog[open]");
  (dialog ?? document.body).append(toasts);
  if (!action) setTimeout(remove, 6e3);
}

// web/chat/dialogs.ts
function openDialog(title, body, footer = []) {
  const dialog = h(
    "dialog",
    { "aria-label": title },
    h(
      "header",
      null,
      h("h2", { tabindex: -1, autofocus: true }, title),
      iconButton("close", "Close", () => dialog.close())
    ),
    h("div", { class: "body" }, ...body),
    footer.length > 0 && h("footer", null, ...footer)
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    const field = document.activeElement;
    if (!(field instanceof HTMLTextAreaElement || field instanceof HTMLInputElement)) return;
    field.blur();
    field.focus({ preventScroll: true });
  });
  let pressed = null;
  dialog.addEventListener("pointerdown", (event) => pressed = event.target);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && pressed === dialog) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
function confirmDialog(title, text, action) {
  return new Promise((resolve) => {
    let wanted = false;
    const close = () => dialog.close();
    const go = h(
      "button",
      {
        type: "button",
        class: "button danger",
        onclick: () => {
          wanted = true;
          close();
        }
      },
      action
    );
    const dialog = openDialog(
      title,
      [h("p", null, text)],
      [h("button", { type: "button", class: "button", onclick: close }, "Cancel"), go]
    );
    dialog.addEventListener("close", () => resolve(wanted));
    go.focus();
  });
}

// web/chat/drops.ts
function listenForDrops(sign, wanted, onFiles) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files") ?? false;
  let depth = 0;
  const show = (entered) => {
    depth = Math.max(0, entered);
    sign.hidden = depth === 0;
  };
  addEventListener("dragenter", (event) => hasFiles(event) && show(depth + 1));
  addEventListener("dragleave", (event) => hasFiles(event) && show(depth - 1));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    show(0);
    filesOf(event.dataTransfer, wanted).then(
      (files) => files.length ? onFiles(files) : toast(wanted.none),
      (error) => toast(`What was dropped cannot be read: ${error.message}`)
    );
  });
}
async function filesOf(data, wanted) {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.());
  const folder = entries.find((entry) => entry?.isDirectory);
  if (!folder) return [...data.files].filter((file) => wanted.single(file));
  const reader = folder.createReader();
  const files = [];
  for (; ; ) {
    const batch = await new Promise(
      (resolve, reject) => reader.readEntries(resolve, reject)
    );
    if (batch.length === 0) return files;
    for (const entry of batch.filter((one) => one.isFile)) {
      files.push(
        await new Promise((resolve, reject) => entry.file(resolve, reject))
      );
    }
  }
}

// packages/tern/src/bytes.ts
var UNITS = ["B", "KB", "MB", "GB", "TB"];
function formatBytes(bytes) {
  if (!Number.isFinite(bytes) || bytes < 0) return "?";
  let unit = 0;
  while (bytes >= 999.5 && unit < UNITS.length - 1) {
    bytes /= 1e3;
    unit++;
  }
  return `${unit === 0 || bytes >= 99.95 ? Math.round(bytes) : bytes.toFixed(1)} ${UNITS[unit]}`;
}

// web/shared/format.ts
function formatDuration(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return "?";
  if (seconds < 10) return `${seconds < 1 ? seconds.toFixed(2) : seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
  return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
}
function formatRate(perSecond) {
  if (!Number.isFinite(perSecond) || perSecond < 0) return "?";
  return perSecond >= 100 ? String(Math.round(perSecond)) : perSecond >= 10 ? perSecond.toFixed(1) : perSecond.toFixed(2);
}
function formatDay(time, now = Date.now()) {
  const day = (t) => Math.floor((t - new Date(t).getTimezoneOffset() * 6e4) / 864e5);
  const ago = day(now) - day(time);
  if (ago <= 0) return "Today";
  if (ago === 1) return "Yesterday";
  if (ago < 7) return "Previous 7 days";
  const date = new Date(time);
  return date.toLocaleDateString(void 0, {
    month: "long",
    ...date.getFullYear() !== new Date(now).getFullYear() && { year: "numeric" }
  });
}

// web/chat/image_files.ts
var KINDS = ["image/png", "image/jpeg", "image/webp", "image/gif"];
var MOST_BYTES = 3 << 20;
var MOST_EDGE = 2048;
async function readImage(file) {
  if (KINDS.includes(file.type) && file.size <= MOST_BYTES) return readUrl(file);
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error("this browser cannot read the image");
  }
  const scale = Math.min(1, MOST_EDGE / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.toDataURL("image/jpeg", 0.92);
}
function readUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });
}

// web/chat/attachments.ts
var MOST_BYTES2 = 2 << 20;
var Attachments = class {
  constructor(list, changed) {
    this.list = list;
    this.changed = changed;
    list.after(this.input);
    list.hidden = true;
  }
  list;
  changed;
  /** Whether the model sees. */
  sees = false;
  files = [];
  input = h("input", {
    type: "file",
    multiple: true,
    class: "visually-hidden",
    tabindex: -1,
    "aria-hidden": "true",
    onchange: () => {
      void this.add([...this.input.files]);
      this.input.value = "";
    }
  });
  choose() {
    this.input.click();
  }
  async add(files) {
    for (const file of files) {
      try {
        const isImage = file.type.startsWith("image/");
        if (isImage && !this.sees) throw new Error("this model reads texts alone");
        this.files.push(
          isImage ? { name: file.name, text: "", image: await readImage(file) } : { name: file.name, text: await readText(file) }
        );
      } catch (error) {
        toast(`${file.name}: ${error.message}`);
      }
    }
    this.draw();
  }
  get hasImages() {
    return this.files.some(({ image }) => image);
  }
  take() {
    const { files } = this;
    this.files = [];
    this.draw();
    return files;
  }
  draw() {
    this.list.hidden = this.files.length === 0;
    this.list.replaceChildren(
      ...this.files.map(
        (file) => h(
          "li",
          { class: "chip" },
          ...file.image ? [h("img", { class: "image", src: file.image, alt: file.name })] : [icon("file"), h("span", null, `${file.name} · ${formatBytes(file.text.length)}`)],
          h(
            "button",
            {
              type: "button",
              "aria-label": `Remove ${file.name}`,
              onclick: () => {
                this.files = this.files.filter((one) => one !== file);
                this.draw();
              }
            },
            "×"
          )
        )
      )
    );
    this.changed();
  }
};
async function readText(file) {
  if (file.size > MOST_BYTES2) throw new Error(`more than ${formatBytes(MOST_BYTES2)}`);
  const bytes = await file.arrayBuffer();
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error("this is not text in UTF-8");
  }
  if (text.includes("\0")) throw new Error("this is not text");
  return text.replace(/\r\n?/g, "\n");
}

// web/chat/answer.ts
async function write(by, ask, signal, onText) {
  const from = performance.now();
  let first = 0, last = 0, pieces = 0, waiting = "", frame = 0;
  const flush = () => {
    frame = 0;
    if (waiting) onText(waiting);
    waiting = "";
  };
  const onPiece = (piece) => {
    last = performance.now();
    first ||= last;
    pieces++;
    waiting += piece;
    if (document.hidden) flush();
    else frame ||= requestAnimationFrame(flush);
  };
  const measured = () => pieces < 2 ? void 0 : {
    promptTokens: 0,
    cachedTokens: 0,
    tokens: pieces,
    perSecond: (pieces - 1) / ((last - first) / 1e3),
    firstSeconds: (first - from) / 1e3,
    device: by.device,
    model: by.name
  };
  try {
    const output2 = await ask({ signal, onText: onPiece });
    const { usage, timings, reason, dropped } = output2;
    return {
      end: reason === "length" || reason === "context" ? "length" : void 0,
      stats: {
        promptTokens: usage.prompt_tokens,
        cachedTokens: usage.prompt_tokens_details.cached_tokens,
        tokens: usage.completion_tokens,
        perSecond: timings.predicted_per_second,
        firstSeconds: ((first || performance.now()) - from) / 1e3,
        device: by.device,
        model: by.name,
        ...dropped && { dropped }
      }
    };
  } catch (error) {
    const { code, message } = error;
    const stats = measured();
    return code === "aborted" ? { end: "stopped", ...stats && { stats } } : { end: "failed", error: message, ...stats && { stats } };
  } finally {
    if (frame) cancelAnimationFrame(frame);
    flush();
  }
}

// web/chat/drafts.ts
var KEY = "tern-chat-draft:";
function readDraft(id) {
  try {
    return localStorage.getItem(KEY + id) ?? "";
  } catch {
    return "";
  }
}
function writeDraft(id, text) {
  try {
    if (text) localStorage.setItem(KEY + id, text);
    else localStorage.removeItem(KEY + id);
  } catch {
  }
}

// web/chat/history.ts
var summaryOf = (talk) => ({
  id: talk.id,
  title: titleOf(talk),
  updated: talk.updated
});
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
function newConversation(kind, now = Date.now()) {
  return {
    id: newId(),
    kind,
    title: "",
    named: false,
    created: now,
    updated: now,
    model: "",
    messages: [],
    text: "",
    pieces: [],
    revision: 0,
    writing: false
  };
}
var isEmpty = (talk) => talk.messages.length === 0 && talk.text.trim() === "";
function holds(one, other) {
  if (one.kind !== other.kind || !one.text.startsWith(other.text)) return false;
  return other.messages.every((message, i) => {
    const own = one.messages[i];
    if (own?.role !== message.role || JSON.stringify(own.files) !== JSON.stringify(message.files)) return false;
    const mayGrow = message.role === "assistant" && i === other.messages.length - 1;
    return mayGrow ? own.content.startsWith(message.content) : own.content === message.content;
  });
}
function titleOf(talk) {
  if (talk.named && talk.title) return talk.title;
  const text = talk.kind === "text" ? talk.text : talk.messages.find((message) => message.role === "user")?.content ?? "";
  const words = text.replace(/[#*_`>\[\]]+/g, " ").replace(/\s+/g, " ").trim();
  if (!words) return talk.kind === "text" ? "New text" : "New chat";
  const letters = [...words];
  if (letters.length <= 48) return words;
  const front = letters.slice(0, 48).join("");
  const space = front.lastIndexOf(" ");
  return (space > 24 ? front.slice(0, space) : front) + "…";
}
function splitThought(content) {
  const match = /^\s*<think>/.exec(content);
  if (!match) return { thought: "", answer: content, open: false };
  const end = content.indexOf("</think>", match[0].length);
  if (end < 0) return { thought: content.slice(match[0].length).trim(), answer: "", open: true };
  return {
    thought: content.slice(match[0].length, end).trim(),
    answer: content.slice(end + "</think>".length).trimStart(),
    open: false
  };
}
function messagesForModel(talk, system) {
  const turns = talk.messages.map((message) => ({
    role: message.role,
    content: message.role === "assistant" ? splitThought(message.content).answer : partsOf(message)
  }));
  while (turns.at(-1)?.role === "assistant") turns.pop();
  const kept = turns.filter(
    ({ role, content }) => role === "user" || typeof content === "string" && content.trim() !== ""
  );
  return system.trim() ? [{ role: "system", content: system.trim() }, ...kept] : kept;
}
function lastUserIndex(talk) {
  return talk.messages.findLastIndex((message) => message.role === "user");
}
function editLast(talk, content) {
  const at = lastUserIndex(talk);
  if (at < 0) return false;
  talk.messages.splice(at, talk.messages.length - at, { ...talk.messages[at], role: "user", content });
  return true;
}
function dropAnswer(talk) {
  const at = lastUserIndex(talk);
  if (at < 0) return false;
  talk.messages.length = at + 1;
  return true;
}
function fenced(text) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((match) => match[0].length));
  return `${"`".repeat(longest + 1)}
${text}
${"`".repeat(longest + 1)}`;
}
function withFiles({ content, files = [] }) {
  const texts = files.filter(({ image }) => !image);
  return [...texts.map(({ name, text }) => `${name}:
${fenced(text)}`), content].join("\n\n");
}
function partsOf(message) {
  const images = (message.files ?? []).flatMap(
    ({ image }) => image ? [{ type: "image_url", image_url: { url: image } }] : []
  );
  const text = withFiles(message);
  return images.length ? [...images, { type: "text", text }] : text;
}
function told(message) {
  if (message.role === "assistant") return splitThought(message.content).answer;
  const names = (message.files ?? []).flatMap(({ name, image }) => image ? [`[${name}]`] : []);
  return [...names, withFiles(message)].join("\n\n");
}
function exportMarkdown(talk, system) {
  const head = [
    `# ${titleOf(talk)}`,
    `${new Date(talk.created).toISOString().slice(0, 16).replace("T", " ")} UTC${talk.model ? `, ${talk.model}` : ""}`
  ];
  if (talk.kind === "text") return [...head, talk.text].join("\n\n") + "\n";
  if (system.trim()) head.push(`## System

${fenced(system.trim())}`);
  const turns = talk.messages.map(
    (message) => `## ${message.role === "user" ? "You" : "Model"}

${told(message)}`
  );
  return [...head, ...turns].join("\n\n") + "\n";
}
function exportJson(talks) {
  const conversations = talks.map(({ revision: _, writing: __, ...talk }) => talk);
  return JSON.stringify({ format: "tern-chat", version: 1, conversations }, null, 2) + "\n";
}
function importJson(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON.");
  }
  const { format, conversations } = data ?? {};
  if (format !== "tern-chat" || !Array.isArray(conversations))
    throw new Error("The file was not exported by this page.");
  return conversations.map(readConversation);
}
function readFiles(value) {
  return (Array.isArray(value) ? value : []).flatMap((item) => {
    const { name, text, image } = item ?? {};
    if (typeof name !== "string" || typeof text !== "string") return [];
    if (image === void 0) return [{ name, text }];
    const isImage = typeof image === "string" && /^data:image\/(png|jpeg|webp|gif);base64,/.test(image);
    return isImage ? [{ name, text, image }] : [];
  });
}
function readStored(value) {
  const from = value;
  const read = { ...newConversation(from.kind === "text" ? "text" : "chat"), ...from };
  const isMessage = ({ role, content }) => (role === "user" || role === "assistant") && typeof content === "string";
  if (!Array.isArray(read.messages) || !read.messages.every(isMessage))
    read.messages = (Array.isArray(read.messages) ? read.messages : []).filter((message) => message && isMessage(message));
  if (!Number.isFinite(read.updated)) read.updated = 0;
  if (!Number.isInteger(read.revision)) read.revision = 0;
  return read;
}
function readConversation(value) {
  const from = typeof value === "object" && value !== null ? value : {};
  const text = (name) => typeof from[name] === "string" ? from[name] : "";
  const time = (name) => Number.isFinite(from[name]) && Math.abs(from[name]) < 8e15 ? from[name] : Date.now();
  const messages = (Array.isArray(from.messages) ? from.messages : []).flatMap(
    (item) => {
      const { role, content, files } = item ?? {};
      if (role !== "user" && role !== "assistant" || typeof content !== "string") return [];
      const kept = readFiles(files);
      return [{ role, content, ...kept.length && { files: kept } }];
    }
  );
  const kind = from.kind === "text" ? "text" : "chat";
  const body = text("text");
  const pieces = (Array.isArray(from.pieces) ? from.pieces : []).filter(
    (at) => Number.isInteger(at) && at >= 0 && at <= body.length
  );
  return {
    ...newConversation(kind),
    title: text("title").slice(0, 200),
    named: from.named === true,
    created: time("created"),
    updated: time("updated"),
    model: text("model"),
    messages,
    text: body,
    pieces
  };
}

// web/chat/store.ts
var Conflict = class extends Error {
  constructor(stored) {
    super("the conversation was changed in another tab");
    this.stored = stored;
  }
  stored;
};
var NAME = "tern-chat";
var newestFirst = (talks) => talks.sort((a, b) => b.updated - a.updated);
function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("IndexedDB failed"));
  });
}
function openDatabase() {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => request.result.createObjectStore("conversations", { keyPath: "id" });
  return promised(request);
}
async function openStore() {
  try {
    const database = await openDatabase();
    database.onversionchange = () => database.close();
    return new DatabaseStore(database);
  } catch (error) {
    console.warn("conversations are not kept:", error);
    return new MemoryStore();
  }
}
function nextOf(talk) {
  const base = talk.revision;
  talk.revision = base + 1;
  const undo = () => {
    if (talk.revision === base + 1) talk.revision = base;
  };
  return { copy: structuredClone(talk), base, undo };
}
var DatabaseStore = class {
  constructor(database) {
    this.database = database;
  }
  database;
  lasting = true;
  channel = typeof BroadcastChannel === "function" ? new BroadcastChannel(NAME) : null;
  table(mode) {
    return this.database.transaction("conversations", mode).objectStore("conversations");
  }
  async all() {
    return newestFirst((await promised(this.table("readonly").getAll())).map(readStored));
  }
  // One at a time: whole conversations may be large.
  list() {
    return new Promise((resolve, reject) => {
      const found = [];
      const request = this.table("readonly").openCursor();
      request.onerror = () => reject(request.error ?? new Error("IndexedDB failed"));
      request.onsuccess = () => {
        const cursor = request.result;
        if (!cursor) return resolve(newestFirst(found));
        found.push(summaryOf(readStored(cursor.value)));
        cursor.continue();
      };
    });
  }
  async get(id) {
    const stored = await promised(this.table("readonly").get(id));
    return stored === void 0 ? void 0 : readStored(stored);
  }
  // Compared and stored in one transaction, so that of two tabs one is refused.
  put(talk) {
    const { copy, base, undo } = nextOf(talk);
    return new Promise((resolve, reject) => {
      const table = this.table("readwrite");
      const { transaction } = table;
      let conflict = null;
      transaction.oncomplete = () => {
        this.channel?.postMessage({ id: copy.id, gone: false });
        resolve();
      };
      transaction.onabort = () => {
        undo();
        reject(conflict ?? transaction.error ?? new Error("IndexedDB failed"));
      };
      const request = table.get(copy.id);
      request.onsuccess = () => {
        const stored = request.result === void 0 ? void 0 : readStored(request.result);
        if ((stored?.revision ?? 0) === base && (stored || base === 0)) return void table.put(copy);
        conflict = new Conflict(stored);
        transaction.abort();
      };
    });
  }
  putLast(talk) {
    const { copy } = nextOf(talk);
    this.table("readwrite").put(copy);
    this.channel?.postMessage({ id: copy.id, gone: false });
  }
  async delete(id) {
    await promised(this.table("readwrite").delete(id));
    this.channel?.postMessage({ id, gone: true });
  }
  onChange(call) {
    this.channel?.addEventListener("message", ({ data }) => call(data));
  }
};
var MemoryStore = class {
  lasting = false;
  talks = /* @__PURE__ */ new Map();
  all = async () => newestFirst([...this.talks.values()].map((talk) => structuredClone(talk)));
  list = async () => (await this.all()).map(summaryOf);
  get = async (id) => structuredClone(this.talks.get(id));
  put = async (talk) => this.putLast(talk);
  putLast = (talk) => void this.talks.set(talk.id, nextOf(talk).copy);
  delete = async (id) => void this.talks.delete(id);
  onChange() {
  }
};

// web/chat/keeper.ts
var writingLock = (id) => `tern-chat-writing-${id}`;
var Keeper = class {
  constructor(store, events) {
    this.store = store;
    this.events = events;
    store.onChange(({ id, gone }) => void (gone ? this.otherDeleted(id) : this.otherKept(id)));
  }
  store;
  events;
  known = /* @__PURE__ */ new Map();
  unsaved = /* @__PURE__ */ new Set();
  deleted = /* @__PURE__ */ new Set();
  open = /* @__PURE__ */ new Set();
  // those that the page shows or writes
  queue = Promise.resolve();
  timer = 0;
  get list() {
    return [...this.known.values()].sort((a, b) => b.updated - a.updated);
  }
  async read() {
    for (const one of await this.store.list()) this.known.set(one.id, one);
    this.events.listed();
  }
  /** Those that the page shows or writes from now on. */
  hold(...talks) {
    this.open.clear();
    for (const talk of talks) this.open.add(talk);
  }
  /** In a moment: many small changes are one. */
  keepSoon(talk) {
    this.unsaved.add(talk);
    this.timer ||= window.setTimeout(() => this.keepAll(), 800);
  }
  keepAll() {
    clearTimeout(this.timer);
    this.timer = 0;
    for (const talk of this.unsaved) void this.keep(talk);
  }
  keep(talk) {
    if (isEmpty(talk) || this.deleted.has(talk.id)) {
      this.unsaved.delete(talk);
      return Promise.resolve();
    }
    this.unsaved.add(talk);
    return this.queue = this.queue.then(() => this.keepNow(talk));
  }
  async keepNow(talk) {
    if (this.deleted.has(talk.id)) return;
    talk.title = titleOf(talk);
    this.unsaved.delete(talk);
    try {
      await this.store.put(talk);
      this.note(talk);
    } catch (error) {
      this.unsaved.add(talk);
      if (error instanceof Conflict) return this.settle(talk, error.stored);
      this.events.tell(`The conversation could not be kept: ${error.message}`);
    }
  }
  note(talk) {
    this.known.set(talk.id, summaryOf(talk));
    this.events.listed();
  }
  /** The page ends: what is not stored yet is stored now, without a comparison. */
  end() {
    for (const talk of this.unsaved) if (!isEmpty(talk) && !this.deleted.has(talk.id)) this.store.putLast(talk);
    this.unsaved.clear();
  }
  async delete(id) {
    this.deleted.add(id);
    this.known.delete(id);
    await this.store.delete(id);
    this.events.listed();
  }
  // ---- Other tabs ------------------------------------------------------------------------------------
  // Of two copies that say different things both are kept.
  async settle(talk, stored) {
    if (stored && holds(talk, stored)) {
      talk.revision = stored.revision;
      if (stored.named && !talk.named) Object.assign(talk, { named: true, title: stored.title });
      return this.keepNow(talk);
    }
    if (stored && holds(stored, talk) && !this.events.isBusy(talk)) return this.adopt(talk, stored);
    Object.assign(talk, { id: newId(), revision: 0 });
    this.events.tell(
      `The conversation was ${stored ? "changed" : "deleted"} in another tab; what is written here is kept as one of its own.`
    );
    await this.keepNow(talk);
    this.events.changed(talk);
  }
  adopt(talk, stored) {
    this.unsaved.delete(talk);
    Object.assign(talk, stored);
    this.note(talk);
    this.events.changed(talk);
  }
  async otherKept(id) {
    const stored = await this.store.get(id);
    if (!stored) return;
    this.note(stored);
    for (const talk of this.open)
      if (talk.id === id && talk.revision !== stored.revision && !this.unsaved.has(talk) && !this.events.isBusy(talk))
        this.adopt(talk, stored);
  }
  otherDeleted(id) {
    this.known.delete(id);
    this.events.listed();
    for (const talk of this.open) if (talk.id === id && this.unsaved.has(talk) && !talk.writing) return;
    this.deleted.add(id);
    this.events.gone(id);
  }
  /** A page that was in the background for long, perhaps without hearing of changes. */
  async lookAgain() {
    for (const talk of this.open) if (!isEmpty(talk)) await this.otherKept(talk.id);
  }
  // ---- Answers being written -------------------------------------------------------------------------
  /** Tells other tabs, and the next page if this one ends, that an answer is being written; ends with the result. */
  async whileWriting(talk, write2) {
    let done = () => {
    };
    const locks = navigator.locks;
    void locks?.request(writingLock(talk.id), () => new Promise((resolve) => done = resolve));
    talk.writing = true;
    try {
      return await write2();
    } finally {
      talk.writing = false;
      void this.keep(talk).finally(() => done());
    }
  }
  /** Whether another tab writes it: if so, returns when it has ended. */
  async otherWriter(id) {
    const locks = navigator.locks;
    const held = (await locks?.query())?.held ?? [];
    if (!held.some(({ name }) => name === writingLock(id))) return false;
    await locks.request(writingLock(id), () => void 0);
    return true;
  }
  /** An answer that was being written when it was stored: by another tab, or by a page that ended in it. */
  async lookForWriter(talk) {
    const { id } = talk;
    if (await this.otherWriter(id)) await this.otherKept(id);
    if (!talk.writing || talk.id !== id || !this.open.has(talk) || this.events.isBusy(talk)) return;
    talk.writing = false;
    const last = talk.messages.at(-1);
    if (last?.role === "assistant") last.end = "cut";
    this.events.changed(talk);
    if (talk.kind === "text") this.events.tell("The page was closed while the text was continued: its end is missing.");
    void this.keep(talk);
  }
};

// web/chat/settings.ts
var DEFAULTS = {
  system: "",
  temperature: null,
  topP: null,
  topK: null,
  minP: null,
  repeatPenalty: null,
  seed: null,
  maxTokens: null,
  pieceTokens: 160,
  device: "auto",
  threads: null,
  context: null,
  thinking: "auto",
  lastModel: null
};
var RANGES = {
  temperature: {
    label: "Temperature",
    min: 0,
    max: 5,
    step: 0.05,
    hint: "0 always takes the likeliest word"
  },
  topP: {
    label: "Top-p",
    min: 0,
    max: 1,
    step: 0.01,
    hint: "of the likeliest words, this share of the chance"
  },
  topK: { label: "Top-k", min: 0, max: 1e3, step: 1, hint: "how many of the likeliest words; 0: all" },
  minP: {
    label: "Min-p",
    min: 0,
    max: 1,
    step: 0.01,
    hint: "at least this share of the likeliest one’s chance"
  },
  repeatPenalty: { label: "Repeat penalty", min: 0.5, max: 3, step: 0.01, hint: "1: none" },
  seed: {
    label: "Seed",
    min: 1,
    max: Number.MAX_SAFE_INTEGER,
    step: 1,
    hint: "the same seed gives the same text"
  },
  maxTokens: {
    label: "Longest answer, tokens",
    min: 1,
    max: 131072,
    step: 1,
    hint: "left empty: until the model ends"
  },
  pieceTokens: { label: "Tokens a continuation", min: 8, max: 4096, step: 1, hint: "in “Continue a text”" },
  threads: {
    label: "Threads",
    min: 1,
    max: 64,
    step: 1,
    hint: "more than one only where the site is isolated"
  },
  context: {
    label: "Context, tokens",
    min: 64,
    max: 131072,
    step: 1,
    hint: "left empty: what the model was trained for, at most 8192"
  }
};
var KEY2 = "tern-chat-settings";
function readSettings(text) {
  let from = {};
  try {
    const value = JSON.parse(text ?? "{}");
    if (typeof value === "object" && value !== null) from = value;
  } catch {
  }
  const settings = { ...DEFAULTS };
  for (const name of Object.keys(RANGES)) {
    const { min, max, step } = RANGES[name];
    const value = from[name];
    if (typeof value === "number" && value >= min && value <= max && (step !== 1 || Number.isInteger(value)))
      settings[name] = value;
  }
  for (const name of ["system", "lastModel"]) if (typeof from[name] === "string") settings[name] = from[name];
  if (["auto", "webgpu", "wasm"].includes(from.device)) settings.device = from.device;
  if (["auto", "on", "off"].includes(from.thinking)) settings.thinking = from.thinking;
  return settings;
}
function loadSettings() {
  try {
    return readSettings(localStorage.getItem(KEY2));
  } catch {
    return { ...DEFAULTS };
  }
}
function saveSettings(settings) {
  try {
    localStorage.setItem(KEY2, JSON.stringify(settings));
  } catch {
  }
}
var given = (options) => Object.fromEntries(Object.entries(options).filter(([, value]) => value !== null));
function samplingOptions(settings) {
  const { temperature, topP, topK, minP, repeatPenalty, seed, maxTokens } = settings;
  return given({ temperature, topP, topK, minP, repeatPenalty, seed, maxTokens });
}

// web/chat/sidebar.ts
var Sidebar = class {
  constructor(actions) {
    this.actions = actions;
    byId("sidebar-actions").append(
      iconButton(
        "more",
        "Export and import",
        (event) => this.menu(event, [
          ["download", "Export all", () => actions.exportAll()],
          ["file", "Import a file…", () => actions.importFile()]
        ])
      )
    );
    this.veil.addEventListener("click", () => this.close());
    byId("sidebar").addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.isOpen) this.close();
    });
  }
  actions;
  list = byId("talks");
  veil = byId("veil");
  talks = [];
  drawn = "";
  current = "";
  renaming = "";
  get isOpen() {
    return document.body.classList.contains("sidebar-open");
  }
  /** On phones the list lies over the page. */
  open() {
    document.body.classList.add("sidebar-open");
    this.veil.hidden = false;
    byId("sidebar").querySelector("button")?.focus();
  }
  close() {
    document.body.classList.remove("sidebar-open");
    this.veil.hidden = true;
  }
  show(talks, current) {
    this.talks = talks;
    this.current = current;
    const now = JSON.stringify([current, ...talks.map(({ id, title, updated }) => [id, title, formatDay(updated)])]);
    if (this.renaming || now === this.drawn) return;
    this.drawn = now;
    this.draw();
  }
  draw() {
    const parts = [];
    let day = "";
    for (const talk of this.talks) {
      const heading = formatDay(talk.updated);
      if (heading !== day) parts.push(h("h3", null, day = heading), h("ul", null));
      parts.at(-1).append(this.row(talk));
    }
    if (parts.length === 0) parts.push(h("p", { class: "empty" }, "Your conversations will be listed here."));
    const focused = document.activeElement?.dataset?.talk;
    const kind = document.activeElement?.className;
    this.list.replaceChildren(...parts);
    if (focused)
      this.list.querySelector(`[data-talk="${CSS.escape(focused)}"].${kind?.split(" ")[0] ?? "open"}`)?.focus();
  }
  row(talk) {
    if (talk.id === this.renaming) return this.renameRow(talk);
    const { title } = talk;
    const more = iconButton(
      "more",
      `More for “${title}”`,
      (event) => this.menu(event, [
        [
          "edit",
          "Rename",
          () => {
            this.renaming = talk.id;
            this.draw();
          }
        ],
        ["download", "Export as Markdown", () => this.actions.export(talk, "markdown")],
        ["download", "Export as JSON", () => this.actions.export(talk, "json")],
        ["trash", "Delete", () => this.actions.remove(talk)]
      ]),
      "small more"
    );
    more.dataset.talk = talk.id;
    return h(
      "li",
      { class: talk.id === this.current ? "current" : "" },
      h(
        "button",
        {
          type: "button",
          class: "open",
          title,
          "data-talk": talk.id,
          "aria-current": talk.id === this.current ? "true" : void 0,
          onclick: () => {
            this.close();
            this.actions.open(talk.id);
          }
        },
        title
      ),
      more
    );
  }
  renameRow(talk) {
    const input = h("input", {
      class: "input",
      value: talk.title,
      maxlength: 120,
      "aria-label": "Name of the conversation"
    });
    const done = (keep) => {
      if (this.renaming !== talk.id) return;
      this.renaming = "";
      this.drawn = "";
      if (keep) this.actions.rename(talk.id, input.value.trim());
      this.draw();
      this.list.querySelector(`.open[data-talk="${CSS.escape(talk.id)}"]`)?.focus();
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) done(true);
      if (event.key === "Escape") {
        event.stopPropagation();
        done(false);
      }
    });
    input.addEventListener("blur", () => done(true));
    queueMicrotask(() => {
      input.focus();
      input.select();
    });
    return h("li", null, input);
  }
  // A small menu beside a button; closed by a choice, Escape, or a click elsewhere.
  menu(event, entries) {
    const button = event.currentTarget;
    const close = () => {
      menu.remove();
      removeEventListener("pointerdown", outside, true);
      removeEventListener("resize", close);
    };
    const outside = (pressed) => {
      if (!menu.contains(pressed.target)) close();
    };
    const items = entries.map(
      ([name, label, run]) => h(
        "button",
        {
          type: "button",
          role: "menuitem",
          class: name === "trash" ? "danger" : "",
          onclick: () => {
            close();
            button.focus();
            run();
          }
        },
        icon(name),
        label
      )
    );
    const menu = h(
      "div",
      {
        class: "menu",
        role: "menu",
        onkeydown: (pressed) => {
          const at = items.indexOf(document.activeElement);
          const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[pressed.key];
          if (to !== void 0) {
            pressed.preventDefault();
            items[(to + items.length) % items.length].focus();
          }
          if (pressed.key === "Escape" || pressed.key === "Tab") {
            pressed.preventDefault();
            pressed.stopPropagation();
            close();
            button.focus();
          }
        }
      },
      ...items
    );
    document.body.append(menu);
    const place = button.getBoundingClientRect();
    menu.style.left = `${Math.max(8, Math.min(place.left, innerWidth - menu.offsetWidth - 8))}px`;
    menu.style.top = `${Math.max(8, Math.min(place.bottom + 4, innerHeight - menu.offsetHeight - 8))}px`;
    items[0].focus();
    addEventListener("pointerdown", outside, true);
    addEventListener("resize", close);
  }
};

// web/chat/text_view.ts
var TextView = class {
  constructor(element, bar, scroller, actions) {
    this.element = element;
    this.bar = bar;
    this.scroller = scroller;
    element.append(this.field);
    bar.append(this.goButton, this.stopButton, this.againButton, this.undoButton);
    this.goButton.addEventListener("click", () => actions.go());
    this.stopButton.addEventListener("click", () => actions.stop());
    this.undoButton.addEventListener("click", () => {
      this.takeBack();
      actions.changed();
      this.field.focus();
    });
    this.againButton.addEventListener("click", () => {
      this.takeBack();
      actions.go();
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        actions.go();
      }
    });
    this.field.addEventListener("input", () => {
      if (!this.talk) return;
      this.talk.text = this.field.value;
      this.talk.pieces = this.talk.pieces.filter((at) => at < this.talk.text.length);
      this.fit();
      this.buttons(false);
      actions.changed();
    });
  }
  element;
  bar;
  scroller;
  field = h("textarea", {
    "aria-label": "Text that the model continues",
    placeholder: "Begin a text here; the model goes on with it.",
    spellcheck: "false",
    maxlength: 4e5
  });
  goButton = h(
    "button",
    { type: "button", class: "button primary", title: "Ctrl+Enter" },
    icon("spark"),
    "Continue"
  );
  stopButton = h(
    "button",
    { type: "button", class: "button primary", hidden: true },
    icon("stop"),
    "Stop"
  );
  undoButton = h("button", { type: "button", class: "button" }, icon("undo"), "Take back");
  againButton = h("button", { type: "button", class: "button" }, icon("retry"), "Another");
  talk = null;
  show(talk, writing) {
    this.talk = talk;
    this.element.hidden = this.bar.hidden = talk === null;
    if (!talk) return;
    if (this.field.value !== talk.text) this.field.value = talk.text;
    this.field.readOnly = writing;
    this.field.setAttribute("aria-busy", String(writing));
    this.fit();
    this.buttons(writing);
  }
  focus() {
    this.field.focus();
    this.field.setSelectionRange(this.field.value.length, this.field.value.length);
  }
  takeBack() {
    const at = this.talk?.pieces.pop();
    if (this.talk && at !== void 0) this.talk.text = this.talk.text.slice(0, at);
    this.show(this.talk, false);
  }
  buttons(writing) {
    const focused = document.activeElement === this.goButton || document.activeElement === this.stopButton;
    this.goButton.hidden = writing;
    this.stopButton.hidden = !writing;
    this.goButton.disabled = !this.talk?.text.trim();
    this.undoButton.disabled = this.againButton.disabled = writing || !this.talk?.pieces.length;
    if (focused) (writing ? this.stopButton : this.goButton).focus();
  }
  // As high as its text: the page scrolls, not the field in it.
  fit() {
    if (CSS.supports("field-sizing: content")) return;
    const top = this.scroller.scrollTop;
    this.field.style.height = "auto";
    this.field.style.minHeight = `${this.field.scrollHeight}px`;
    this.scroller.scrollTop = top;
  }
};

// web/shared/markdown.ts
var MAX_DEPTH = 8;
var node = (tag, children, attributes) => attributes ? { tag, attributes, children } : { tag, children };
function safeHref(address) {
  const text = address.replace(/[\u0000-\u0020\u007f-\u00a0\u200b-\u200f\u2028-\u202e\ufeff]/g, "");
  if (!/^(https?:\/\/[^/]|mailto:[^/])/i.test(text)) return null;
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
var FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
var HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)(.*)$/;
var RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
var QUOTE = /^ {0,3}> ?/;
var ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)/;
var DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
var isBlank = (line) => !/\S/.test(line);
var indentOf = (line) => /^ */.exec(line)[0].length;
function headingText(rest) {
  const text = rest.trim();
  let end = text.length;
  while (text[end - 1] === "#") end--;
  return end === 0 || /[ \t]/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text;
}
var BlockReader = class {
  constructor(lines, depth) {
    this.lines = lines;
    this.depth = depth;
  }
  lines;
  depth;
  at = 0;
  read() {
    const blocks = [];
    while (this.at < this.lines.length) {
      if (isBlank(this.lines[this.at])) {
        this.at++;
        continue;
      }
      const from = this.at;
      const made = this.block();
      blocks.push({ source: this.lines.slice(from, this.at).join("\n"), node: made });
    }
    return blocks;
  }
  block() {
    const line = this.lines[this.at];
    const nests = this.depth < MAX_DEPTH;
    const fence = FENCE.exec(line);
    if (fence) return this.code(fence[1], fence[2], indentOf(line));
    const heading = HEADING.exec(line);
    if (heading) {
      this.at++;
      return node(`h${heading[1].length}`, inline(headingText(heading[2])));
    }
    if (RULE.test(line)) {
      this.at++;
      return node("hr", []);
    }
    if (nests && QUOTE.test(line)) return this.quote();
    if (nests && ITEM.test(line)) return this.list();
    if (this.startsTable()) return this.table();
    return this.paragraph();
  }
  code(mark, info, indent) {
    const body = [];
    this.at++;
    const end = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}[ \\t]*$`);
    while (this.at < this.lines.length) {
      const line = this.lines[this.at++];
      if (end.test(line)) break;
      body.push(line.slice(Math.min(indentOf(line), indent)));
    }
    const lang = /^[\w+#.-]{1,30}/.exec(info.trim())?.[0];
    return node("pre", [body.join("\n")], lang ? { lang } : void 0);
  }
  quote() {
    const inner = [];
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (!QUOTE.test(line) && (isBlank(line) || this.startsOther(line) || isBlank(inner.at(-1)))) break;
      inner.push(line.replace(QUOTE, ""));
      this.at++;
    }
    return node("blockquote", nodes(inner, this.depth + 1));
  }
  list() {
    const first = ITEM.exec(this.lines[this.at]);
    const ordered = /\d/.test(first[2]);
    const kind = first[2].at(-1);
    const items = [];
    while (this.at < this.lines.length) {
      const match = ITEM.exec(this.lines[this.at]);
      if (!match || match[2].at(-1) !== kind || match[1].length > first[1].length + 3 || RULE.test(this.lines[this.at]))
        break;
      items.push(this.item(match));
    }
    const start = ordered ? parseInt(first[2], 10) : 1;
    return node(ordered ? "ol" : "ul", items, ordered && start !== 1 ? { start } : void 0);
  }
  item(match) {
    const inner = [this.lines[this.at].slice(match[0].length)];
    const column = Math.max(match[1].length + 2, Math.min(match[0].length, match[1].length + 4));
    this.at++;
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (isBlank(line)) {
        const next = this.lines.slice(this.at + 1, this.at + 20).find((text) => !isBlank(text));
        const further = ITEM.exec(next ?? "");
        if (next === void 0 || indentOf(next) < match[1].length + 2 && !further) break;
        if (further && further[1].length < match[1].length + 2) {
          this.skipBlank();
          break;
        }
      } else if (indentOf(line) < match[1].length + 2 && (ITEM.test(line) || this.startsOther(line) || isBlank(inner.at(-1))))
        break;
      inner.push(line.slice(Math.min(indentOf(line), column)));
      this.at++;
    }
    const task = /^\[([ xX])\][ \t]+/.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    const children = tight(nodes(inner, this.depth + 1));
    if (task) children.unshift(node("task", [], { checked: task[1] !== " " }));
    return node("li", children);
  }
  skipBlank() {
    while (this.at < this.lines.length && isBlank(this.lines[this.at])) this.at++;
  }
  startsTable() {
    const next = this.lines[this.at + 1];
    return next !== void 0 && this.lines[this.at].includes("|") && next.includes("-") && DELIMITER_ROW.test(next) && cells(this.lines[this.at]).length === cells(next).length;
  }
  table() {
    const head = cells(this.lines[this.at]);
    const aligns = cells(this.lines[this.at + 1]).map((text) => {
      const [left, right] = [text.startsWith(":"), text.endsWith(":")];
      return left && right ? "center" : right ? "right" : left ? "left" : void 0;
    });
    const row = (tag, texts) => node(
      "tr",
      head.map((_, i) => node(tag, inline(texts[i] ?? ""), aligns[i] ? { align: aligns[i] } : void 0))
    );
    const rows = [row("th", head)];
    this.at += 2;
    while (this.at < this.lines.length && !isBlank(this.lines[this.at]) && this.lines[this.at].includes("|")) {
      rows.push(row("td", cells(this.lines[this.at++])));
    }
    return node("table", rows);
  }
  paragraph() {
    const lines = [this.lines[this.at++].trimStart()];
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (isBlank(line) || this.startsOther(line) || this.startsTable()) break;
      lines.push(line.trimStart());
      this.at++;
    }
    return node("p", inline(lines.join("\n").trimEnd()));
  }
  // Whether a line ends a paragraph by beginning something else.
  startsOther(line) {
    if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
    if (this.depth >= MAX_DEPTH) return false;
    const item = ITEM.exec(line);
    return QUOTE.test(line) || item !== null && item[0].length < line.length && (!/\d/.test(item[2]) || /^1[.)]/.test(item[2]));
  }
};
function tight(children) {
  return children[0]?.tag === "p" ? [...children[0].children, ...children.slice(1)] : children;
}
function cells(line) {
  const parts = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1").split(/(?<!\\)\|/);
  return parts.slice(0, 50).map((text) => text.replace(/\\\|/g, "|").trim());
}
var nodes = (lines, depth) => new BlockReader(lines, depth).read().map((block) => block.node);
function parseMarkdown(text) {
  const lines = text.replace(/\r\n?/g, "\n").replace(/\0/g, "�").split("\n");
  return new BlockReader(
    lines.map((line) => line.replace(/^[ \t]*\t[ \t]*/, (white) => white.replace(/\t/g, "    "))),
    0
  ).read();
}
var PUNCTUATION = /[!-/:-@[-`{-~]/;
var BARE = /^https?:\/\/[^\s<>"'`]+/i;
var WORD = /[\p{L}\p{N}]/u;
var InlineReader = class {
  constructor(source) {
    this.source = source;
  }
  source;
  pieces = [];
  openers = [];
  text = "";
  i = 0;
  read() {
    while (this.i < this.source.length) this.step();
    this.flush();
    return merge(this.pieces);
  }
  flush() {
    if (this.text) this.pieces.push(this.text);
    this.text = "";
  }
  push(made) {
    this.flush();
    this.pieces.push(made);
  }
  step() {
    const c = this.source[this.i];
    switch (c) {
      case "\\":
        return this.escape();
      case "\n":
        this.text = this.text.trimEnd();
        this.push(node("br", []));
        this.i++;
        return;
      case "`":
        return this.ticks();
      case "*":
      case "_":
      case "~":
        return this.emphasis(c);
      case "!":
        if (this.source[this.i + 1] !== "[") break;
        return this.open("![");
      case "[":
        return this.open("[");
      case "]":
        return this.bracket();
      case "<":
        return this.angle();
      case "h":
      case "H":
        return this.bare();
    }
    this.text += c;
    this.i++;
  }
  escape() {
    const next = this.source[this.i + 1];
    if (next === "\n") {
      this.push(node("br", []));
      this.i += 2;
      return;
    }
    const escapes = next !== void 0 && PUNCTUATION.test(next);
    this.text += escapes ? next : "\\";
    this.i += escapes ? 2 : 1;
  }
  run(c) {
    let n = 1;
    while (this.source[this.i + n] === c) n++;
    return n;
  }
  ticks() {
    const n = this.run("`");
    const from = this.i + n;
    let end = from;
    for (let length = 0; end >= 0; end += length) {
      end = this.source.indexOf("`", end);
      if (end < 0) break;
      length = 1;
      while (this.source[end + length] === "`") length++;
      if (length === n) break;
    }
    if (end < 0) {
      this.text += "`".repeat(n);
      this.i = from;
      return;
    }
    const code = this.source.slice(from, end).replace(/\n/g, " ");
    this.push(node("code", [/^ .* $/.test(code) && /[^ ]/.test(code) ? code.slice(1, -1) : code]));
    this.i = end + n;
  }
  emphasis(c) {
    const n = this.run(c);
    const [before, after] = [this.source[this.i - 1] ?? " ", this.source[this.i + n] ?? " "];
    const inWord = c === "_" && WORD.test(before) && WORD.test(after);
    const opens = !/\s/.test(after) && !(PUNCTUATION.test(after) && WORD.test(before)) && !inWord;
    const closes = !/\s/.test(before) && !(PUNCTUATION.test(before) && WORD.test(after)) && !inWord;
    this.i += n;
    let left = n > 3 || c === "~" && n !== 2 ? 0 : n;
    if (left === 0) {
      this.text += c.repeat(n);
      return;
    }
    if (closes) left = this.closeMarks(c, left);
    if (left > 0 && opens) {
      this.flush();
      this.openers.push({ mark: c.repeat(left), at: this.pieces.length, index: this.i });
      this.pieces.push(c.repeat(left));
    } else if (left > 0) this.text += c.repeat(left);
  }
  // Closes openers of this character with `left` marks; returns how many marks remain.
  closeMarks(c, left) {
    while (left > 0) {
      let k = this.openers.length - 1;
      while (k >= 0 && this.openers[k].mark[0] !== c && !this.openers[k].mark.endsWith("[")) k--;
      const opener = this.openers[k];
      if (!opener || opener.mark[0] !== c) break;
      const used = Math.min(left, opener.mark.length, 2);
      if (c === "~" && used !== 2) break;
      this.flush();
      const inside = this.pieces.splice(opener.at + 1);
      this.openers.length = k;
      const rest = opener.mark.length - used;
      this.pieces.pop();
      if (rest > 0) {
        this.openers.push({ ...opener, mark: c.repeat(rest) });
        this.pieces.push(c.repeat(rest));
      }
      this.pieces.push(node(c === "~" ? "del" : used === 2 ? "strong" : "em", merge(inside)));
      left -= used;
    }
    return left;
  }
  open(mark) {
    this.flush();
    this.i += mark.length;
    this.openers.push({ mark, at: this.pieces.length, index: this.i });
    this.pieces.push(mark);
  }
  bracket() {
    let k = this.openers.length - 1;
    while (k >= 0 && !this.openers[k].mark.endsWith("[")) k--;
    const opener = this.openers[k];
    this.i++;
    const to = opener && /^\(\s{0,3}(?:<([^<>\n]{0,2000})>|([^\s()<>]{0,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,2000})?))(?:\s{1,3}(?:"[^"\n]{0,500}"|'[^'\n]{0,500}'))?\s{0,3}\)/.exec(
      this.source.slice(this.i, this.i + 5e3)
    );
    const href = to ? safeHref(to[1] ?? to[2] ?? "") : null;
    if (opener) this.openers.length = k;
    if (!opener || !to || !href) {
      this.text += "]";
      return;
    }
    this.flush();
    const inside = merge(this.pieces.splice(opener.at + 1));
    this.pieces.pop();
    this.i += to[0].length;
    this.pieces.push(node("a", inside.length ? withoutLinks(inside) : [href], { href }));
  }
  link(address, length) {
    const href = safeHref(address);
    if (!href) return false;
    this.push(node("a", [address], { href }));
    this.i += length;
    return true;
  }
  angle() {
    const match = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/i.exec(
      this.source.slice(this.i, this.i + 2020)
    );
    if (match && this.link(match[1], match[0].length)) return;
    const br = /^<br\s?\/?>/i.exec(this.source.slice(this.i, this.i + 7));
    if (br) {
      this.push(node("br", []));
      this.i += br[0].length;
      return;
    }
    this.text += "<";
    this.i++;
  }
  bare() {
    const match = WORD.test(this.source[this.i - 1] ?? " ") ? null : BARE.exec(this.source.slice(this.i, this.i + 2e3));
    if (match) {
      let address = match[0].replace(/[.,;:!?*_~\]]+$/, "");
      if (address.endsWith(")") && !address.includes("(")) address = address.replace(/[).,;:!?]+$/, "");
      if (this.link(address, address.length)) return;
    }
    this.text += this.source[this.i++];
  }
};
function withoutLinks(children) {
  return merge(
    children.flatMap(
      (child) => typeof child === "string" ? [child] : child.tag === "a" ? withoutLinks(child.children) : [{ ...child, children: withoutLinks(child.children) }]
    )
  );
}
function merge(pieces) {
  const merged = [];
  let texts = [];
  const flush = () => {
    if (texts.length) merged.push(texts.join(""));
    texts = [];
  };
  for (const piece of pieces) {
    if (typeof piece === "string") texts.push(piece);
    else {
      flush();
      merged.push(piece);
    }
  }
  flush();
  return merged;
}
function inline(source) {
  return new InlineReader(source).read();
}

// web/shared/markdown_view.ts
function build(item) {
  if (typeof item === "string") return document.createTextNode(item);
  const { tag, attributes = {}, children } = item;
  const content = children.map(build);
  switch (tag) {
    case "pre":
      return codeBlock(String(children[0] ?? ""), attributes.lang);
    case "a":
      return h(
        "a",
        { href: attributes.href, rel: "noopener noreferrer nofollow", target: "_blank" },
        ...content
      );
    case "ol":
      return h("ol", { start: attributes.start }, ...content);
    case "th":
    case "td":
      return h(tag, { class: attributes.align, scope: tag === "th" ? "col" : void 0 }, ...content);
    case "table":
      return h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" },
        h("table", null, ...content)
      );
    case "task":
      return h("input", {
        type: "checkbox",
        class: "task",
        disabled: true,
        checked: attributes.checked,
        "aria-label": attributes.checked ? "done" : "open"
      });
    default:
      return h(tag, null, ...content);
  }
}
function codeBlock(text, language) {
  const copy = iconButton("copy", "Copy code", () => void copyText(text, copy), "small");
  return h(
    "div",
    { class: "code" },
    h("header", null, h("span", null, language ?? "text"), copy),
    h("pre", { tabindex: 0 }, h("code", null, text))
  );
}
var MarkdownView = class {
  element = h("div", { class: "markdown" });
  shown = [];
  show(text) {
    const blocks = parseMarkdown(text);
    let same = 0;
    while (same < blocks.length && same < this.shown.length && blocks[same].source === this.shown[same])
      same++;
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    for (const block of blocks.slice(same)) this.element.append(build(block.node));
    this.shown = blocks.map((block) => block.source);
  }
};

// web/chat/thread.ts
function statsText({ tokens, perSecond, firstSeconds, device, dropped }) {
  return [
    `${formatRate(perSecond)} tokens/s`,
    `${tokens} tokens`,
    `first after ${formatDuration(firstSeconds)}`,
    device,
    dropped ? `${dropped} older messages left out` : ""
  ].filter(Boolean).join(" · ");
}
var ENDS = {
  length: "cut at the limit",
  stopped: "stopped",
  failed: "failed",
  cut: "cut: the page was closed before it ended"
};
var AT_ONCE = 30;
var AnswerView = class {
  constructor(message, last, actions) {
    this.message = message;
    this.last = last;
    this.actions = actions;
    this.markdown.element.classList.add("answer");
  }
  message;
  last;
  actions;
  markdown = new MarkdownView();
  thought = new MarkdownView();
  thinking = h("summary", null, "Thinking");
  details = h(
    "details",
    { class: "thought", hidden: true },
    this.thinking,
    this.thought.element
  );
  under = h("div", { class: "under" });
  failure = h("p", { class: "failure", role: "alert", hidden: true });
  element = h(
    "article",
    { class: "message assistant", "aria-label": "Answer" },
    this.details,
    this.markdown.element,
    this.failure,
    this.under
  );
  update(writing) {
    const { thought, answer, open } = splitThought(this.message.content);
    this.details.hidden = !thought;
    if (thought) {
      this.thinking.textContent = open && writing ? "Thinking…" : "What it thought";
      this.thought.show(thought);
    }
    this.markdown.show(answer);
    this.markdown.element.classList.toggle("waiting", writing && !answer);
    this.element.classList.toggle("writing", writing);
    this.failure.hidden = !this.message.error;
    this.failure.textContent = this.message.error ?? "";
    this.under.hidden = writing;
    if (!writing) this.finish(answer);
  }
  finish(answer) {
    const copy = iconButton("copy", "Copy answer", () => void copyText(answer, copy), "small");
    const { stats, end } = this.message;
    const text = [end ? ENDS[end] : "", stats ? statsText(stats) : ""].filter(Boolean).join(" · ");
    this.under.replaceChildren(copy);
    if (this.last)
      this.under.append(iconButton("retry", "Answer again", () => this.actions.regenerate(), "small"));
    this.under.append(
      h(
        "span",
        {
          class: "stats number",
          title: stats ? `${stats.model}; prompt of ${stats.promptTokens} tokens, ${stats.cachedTokens} of them kept from the last turn` : ""
        },
        text
      )
    );
  }
};
function attached({ name, text, image }) {
  if (image) return h("img", { class: "image", src: image, alt: name, title: name });
  const shown = h("pre", { tabindex: 0 }, text);
  return h("details", { class: "attached" }, h("summary", null, icon("file"), name), shown);
}
var Thread = class {
  constructor(element, scroller, actions) {
    this.element = element;
    this.scroller = scroller;
    this.actions = actions;
    const seen = (entries) => entries.some((one) => one.isIntersecting) && this.drawEarlier();
    this.watcher = new IntersectionObserver(seen, { root: scroller, rootMargin: "800px 0px 0px" });
  }
  element;
  scroller;
  actions;
  answer = null;
  talk = null;
  writing = false;
  from = 0;
  // the first turn that is drawn
  earlier = h(
    "button",
    { type: "button", class: "button small earlier", onclick: () => this.drawEarlier() },
    "Earlier messages"
  );
  watcher;
  /** Whether somebody edits a message. */
  get isEditing() {
    return this.element.querySelector(".edit") !== null;
  }
  /** Shows the last turns; `writing`: the last answer is being written. */
  show(talk, writing) {
    const last = Math.max(0, talk.messages.length - AT_ONCE);
    this.from = talk === this.talk ? Math.min(this.from, last) : last;
    this.talk = talk;
    this.writing = writing;
    this.answer = null;
    const turns = talk.messages.slice(this.from).map((message, i) => this.turn(message, this.from + i));
    this.element.replaceChildren(...this.from > 0 ? [this.earlier, ...turns] : turns);
    this.element.setAttribute("aria-busy", String(writing));
    this.watch();
  }
  clear() {
    this.talk = this.answer = null;
    this.from = 0;
    this.watch();
    this.element.replaceChildren();
  }
  turn(message, at) {
    const { messages } = this.talk;
    if (message.role === "user") return this.question(message, !this.writing && at === lastUserIndex(this.talk));
    const last = at === messages.length - 1;
    const view = new AnswerView(message, last, this.actions);
    view.update(this.writing && last);
    if (last) this.answer = view;
    return view.element;
  }
  // An observer tells once: again, if the button is still in sight afterwards.
  watch() {
    this.watcher.disconnect();
    if (this.from > 0) this.watcher.observe(this.earlier);
  }
  // What is in sight stays where it is.
  drawEarlier() {
    if (!this.talk || this.from === 0) return;
    const below = this.scroller.scrollHeight - this.scroller.scrollTop;
    const to = this.from;
    this.from = Math.max(0, to - AT_ONCE);
    this.earlier.after(...this.talk.messages.slice(this.from, to).map((message, i) => this.turn(message, this.from + i)));
    if (this.from === 0) this.earlier.remove();
    this.scroller.scrollTop = this.scroller.scrollHeight - below;
    this.watch();
  }
  /** The last answer has more text. */
  grow() {
    this.answer?.update(true);
  }
  question(message, editable) {
    const copy = iconButton("copy", "Copy message", () => void copyText(message.content, copy), "small");
    const element = h(
      "article",
      { class: "message user", "aria-label": "You" },
      h("div", { class: "said" }, ...(message.files ?? []).map(attached), message.content),
      h(
        "div",
        { class: "under" },
        copy,
        editable && iconButton("edit", "Edit message", () => this.edit(element, message), "small edit-button")
      )
    );
    return element;
  }
  /** Opens the last message of the user for editing. */
  editLast() {
    this.element.querySelector(".edit-button")?.click();
  }
  edit(element, message) {
    const before = [...element.childNodes];
    const input = h("textarea", {
      class: "input",
      rows: Math.min(10, message.content.split("\n").length + 1),
      value: message.content,
      "aria-label": "Edit your message"
    });
    const cancel = () => {
      element.replaceChildren(...before);
      element.querySelector(".edit-button")?.focus();
    };
    const send = () => {
      if (input.value.trim()) this.actions.edit(input.value.trim());
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches) {
        event.preventDefault();
        send();
      }
    });
    element.replaceChildren(
      h(
        "div",
        { class: "edit" },
        input,
        h(
          "div",
          { class: "row" },
          h("button", { type: "button", class: "button small", onclick: cancel }, "Cancel"),
          h("button", { type: "button", class: "button small primary", onclick: send }, "Send")
        )
      )
    );
    input.focus();
    input.setSelectionRange(input.value.length, input.value.length);
  }
};

// web/chat/welcome.ts
var STORIES = [
  "Write a bedtime story about a fox.",
  "Tell me a story about a cat and a boat.",
  "Molly has a small brown dog called Biscuit. What colour is the dog?"
];
var OPENINGS = [
  "Once upon a time, in a small village by the sea,",
  "The old lighthouse keeper had a secret."
];
var QUESTIONS = [
  "Explain how tides work, to a child.",
  "Write a polite reply that declines an invitation.",
  "Give me three names for a small sailing boat."
];
function showWelcome(element, kind, greeting, actions) {
  const text = kind === "text";
  const ideas = text ? OPENINGS : greeting.stories ? STORIES : QUESTIONS;
  const either = (value, label) => h(
    "button",
    { type: "button", "aria-pressed": String(kind === value), onclick: () => actions.kind(value) },
    label
  );
  element.style.margin = text ? "0 auto" : "auto";
  element.replaceChildren(
    h("img", { src: greeting.icon, alt: "", width: 72, height: 72, hidden: text }),
    h(
      "div",
      null,
      h("h1", null, text ? "Begin a text, the model goes on" : greeting.title),
      h("p", { class: "lead" }, text ? "Write a first sentence, or take one of these." : greeting.lead)
    ),
    h(
      "div",
      { class: "kinds", role: "group", "aria-label": "Kind of conversation" },
      either("chat", "Chat"),
      either("text", "Continue a text")
    ),
    h(
      "div",
      { class: "ideas" },
      ...ideas.map((text2) => h("button", { type: "button", onclick: () => actions.begin(text2) }, text2))
    )
  );
}

// web/chat/page.ts
var ChatPage = class {
  settings = loadSettings();
  scroller = byId("scroller");
  input = byId("input");
  sendButton = byId("send");
  latest = byId("latest");
  thread = new Thread(byId("thread"), this.scroller, {
    regenerate: () => this.regenerate(),
    edit: (content) => this.editAndSend(content)
  });
  text = new TextView(byId("page-text"), byId("text-actions"), this.scroller, {
    go: () => void this.continueText(),
    stop: () => this.stop(),
    changed: () => this.keeper.keepSoon(this.talk)
  });
  sidebar = new Sidebar({
    open: (id) => void this.open(id, "push"),
    rename: (id, title) => void this.rename(id, title),
    remove: (talk) => void this.remove(talk),
    export: (talk, as) => void this.export(talk, as),
    exportAll: () => void this.exportAll(),
    importFile: () => void this.importFile()
  });
  store;
  keeper;
  talk = newConversation("chat");
  running = null;
  pending = null;
  // what is done as soon as a model is there
  followsEnd = true;
  draftTimer = 0;
  /** What goes with the next message: texts, and images where the model sees. */
  files = new Attachments(byId("files"), () => this.drawSend());
  listenForFiles() {
    byId("composer").prepend(
      iconButton("clip", "Attach a text or an image", () => this.files.choose(), "attach")
    );
    this.input.addEventListener("paste", (event) => {
      const files = [...event.clipboardData?.files ?? []];
      if (files.length === 0) return;
      event.preventDefault();
      void this.files.add(files);
    });
  }
  async start() {
    this.buildTop();
    this.listen();
    this.listenForFiles();
    this.store = await openStore();
    this.keeper = new Keeper(this.store, {
      listed: () => this.list(),
      changed: (talk) => this.otherContent(talk),
      gone: (id) => this.goneElsewhere(id),
      tell: toast,
      isBusy: (talk) => this.running?.talk === talk || this.talk === talk && this.thread.isEditing
    });
    if (!this.store.lasting)
      byId("kept").textContent = "This window keeps nothing: conversations end with it.";
    await this.keeper.read();
    this.takeDraft();
    await this.openAddressed();
    this.draw();
    this.begin();
    const prompt = new URLSearchParams(location.search).get("prompt");
    if (prompt && isEmpty(this.talk)) this.input.value = prompt.slice(0, 4e3);
    this.fitInput();
    this.drawSend();
    if (!matchMedia("(pointer: coarse)").matches) this.focusField();
  }
  // ---- The page's frame ------------------------------------------------------------------------------
  buildTop() {
    byId("top-left").append(iconButton("menu", "Conversations", () => this.sidebar.open()));
    byId("top-right").append(
      iconButton("settings", "Settings", () => this.openSettings()),
      iconButton("plus", "New conversation (Ctrl+Shift+O)", () => {
        this.sidebar.close();
        this.create();
      })
    );
    byId("model-button").append(h("span", { class: "chip", id: "device", hidden: true }), icon("chevron"));
    this.latest.append(icon("down"));
  }
  listen() {
    byId("model-button").addEventListener("click", () => this.openModels());
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.input.addEventListener("input", () => {
      this.fitInput();
      this.drawSend();
      this.draftTimer ||= window.setTimeout(() => this.keepDraft(), 300);
    });
    this.input.addEventListener("keydown", (event) => this.inputKey(event));
    this.latest.addEventListener("click", () => {
      this.followsEnd = true;
      this.scrollToEnd();
      this.focusField();
    });
    this.scroller.addEventListener(
      "scroll",
      () => {
        const { scrollTop, scrollHeight, clientHeight } = this.scroller;
        this.followsEnd = scrollHeight - scrollTop - clientHeight < 48;
        this.latest.hidden = scrollHeight - scrollTop - clientHeight < 160;
      },
      { passive: true }
    );
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.running && !document.querySelector("dialog[open], .menu"))
        this.stop();
      if (event.key.toLowerCase() === "o" && event.shiftKey && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.create();
      }
    });
    addEventListener("pagehide", () => {
      this.keepDraft();
      this.keeper?.end();
    });
    document.addEventListener("visibilitychange", () => document.hidden && this.keeper?.keepAll());
    addEventListener("pageshow", (event) => event.persisted && void this.keeper?.lookAgain());
    addEventListener("popstate", () => void this.openAddressed());
    const view = window.visualViewport;
    const fit = () => {
      document.documentElement.style.setProperty("--height", `${Math.round(view.height)}px`);
      if (view.offsetTop > 0) scrollTo(0, 0);
      if (this.followsEnd) this.scrollToEnd();
    };
    view?.addEventListener("resize", fit);
  }
  announce(text) {
    byId("announce").textContent = text;
  }
  // ---- Models ----------------------------------------------------------------------------------------
  /** The model came, went or changed. */
  engineChanged() {
    const { engine } = this;
    byId("model-name").textContent = this.modelName;
    const device = byId("device");
    device.hidden = !engine?.device;
    device.textContent = engine?.device ?? "";
    if (engine) {
      const { pending } = this;
      this.pending = null;
      pending?.();
    }
    if (engine || !this.comes) this.draw();
  }
  change(changes) {
    Object.assign(this.settings, changes);
    saveSettings(this.settings);
  }
  /** Calls `action` now, or when the model is there; opens the picker if none is on its way. */
  withModel(action) {
    if (this.engine) return action();
    this.pending = action;
    if (!this.comes) this.openModels();
    this.drawStatus();
  }
  // ---- Conversations ---------------------------------------------------------------------------------
  list() {
    this.sidebar.show(this.keeper.list, this.talk.id);
  }
  create(kind = this.talk.kind) {
    this.select(newConversation(kind), "push");
    this.focusField();
  }
  async open(id, how) {
    const talk = this.running?.talk.id === id ? this.running.talk : await this.store.get(id);
    if (talk) this.select(talk, how);
    else toast("The conversation is not there any more.");
    this.focusField();
  }
  /** The conversation that the address names: at the beginning, and when somebody goes back or forward. */
  async openAddressed() {
    const id = new URLSearchParams(location.hash.slice(1)).get("talk");
    if (id && id !== this.talk.id) await this.open(id, "keep");
    else if (!id && !isEmpty(this.talk)) this.select(newConversation(this.talk.kind), "keep");
  }
  address(talk, how = "replace") {
    const to = location.pathname + location.search + (isEmpty(talk) ? "" : `#talk=${talk.id}`);
    if (to === location.pathname + location.search + location.hash) return;
    if (how === "push") history.pushState(null, "", to);
    else history.replaceState(null, "", to);
  }
  /** push: going back leads to the one before; keep: the address names it already. */
  select(talk, how) {
    this.keeper.keepAll();
    this.keepDraft();
    this.talk = talk;
    this.pending = null;
    this.hold();
    this.takeDraft();
    this.followsEnd = true;
    if (how !== "keep") this.address(talk, how);
    this.draw();
    this.scrollToEnd();
    this.list();
    if (talk.writing) void this.keeper.lookForWriter(talk);
  }
  hold() {
    this.keeper.hold(this.talk, ...this.running ? [this.running.talk] : []);
  }
  keepDraft() {
    clearTimeout(this.draftTimer);
    this.draftTimer = 0;
    if (this.talk.kind === "chat") writeDraft(isEmpty(this.talk) ? "" : this.talk.id, this.input.value);
  }
  takeDraft() {
    this.input.value = readDraft(isEmpty(this.talk) ? "" : this.talk.id);
    this.fitInput();
  }
  /** Another tab went on with it, or it got an id of its own. */
  otherContent(talk) {
    if (talk !== this.talk) return;
    this.address(talk);
    this.draw();
    if (this.followsEnd) this.scrollToEnd();
    this.list();
    if (talk.writing) void this.keeper.lookForWriter(talk);
  }
  goneElsewhere(id) {
    if (this.running?.talk.id === id) this.stop();
    if (this.talk.id !== id) return;
    toast("The conversation was deleted in another tab.");
    const typed = this.input.value;
    this.select(newConversation(this.talk.kind), "replace");
    this.input.value ||= typed;
    this.fitInput();
    this.drawSend();
    writeDraft(id, "");
  }
  async rename(id, title) {
    const talk = this.talk.id === id ? this.talk : await this.store.get(id);
    if (!talk) return;
    talk.title = title;
    talk.named = title !== "";
    await this.keeper.keep(talk);
  }
  async remove(talk) {
    if (!await confirmDialog("Delete the conversation?", `“${talk.title}” will be gone for good.`, "Delete"))
      return;
    if (this.running?.talk.id === talk.id) this.stop();
    await this.keeper.delete(talk.id);
    if (this.talk.id === talk.id) {
      this.select(newConversation(this.talk.kind), "replace");
      this.focusField();
    }
    writeDraft(talk.id, "");
  }
  async export({ id, title }, as) {
    const talk = this.talk.id === id ? this.talk : await this.store.get(id);
    if (!talk) return;
    const name = title.replace(/[^\p{L}\p{N} -]+/gu, "").trim().slice(0, 60) || "conversation";
    if (as === "json") saveFile(`${name}.json`, exportJson([talk]), "application/json");
    else saveFile(`${name}.md`, exportMarkdown(talk, this.settings.system), "text/markdown");
  }
  async exportAll() {
    saveFile("tern-conversations.json", exportJson(await this.store.all()), "application/json");
  }
  importFile() {
    const input = h("input", {
      type: "file",
      accept: ".json,application/json",
      onchange: async () => {
        try {
          const talks = importJson(await input.files[0].text());
          for (const talk of talks) await this.keeper.keep(talk);
          toast(`${talks.length} conversation${talks.length === 1 ? "" : "s"} imported.`);
        } catch (error) {
          toast(error.message);
        }
      }
    });
    input.click();
  }
  // ---- Writing ---------------------------------------------------------------------------------------
  get writing() {
    return this.running?.talk === this.talk;
  }
  submit() {
    if (this.running) return this.stop();
    const content = this.input.value.trim();
    if (!content && !this.files.hasImages) return;
    this.withModel(() => {
      if (this.input.value.trim() === content) {
        this.input.value = "";
        this.fitInput();
        this.keepDraft();
      }
      const files = this.files.take();
      this.talk.messages.push({ role: "user", content, ...files.length && { files } });
      void this.answer();
    });
  }
  regenerate() {
    if (this.running) return;
    this.withModel(() => {
      if (dropAnswer(this.talk)) void this.answer();
    });
  }
  editAndSend(content) {
    if (this.running) return;
    this.withModel(() => {
      if (editLast(this.talk, content)) void this.answer();
    });
  }
  async answer() {
    const { talk, engine } = this;
    if (!engine) return;
    const messages = messagesForModel(talk, this.settings.system);
    const message = { role: "assistant", content: "" };
    talk.messages.push(message);
    const ask = (options) => engine.writes.chat(messages, { ...samplingOptions(this.settings), ...options });
    const outcome = await this.keeper.whileWriting(
      talk,
      async () => Object.assign(message, await this.run(talk, engine, ask, (piece) => message.content += piece))
    );
    if (this.talk === talk)
      this.announce(outcome.error ?? `Answer: ${splitThought(message.content).answer.slice(0, 2e3)}`);
    this.finish(talk);
  }
  async continueText() {
    const { talk } = this;
    if (this.running || !talk.text.trim()) return;
    this.withModel(() => void this.continueNow(talk));
  }
  async continueNow(talk) {
    const { engine } = this;
    if (this.running || !engine) return;
    const prompt = talk.text;
    talk.pieces.push(prompt.length);
    this.text.show(talk, true);
    const options = { ...samplingOptions(this.settings), maxTokens: this.settings.pieceTokens };
    const ask = (more) => engine.writes.generate(prompt, { ...options, ...more });
    const outcome = await this.keeper.whileWriting(
      talk,
      () => this.run(talk, engine, ask, (piece) => talk.text += piece)
    );
    if (talk.text.length === prompt.length) talk.pieces.pop();
    if (outcome.error) toast(outcome.error);
    else if (talk.text.length === prompt.length)
      toast("The model has nothing to add: for it, the text ends here.");
    if (this.talk === talk)
      this.announce(outcome.error ?? `Added: ${talk.text.slice(prompt.length, prompt.length + 2e3)}`);
    this.finish(talk, outcome);
  }
  async run(talk, engine, ask, add) {
    const abort = new AbortController();
    this.running = { talk, abort };
    this.hold();
    talk.model = engine.name;
    talk.updated = Date.now();
    this.followsEnd = true;
    this.draw();
    this.scrollToEnd();
    this.address(talk);
    this.announce("Writing");
    this.keeper.keepSoon(talk);
    this.keeper.keepAll();
    const outcome = await write(engine, ask, abort.signal, (piece) => {
      add(piece);
      this.keeper.keepSoon(talk);
      if (this.talk !== talk) return;
      if (talk.kind === "chat") this.thread.grow();
      else this.text.show(talk, true);
      if (this.followsEnd) this.scrollToEnd();
    });
    this.running = null;
    this.hold();
    return outcome;
  }
  finish(talk, outcome) {
    talk.updated = Date.now();
    void this.keeper.keep(talk);
    if (this.talk !== talk) return this.drawStatus();
    this.draw();
    if (outcome?.stats) byId("status").textContent = statsText(outcome.stats);
    if (this.followsEnd) this.scrollToEnd();
  }
  stop() {
    this.running?.abort.abort();
  }
  // ---- What is shown ---------------------------------------------------------------------------------
  draw() {
    const { talk, writing } = this;
    const isText = talk.kind === "text";
    document.title = isEmpty(talk) ? "tern chat" : `${titleOf(talk)} · tern`;
    byId("heading").textContent = isEmpty(talk) ? "" : titleOf(talk);
    byId("heading").hidden = isEmpty(talk);
    byId("composer").hidden = isText;
    byId("thread").hidden = isText;
    if (isText) this.thread.clear();
    else this.thread.show(talk, writing || talk.writing);
    this.text.show(isText ? talk : null, writing || talk.writing);
    this.drawWelcome();
    this.drawSend();
    this.drawStatus();
  }
  drawWelcome() {
    byId("welcome").hidden = !isEmpty(this.talk);
    if (!isEmpty(this.talk)) return;
    showWelcome(byId("welcome"), this.talk.kind, this.greeting(), {
      kind: (kind) => this.create(kind),
      begin: (text) => this.take(text)
    });
  }
  /** Takes one of the ideas that an empty page shows. */
  take(text) {
    if (this.talk.kind === "text") {
      this.talk.text = text;
      this.draw();
      void this.continueText();
    } else {
      this.input.value = text;
      this.submit();
    }
  }
  drawSend() {
    const busy = this.running !== null;
    const label = busy ? "Stop (Escape)" : "Send";
    if (this.sendButton.title !== label || !this.sendButton.firstChild) {
      this.sendButton.replaceChildren(icon(busy ? "stop" : "send"));
      this.sendButton.setAttribute("aria-label", label);
      this.sendButton.title = label;
    }
    this.sendButton.disabled = !busy && !this.input.value.trim() && !this.files.hasImages;
  }
  drawStatus() {
    const elsewhere = this.talk.writing && !this.writing ? "Another tab writes this answer. " : this.running && !this.writing ? "Another conversation is being written. " : "";
    byId("status").textContent = elsewhere + (this.pending && this.comes ? "Sent as soon as the model is there." : "");
  }
  inputKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      if (!this.running) this.submit();
    }
    if (event.key === "ArrowUp" && !this.input.value && !this.running) {
      event.preventDefault();
      this.thread.editLast();
    }
  }
  fitInput() {
    if (CSS.supports("field-sizing: content")) return;
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }
  focusField() {
    if (this.talk.kind === "text") this.text.focus();
    else this.input.focus({ preventScroll: true });
  }
  scrollToEnd() {
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
};

// web/chat/settings_dialog.ts
function numberField(settings, name, usual, change) {
  const { label, min, max, step, hint } = RANGES[name];
  const id = `set-${name}`;
  const wrong = h("span", { class: "hint", id: `${id}-hint` }, hint);
  const input = h("input", {
    id,
    class: "input number",
    type: "number",
    inputmode: "decimal",
    min,
    max,
    step: step === 1 ? 1 : "any",
    value: settings[name] === null ? "" : String(settings[name]),
    placeholder: usual,
    "aria-describedby": `${id}-hint`
  });
  input.addEventListener("change", () => {
    const value = input.value.trim() === "" ? DEFAULTS[name] : Number(input.value);
    const good = value === null || value >= min && value <= max && (step !== 1 || Number.isInteger(value));
    input.setAttribute("aria-invalid", String(!good));
    wrong.textContent = good ? hint : `a ${step === 1 ? "whole " : ""}number from ${min} to ${max}`;
    if (good) change({ [name]: value });
  });
  return h("div", { class: "field" }, h("label", { for: id }, label), input, wrong);
}
function choiceField(settings, name, label, options, change) {
  const select = h(
    "select",
    { id: `set-${name}`, class: "input", onchange: () => change({ [name]: select.value }) },
    ...options.map(([value, text]) => h("option", { value, selected: settings[name] === value }, text))
  );
  return h("div", { class: "field" }, h("label", { for: `set-${name}` }, label), select);
}
function openSettingsDialog(settings, info, change, reload) {
  const usual = (value, otherwise) => `${value ?? otherwise}`;
  const number = (name, text) => numberField(settings, name, text, change);
  const system = h("textarea", {
    id: "set-system",
    class: "input",
    rows: 3,
    value: settings.system,
    placeholder: "Who the model is, and how it should answer",
    onchange: () => change({ system: system.value })
  });
  const again = h(
    "button",
    {
      type: "button",
      class: "button small",
      hidden: info === null,
      onclick: () => {
        dialog.close();
        reload?.();
      }
    },
    "Open the model again with these"
  );
  const dialog = openDialog(
    "Settings",
    [
      h("div", { class: "field" }, h("label", { for: "set-system" }, "System prompt"), system),
      h(
        "section",
        { class: "group" },
        h("h3", null, "Sampling"),
        h("p", { class: "tiny muted" }, "A field left empty takes the model’s own default."),
        h(
          "div",
          { class: "fields" },
          number("temperature", usual(info?.temperature, 0.8)),
          number("topP", usual(info?.topP, 0.95)),
          number("topK", usual(info?.topK, 40)),
          number("minP", usual(info?.minP, 0.05)),
          number("repeatPenalty", usual(info?.repeatPenalty, 1)),
          number("seed", "another each time")
        )
      ),
      h(
        "section",
        { class: "group" },
        h("h3", null, "Length"),
        h(
          "div",
          { class: "fields" },
          number("maxTokens", "until it ends"),
          number("pieceTokens", String(DEFAULTS.pieceTokens))
        )
      ),
      h(
        "section",
        { class: "group", hidden: reload === null },
        h("h3", null, "How the model is opened"),
        h(
          "div",
          { class: "fields" },
          choiceField(
            settings,
            "device",
            "Device",
            [
              ["auto", "WebGPU if it works here"],
              ["webgpu", "WebGPU"],
              ["wasm", "Processor"]
            ],
            change
          ),
          choiceField(
            settings,
            "thinking",
            "Thinking",
            [
              ["auto", "As the model likes"],
              ["on", "On"],
              ["off", "Off"]
            ],
            change
          ),
          number("threads", "one a core"),
          number("context", "the model’s")
        ),
        h("div", { class: "row" }, again)
      )
    ],
    [
      h(
        "button",
        {
          type: "button",
          class: "button",
          onclick: () => {
            change({ ...DEFAULTS, system: settings.system, lastModel: settings.lastModel });
            dialog.close();
            openSettingsDialog(settings, info, change, reload);
          }
        },
        "Defaults"
      ),
      h("button", { type: "button", class: "button primary", onclick: () => dialog.close() }, "Done")
    ]
  );
}

// web/server/client.ts
var ServerError = class extends Error {
  constructor(message, status, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }
  status;
  code;
};
var KEY3 = "tern-server-key";
async function* readEvents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let rest = "";
  for (; ; ) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const lines = rest.split(/\r\n|\n|\r/);
    rest = done ? "" : lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trimStart();
    if (done) return;
  }
}
var Client = class _Client {
  model = "";
  context = 0;
  // tokens; 0: not known
  /** Asks the person for a key; null: there is none. */
  onKeyWanted = async () => null;
  key;
  constructor() {
    this.key = _Client.stored();
  }
  static stored() {
    try {
      return localStorage.getItem(KEY3) ?? "";
    } catch {
      return "";
    }
  }
  useKey(key) {
    this.key = key;
    try {
      if (key) localStorage.setItem(KEY3, key);
      else localStorage.removeItem(KEY3);
    } catch {
    }
  }
  /** An answer with status 200; a key that is missing or wrong is asked for. */
  async ask(path, init = {}) {
    for (; ; ) {
      const headers = new Headers(init.headers);
      if (this.key) headers.set("Authorization", `Bearer ${this.key}`);
      let answer;
      try {
        answer = await fetch(path, { ...init, headers, cache: "no-store" });
      } catch (error) {
        if (init.signal?.aborted) throw error;
        throw new ServerError("The server does not answer.", 0);
      }
      if (answer.ok) return answer;
      if (answer.status === 401) {
        const key = await this.onKeyWanted();
        if (key) {
          this.useKey(key);
          continue;
        }
      }
      throw await failureOf(answer);
    }
  }
  async text(path) {
    return (await this.ask(path)).text();
  }
  async json(path, body) {
    const init = body && {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body)
    };
    return await (await this.ask(path, init)).json();
  }
  /** The names of those that write: others make vectors, or rank. */
  async models() {
    const { data } = await this.json("v1/models");
    return data.filter((m) => m.capabilities?.includes("completion") ?? true).map(({ id }) => id);
  }
  props() {
    return this.json(`props${this.model ? `?model=${encodeURIComponent(this.model)}` : ""}`);
  }
  chat(messages, options) {
    return this.write("v1/chat/completions", { messages }, options);
  }
  generate(prompt, options) {
    return this.write("v1/completions", { prompt }, options);
  }
  async write(path, what, options) {
    const { signal, onText } = options;
    const asked = performance.now();
    let first = 0, last = 0, pieces = 0, reason = "end";
    let usage = null;
    try {
      const answer = await this.ask(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(this.body(what, options)),
        ...signal && { signal }
      });
      for await (const data of readEvents(answer.body)) {
        if (data === "[DONE]") break;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new ServerError(chunk.error.message ?? "The server failed.", 200);
        const choice = chunk.choices?.[0];
        const piece = choice?.delta?.content ?? choice?.text ?? "";
        if (piece) {
          last = performance.now();
          first ||= last;
          pieces++;
          onText?.(piece);
        }
        if (choice?.finish_reason === "length") reason = "length";
        usage = chunk.usage ?? usage;
      }
    } catch (error) {
      if (signal?.aborted) throw Object.assign(new Error("stopped"), { code: "aborted" });
      throw error instanceof ServerError ? error : new ServerError("The answer was cut off.", 0);
    }
    return output(usage, reason, { asked, first, last, pieces });
  }
  body(what, options) {
    const { temperature, topP, topK, minP, repeatPenalty, seed, maxTokens } = options;
    return {
      ...this.model && { model: this.model },
      ...what,
      stream: true,
      stream_options: { include_usage: true },
      temperature,
      top_p: topP,
      top_k: topK,
      min_p: minP,
      repeat_penalty: repeatPenalty,
      seed,
      max_tokens: maxTokens
    };
  }
};
async function failureOf(answer) {
  const text = await answer.text().catch(() => "");
  let said = "", code = "";
  try {
    const { error } = JSON.parse(text);
    said = typeof error === "string" ? error : error?.message ?? "";
    code = typeof error === "object" ? String(error.code ?? "") : "";
  } catch {
  }
  const later = answer.status === 429 || answer.status === 503 ? " Try again in a moment." : "";
  return new ServerError(
    (said || `The server answers with status ${answer.status}.`) + later,
    answer.status,
    code
  );
}
function output(usage, reason, at) {
  const prompt = usage?.prompt_tokens ?? 0;
  const tokens = usage?.completion_tokens ?? at.pieces;
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const first = at.first || performance.now();
  const writing = Math.max(at.last - first, 0);
  const perToken = tokens > 1 && writing > 0 ? writing / (tokens - 1) : first - at.asked;
  const reading = first - at.asked;
  return {
    reason,
    dropped: 0,
    usage: {
      prompt_tokens: prompt,
      completion_tokens: tokens,
      total_tokens: prompt + tokens,
      prompt_tokens_details: { cached_tokens: cached },
      completion_tokens_details: { reasoning_tokens: 0 }
    },
    timings: {
      cache_n: cached,
      prompt_n: prompt - cached,
      prompt_ms: reading,
      prompt_per_token_ms: reading / Math.max(1, prompt - cached),
      prompt_per_second: 1e3 * (prompt - cached) / reading,
      predicted_n: tokens,
      predicted_ms: writing,
      predicted_per_token_ms: perToken,
      predicted_per_second: 1e3 / perToken
    }
  };
}

// web/server/key_dialog.ts
var asking = null;
function askForKey() {
  asking ??= new Promise((resolve) => {
    let key = null;
    const input = h("input", {
      id: "key",
      class: "input secret",
      type: "text",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      required: true
    });
    const form = h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          key = input.value.trim() || null;
          dialog.close();
        }
      },
      h(
        "div",
        { class: "field" },
        h("label", { for: "key" }, "API key"),
        input,
        h("span", { class: "hint" }, "One of those that the server was started with. This browser keeps it.")
      ),
      h("div", { class: "row end" }, h("button", { type: "submit", class: "button primary" }, "Use it"))
    );
    const dialog = openDialog("This server asks for a key", [form]);
    dialog.addEventListener("close", () => {
      asking = null;
      resolve(key);
    });
    input.focus();
  });
  return asking;
}

// web/server/metrics.ts
function readMetrics(text) {
  const all = /* @__PURE__ */ new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})? (\S+)/.exec(line);
    if (!found) continue;
    const value = Number(found[2] === "+Inf" ? Infinity : found[2]);
    if (!Number.isNaN(value)) all.set(found[1], (all.get(found[1]) ?? 0) + value);
  }
  return all;
}
function rate(name, from, to) {
  const seconds = (to.at - from.at) / 1e3;
  const [before, after] = [from.metrics.get(name) ?? 0, to.metrics.get(name) ?? 0];
  return seconds > 0 ? (after >= before ? after - before : after) / seconds : 0;
}
function mean(name, from, to) {
  const grown = (end) => (to.metrics.get(name + end) ?? 0) - (from.metrics.get(name + end) ?? 0);
  const n = grown("_count");
  return n > 0 ? grown("_sum") / n : null;
}

// web/server/status_dialog.ts
var SECONDS = 60;
var WIDTH = 600;
var HEIGHT = 90;
function curve(values) {
  const top = Math.max(...values, 1e-9);
  return values.map((value, i) => {
    const x = WIDTH - (values.length - 1 - i) * WIDTH / (SECONDS - 1);
    return `${x.toFixed(1)},${(HEIGHT - 2 - (HEIGHT - 4) * value / top).toFixed(1)}`;
  }).join(" ");
}
function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}
var StatusView = class {
  constructor(client) {
    this.client = client;
    this.image.append(this.line);
    this.body = [this.failure, this.speed, this.image, this.slots, this.facts];
  }
  client;
  samples = [];
  speeds = [];
  line = svg("polyline", { class: "line" });
  image = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    class: "curve",
    role: "img"
  });
  speed = h("p", { class: "speed number" });
  slots = h("ul", { class: "slots", "aria-label": "Sequences" });
  facts = h("dl", { class: "facts number" });
  failure = h("p", { class: "failure", role: "alert", hidden: true });
  body;
  props = null;
  async look() {
    try {
      this.props ??= await this.client.props();
      const [text, slots] = await Promise.all([
        this.client.text("metrics"),
        this.client.json("slots")
      ]);
      this.samples.push({ at: performance.now(), metrics: readMetrics(text) });
      if (this.samples.length > 6) this.samples.shift();
      this.failure.hidden = true;
      this.draw(slots);
    } catch (error) {
      this.failure.textContent = error.message;
      this.failure.hidden = false;
    }
  }
  draw(slots) {
    const now = this.samples.at(-1);
    const before = this.samples.at(-2);
    if (before) this.speeds.push(rate("tern_generated_tokens_total", before, now));
    if (this.speeds.length > SECONDS) this.speeds.shift();
    const speed = this.speeds.at(-1) ?? 0;
    this.speed.replaceChildren(h("strong", null, formatRate(speed)), " tokens/s now");
    this.line.setAttribute("points", curve(this.speeds));
    const top = Math.max(0, ...this.speeds);
    this.image.setAttribute(
      "aria-label",
      `Tokens a second over the last minute: now ${formatRate(speed)}, at most ${formatRate(top)}`
    );
    this.drawSlots(slots);
    this.facts.replaceChildren(
      ...this.rows(now).flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)])
    );
  }
  drawSlots(slots) {
    this.slots.replaceChildren(
      ...slots.slice(0, 256).map(({ id, is_processing: busy }) => {
        const label = `Sequence ${id}: ${busy ? "writing" : "free"}`;
        return h("li", { class: busy ? "busy" : "", title: label, "aria-label": label });
      })
    );
  }
  rows(now) {
    const oldest = this.samples[0];
    const value = (name) => now.metrics.get(name) ?? 0;
    const whole = (name) => value(name).toLocaleString();
    const prompt = value("tern_prompt_tokens_total");
    const cached = value("tern_prompt_cached_tokens_total");
    const first = mean("tern_time_to_first_token_seconds", oldest, now);
    const between = mean("tern_inter_token_seconds", oldest, now);
    const started = value("process_start_time_seconds");
    return [
      ["Sequences", `${whole("tern_requests_running")} running, ${whole("tern_requests_waiting")} waiting`],
      ["Prompts", `${formatRate(rate("tern_prompt_tokens_total", oldest, now))} tokens/s`],
      ["First token", first === null ? "–" : `after ${formatDuration(first)}`],
      ["Between tokens", between === null ? "–" : `${(1e3 * between).toFixed(1)} ms`],
      ["From the cache", prompt > 0 ? `${(100 * cached / prompt).toFixed(0)}% of prompts` : "–"],
      ["Cache", formatBytes(value("tern_kv_bytes"))],
      ["Memory", formatBytes(value("process_resident_memory_bytes"))],
      ["Tokens so far", `${whole("tern_generated_tokens_total")} written, ${prompt.toLocaleString()} read`],
      ["Context", `${(this.props?.default_generation_settings?.n_ctx ?? 0).toLocaleString()} tokens`],
      ["Connections", whole("tern_connections")],
      ["Up for", started ? formatDuration(Math.max(0, Date.now() / 1e3 - started)) : "–"],
      ["Version", this.props?.build_info ?? "–"]
    ];
  }
};
function openStatusDialog(client) {
  const view = new StatusView(client);
  const dialog = openDialog("Server", view.body);
  dialog.classList.add("status");
  void view.look();
  let looking = false;
  const timer = setInterval(async () => {
    if (looking || document.hidden) return;
    looking = true;
    await view.look();
    looking = false;
  }, 1e3);
  dialog.addEventListener("close", () => clearInterval(timer));
}

// web/server/main.ts
var ServerPage = class extends ChatPage {
  client = new Client();
  state = "asking";
  failure = "";
  models = [];
  usual = null;
  meter = byId("context");
  get engine() {
    return this.state === "ready" ? { writes: this.client, name: this.client.model, device: "" } : null;
  }
  get comes() {
    return this.state === "asking";
  }
  get modelName() {
    const { state } = this;
    return state === "ready" ? this.client.model : state === "asking" ? "Connecting…" : "No connection";
  }
  greeting() {
    return {
      title: this.client.model || "tern",
      lead: this.state === "failed" ? this.failure : "It runs on the server that this page came from. Conversations stay in this browser.",
      stories: /stories/i.test(this.client.model),
      icon: "page/icon.svg"
    };
  }
  begin() {
    this.client.onKeyWanted = askForKey;
    byId("top-right").prepend(
      iconButton("wave", "What the server does", () => openStatusDialog(this.client))
    );
    const texts = { single: () => true, none: "Nothing that was dropped is a file." };
    listenForDrops(byId("drop"), texts, (files) => void this.files.add(files));
    void this.connect(this.settings.lastModel);
  }
  /** Asks what the server has; takes the model of that name, else the first. */
  async connect(wanted) {
    this.state = "asking";
    this.engineChanged();
    try {
      this.models = await this.client.models();
      this.client.model = this.models.find((name) => name === wanted) ?? this.models[0] ?? this.client.model;
      this.read(await this.client.props());
      this.state = "ready";
      this.announce(`${this.client.model} is ready.`);
    } catch (error) {
      this.state = "failed";
      this.failure = error.message;
      this.pending = null;
      this.announce(this.failure);
    }
    this.engineChanged();
  }
  read({ default_generation_settings: given2, modalities }) {
    const { params = {} } = given2 ?? {};
    this.files.sees = modalities?.vision ?? false;
    this.client.context = given2?.n_ctx ?? 0;
    this.usual = {
      ...params.temperature !== void 0 && { temperature: params.temperature },
      ...params.top_p !== void 0 && { topP: params.top_p },
      ...params.top_k !== void 0 && { topK: params.top_k },
      ...params.min_p !== void 0 && { minP: params.min_p },
      ...params.repeat_penalty !== void 0 && { repeatPenalty: params.repeat_penalty }
    };
  }
  openModels() {
    if (this.state === "failed") return void this.connect(this.settings.lastModel);
    const dialog = openDialog("Models of this server", [
      h(
        "ul",
        { class: "models" },
        ...this.models.map((name) => {
          const current = name === this.client.model;
          const take = () => {
            dialog.close();
            this.change({ lastModel: name });
            void this.connect(name);
          };
          return h(
            "li",
            { class: current ? "current" : "" },
            h("span", { class: "grow name" }, name),
            current ? h("span", { class: "chip" }, "in use") : h("button", { type: "button", class: "button small", onclick: take }, "Use")
          );
        })
      )
    ]);
  }
  openSettings() {
    openSettingsDialog(this.settings, this.usual, (changes) => this.change(changes), null);
  }
  drawStatus() {
    super.drawStatus();
    const stats = this.talk.messages.findLast((message) => message.stats)?.stats;
    this.drawMeter(this.talk.kind === "chat" ? stats : void 0);
  }
  /** How full the context is after the last answer. */
  drawMeter(stats) {
    const { context } = this.client;
    const used = stats ? stats.promptTokens + stats.tokens : 0;
    this.meter.hidden = !stats || !context || used === 0;
    if (this.meter.hidden) return;
    const text = `${used.toLocaleString()} of ${context.toLocaleString()} tokens of context`;
    const nearlyFull = used > 0.85 * context;
    this.meter.replaceChildren(
      h("meter", { min: 0, max: context, value: used, "aria-label": text }),
      h("span", { class: nearlyFull ? "warn" : "" }, text)
    );
  }
};
void new ServerPage().start();
