// Conversations as data: what one is, and what may be done with it. Nothing here shows or stores anything.

/** How an answer came about, for the line under it. */
export interface AnswerStats {
  promptTokens: number;
  cachedTokens: number; // of them, those that were still computed from the turn before
  tokens: number;
  perSecond: number;
  firstSeconds: number; // from the request to the first text
  device: string;
  model: string;
  dropped?: number; // messages that no longer fitted into the context
}
/** A text that goes with a message, or an image, whose text is ''. */
export interface AttachedFile {
  name: string;
  text: string;
  image?: string; // its file as a data: URL
}
/** 'cut': the page was closed. */
export type End = 'length' | 'stopped' | 'failed' | 'cut';
export interface ChatMessage {
  role: 'user' | 'assistant';
  content: string;
  files?: AttachedFile[];
  stats?: AnswerStats;
  end?: End; // left out: the model ended by itself
  error?: string;
}

/** 'chat': turns. 'text': one text that the model continues; its pieces are kept, to be taken back. */
export interface Conversation {
  id: string;
  kind: 'chat' | 'text';
  title: string;
  named: boolean; // by the user: the title is not made from the text any more
  created: number; // milliseconds since 1970, as Date.now()
  updated: number;
  model: string; // name of the one that was used last
  messages: ChatMessage[]; // chat
  text: string; // text
  pieces: number[]; // text: its length before each continuation
  revision: number; // how often it was stored
  writing: boolean; // when it was stored, an answer was being written
}

/** What the list shows of a conversation. */
export interface Summary {
  id: string;
  title: string;
  updated: number;
}
export const summaryOf = (talk: Conversation): Summary => ({
  id: talk.id,
  title: titleOf(talk),
  updated: talk.updated,
});

/** crypto.randomUUID is for secure contexts only, and a server in the house is none. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newConversation(kind: Conversation['kind'], now = Date.now()): Conversation {
  return {
    id: newId(),
    kind,
    title: '',
    named: false,
    created: now,
    updated: now,
    model: '',
    messages: [],
    text: '',
    pieces: [],
    revision: 0,
    writing: false,
  };
}

export const isEmpty = (talk: Conversation) => talk.messages.length === 0 && talk.text.trim() === '';

/** Whether `one` says all that `other` says, and perhaps goes on: its last answer may be longer, or followed by more. */
export function holds(one: Conversation, other: Conversation): boolean {
  if (one.kind !== other.kind || !one.text.startsWith(other.text)) return false;
  return other.messages.every((message, i) => {
    const own = one.messages[i];
    if (own?.role !== message.role || JSON.stringify(own.files) !== JSON.stringify(message.files)) return false;
    const mayGrow = message.role === 'assistant' && i === other.messages.length - 1;
    return mayGrow ? own.content.startsWith(message.content) : own.content === message.content;
  });
}

/** The first words of the text, or the name that the user gave. */
export function titleOf(talk: Conversation): string {
  if (talk.named && talk.title) return talk.title;
  const text =
    talk.kind === 'text'
      ? talk.text
      : (talk.messages.find((message) => message.role === 'user')?.content ?? '');
  const words = text
    .replace(/[#*_`>\[\]]+/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
  if (!words) return talk.kind === 'text' ? 'New text' : 'New chat';
  const letters = [...words];
  if (letters.length <= 48) return words;
  const front = letters.slice(0, 48).join('');
  const space = front.lastIndexOf(' ');
  return (space > 24 ? front.slice(0, space) : front) + '…';
}

/** What a reasoning model writes before its answer, between <think> and </think>; `open`: still writing it. */
export function splitThought(content: string): { thought: string; answer: string; open: boolean } {
  const match = /^\s*<think>/.exec(content);
  if (!match) return { thought: '', answer: content, open: false };
  const end = content.indexOf('</think>', match[0].length);
  if (end < 0) return { thought: content.slice(match[0].length).trim(), answer: '', open: true };
  return {
    thought: content.slice(match[0].length, end).trim(),
    answer: content.slice(end + '</think>'.length).trimStart(),
    open: false,
  };
}

/** A part of a message, in OpenAI's words. */
export type Part =
  | { type: 'text'; text: string }
  | { type: 'image_url'; image_url: { url: string } };

/** What a model is given: a text, or with images the parts that it stands between. */
export interface ModelMessage {
  role: 'system' | 'user' | 'assistant';
  content: string | Part[];
}

/**
 * What the model is given: the system prompt, then the turns. An answer that is still empty is left out,
 * and so is what it thought: templates drop it, and it would fill the context.
 */
export function messagesForModel(talk: Conversation, system: string): ModelMessage[] {
  const turns = talk.messages.map((message) => ({
    role: message.role,
    content: message.role === 'assistant' ? splitThought(message.content).answer : partsOf(message),
  }));
  while (turns.at(-1)?.role === 'assistant') turns.pop();
  const kept = turns.filter(
    ({ role, content }) => role === 'user' || (typeof content === 'string' && content.trim() !== ''),
  );
  return system.trim() ? [{ role: 'system', content: system.trim() }, ...kept] : kept;
}

/** The place of the last message of the user, which may be edited; -1 without one. */
export function lastUserIndex(talk: Conversation): number {
  return talk.messages.findLastIndex((message) => message.role === 'user');
}

/** Replaces the text of the user's last message, whose files stay; the answer to it goes. */
export function editLast(talk: Conversation, content: string): boolean {
  const at = lastUserIndex(talk);
  if (at < 0) return false;
  talk.messages.splice(at, talk.messages.length - at, { ...talk.messages[at]!, role: 'user', content });
  return true;
}

/** Takes the last answer away, so that another one may be made. */
export function dropAnswer(talk: Conversation): boolean {
  const at = lastUserIndex(talk);
  if (at < 0) return false;
  talk.messages.length = at + 1;
  return true;
}

// A fence that is longer than each one in the text.
function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((match) => match[0].length));
  return `${'`'.repeat(longest + 1)}\n${text}\n${'`'.repeat(longest + 1)}`;
}

/** A message with the texts that go with it, each in a fence under its name. */
function withFiles({ content, files = [] }: ChatMessage): string {
  const texts = files.filter(({ image }) => !image);
  return [...texts.map(({ name, text }) => `${name}:\n${fenced(text)}`), content].join('\n\n');
}

/** A message as the model is given it: its images, then its text. */
function partsOf(message: ChatMessage): string | Part[] {
  const images = (message.files ?? []).flatMap(({ image }): Part[] =>
    image ? [{ type: 'image_url', image_url: { url: image } }] : [],
  );
  const text = withFiles(message);
  return images.length ? [...images, { type: 'text', text }] : text;
}

/** Of a message for people: images are named. */
function told(message: ChatMessage): string {
  if (message.role === 'assistant') return splitThought(message.content).answer;
  const names = (message.files ?? []).flatMap(({ name, image }) => (image ? [`[${name}]`] : []));
  return [...names, withFiles(message)].join('\n\n');
}

/** For people and other programs. */
export function exportMarkdown(talk: Conversation, system: string): string {
  const head = [
    `# ${titleOf(talk)}`,
    `${new Date(talk.created).toISOString().slice(0, 16).replace('T', ' ')} UTC${talk.model ? `, ${talk.model}` : ''}`,
  ];
  if (talk.kind === 'text') return [...head, talk.text].join('\n\n') + '\n';
  if (system.trim()) head.push(`## System\n\n${fenced(system.trim())}`);
  const turns = talk.messages.map(
    (message) => `## ${message.role === 'user' ? 'You' : 'Model'}\n\n${told(message)}`,
  );
  return [...head, ...turns].join('\n\n') + '\n';
}

/** For this page: importJson reads it again. */
export function exportJson(talks: readonly Conversation[]): string {
  const conversations = talks.map(({ revision: _, writing: __, ...talk }) => talk);
  return JSON.stringify({ format: 'tern-chat', version: 1, conversations }, null, 2) + '\n';
}

/**
 * Reads what exportJson wrote. Files come from anywhere: all is checked, unknown members are dropped, and
 * each conversation gets an id of its own, so that none is replaced.
 */
export function importJson(text: string): Conversation[] {
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error('The file is not JSON.');
  }
  const { format, conversations } = (data ?? {}) as Record<string, unknown>;
  if (format !== 'tern-chat' || !Array.isArray(conversations))
    throw new Error('The file was not exported by this page.');
  return conversations.map(readConversation);
}

function readFiles(value: unknown): AttachedFile[] {
  return (Array.isArray(value) ? value : []).flatMap((item: unknown) => {
    const { name, text, image } = (item ?? {}) as Record<string, unknown>;
    if (typeof name !== 'string' || typeof text !== 'string') return [];
    if (image === undefined) return [{ name, text }];
    // No other address: what is shown asks nobody for anything.
    const isImage = typeof image === 'string' && /^data:image\/(png|jpeg|webp|gif);base64,/.test(image);
    return isImage ? [{ name, text, image }] : [];
  });
}

/** One of the database, perhaps stored by an older page. */
export function readStored(value: unknown): Conversation {
  const from = value as Partial<Conversation> & { id: string };
  const read = { ...newConversation(from.kind === 'text' ? 'text' : 'chat'), ...from };
  const isMessage = ({ role, content }: ChatMessage) =>
    (role === 'user' || role === 'assistant') && typeof content === 'string';
  if (!Array.isArray(read.messages) || !read.messages.every(isMessage))
    read.messages = (Array.isArray(read.messages) ? read.messages : []).filter((message) => message && isMessage(message));
  if (!Number.isFinite(read.updated)) read.updated = 0;
  if (!Number.isInteger(read.revision)) read.revision = 0;
  return read;
}

function readConversation(value: unknown): Conversation {
  const from = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  const text = (name: string) => (typeof from[name] === 'string' ? (from[name] as string) : '');
  const time = (name: string) =>
    Number.isFinite(from[name]) && Math.abs(from[name] as number) < 8e15
      ? (from[name] as number)
      : Date.now();
  const messages = (Array.isArray(from.messages) ? from.messages : []).flatMap(
    (item: unknown): ChatMessage[] => {
      const { role, content, files } = (item ?? {}) as Record<string, unknown>;
      if ((role !== 'user' && role !== 'assistant') || typeof content !== 'string') return [];
      const kept = readFiles(files);
      return [{ role, content, ...(kept.length && { files: kept }) }];
    },
  );
  const kind = from.kind === 'text' ? 'text' : 'chat';
  const body = text('text');
  const pieces = (Array.isArray(from.pieces) ? from.pieces : []).filter(
    (at: unknown): at is number =>
      Number.isInteger(at) && (at as number) >= 0 && (at as number) <= body.length,
  );
  return {
    ...newConversation(kind),
    title: text('title').slice(0, 200),
    named: from.named === true,
    created: time('created'),
    updated: time('updated'),
    model: text('model'),
    messages,
    text: body,
    pieces,
  };
}
