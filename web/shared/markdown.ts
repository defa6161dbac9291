// The Markdown that models write, as a tree of few kinds of elements. HTML is never made: text stays text,
// and what shows the tree (markdown_view.ts) creates the elements named here and sets their text. So
// nothing that a model writes becomes an element, an attribute or an address other than those below:
// - tags are those of TAGS, attributes those of `Attributes`;
// - addresses are http, https or mailto; images become links, so that nothing is loaded unasked.
//
// Taken: paragraphs (a line's end is a line break: models mean it), headings, fenced code, quotes, lists
// (nested, with tasks), tables, rules; code, strong, emphasis, strikethrough, links, bare addresses,
// escapes. A fence that is not closed yet is code to the end, so a text can be shown while it grows.
// Times grow with the text's length: what nests is bounded, and a bracket that opens is tried once.

export const TAGS = [
  'p',
  'h1',
  'h2',
  'h3',
  'h4',
  'h5',
  'h6',
  'pre',
  'blockquote',
  'ul',
  'ol',
  'li',
  'hr',
  'table',
  'tr',
  'th',
  'td',
  'code',
  'strong',
  'em',
  'del',
  'a',
  'br',
  'task',
] as const;
export type Tag = (typeof TAGS)[number];

export interface Attributes {
  href?: string; // a: checked
  lang?: string; // pre: letters, digits and + # . - _
  start?: number; // ol
  align?: 'left' | 'center' | 'right'; // th, td
  checked?: boolean; // task, the box of a list's item
}
export interface MarkdownNode {
  tag: Tag;
  attributes?: Attributes;
  children: (MarkdownNode | string)[];
}
// `source`: the lines it was made of; equal ones give equal nodes, so that a view keeps what is the same.
export interface MarkdownBlock {
  source: string;
  node: MarkdownNode;
}

const MAX_DEPTH = 8; // quotes and lists in each other; what is deeper is text
const node = (tag: Tag, children: (MarkdownNode | string)[], attributes?: Attributes): MarkdownNode =>
  attributes ? { tag, attributes, children } : { tag, children };

// The address, if it may be a link's.
export function safeHref(address: string): string | null {
  // What a browser drops from addresses could hide their scheme: "java\nscript:".
  const text = address.replace(/[\u0000-\u0020\u007f-\u00a0\u200b-\u200f\u2028-\u202e\ufeff]/g, '');
  if (!/^(https?:\/\/[^/]|mailto:[^/])/i.test(text)) return null;
  try {
    const url = new URL(text);
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

// ---- Blocks -----------------------------------------------------------------------------------------

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)(.*)$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)/;
const DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const isBlank = (line: string) => !/\S/.test(line);
const indentOf = (line: string) => /^ */.exec(line)![0].length;

// Without the marks that may close a heading: "# A #".
function headingText(rest: string): string {
  const text = rest.trim();
  let end = text.length;
  while (text[end - 1] === '#') end--;
  return end === 0 || /[ \t]/.test(text[end - 1]!) ? text.slice(0, end).trimEnd() : text;
}

class BlockReader {
  private at = 0;
  constructor(
    private readonly lines: string[],
    private readonly depth: number,
  ) {}

  read(): MarkdownBlock[] {
    const blocks: MarkdownBlock[] = [];
    while (this.at < this.lines.length) {
      if (isBlank(this.lines[this.at]!)) {
        this.at++;
        continue;
      }
      const from = this.at;
      const made = this.block();
      blocks.push({ source: this.lines.slice(from, this.at).join('\n'), node: made });
    }
    return blocks;
  }

  private block(): MarkdownNode {
    const line = this.lines[this.at]!;
    const nests = this.depth < MAX_DEPTH;
    const fence = FENCE.exec(line);
    if (fence) return this.code(fence[1]!, fence[2]!, indentOf(line));
    const heading = HEADING.exec(line);
    if (heading) {
      this.at++;
      return node(`h${heading[1]!.length}` as Tag, inline(headingText(heading[2]!)));
    }
    if (RULE.test(line)) {
      this.at++;
      return node('hr', []);
    }
    if (nests && QUOTE.test(line)) return this.quote();
    if (nests && ITEM.test(line)) return this.list();
    if (this.startsTable()) return this.table();
    return this.paragraph();
  }

  private code(mark: string, info: string, indent: number): MarkdownNode {
    const body: string[] = [];
    this.at++;
    const end = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}[ \\t]*$`);
    while (this.at < this.lines.length) {
      const line = this.lines[this.at++]!;
      if (end.test(line)) break;
      body.push(line.slice(Math.min(indentOf(line), indent)));
    }
    const lang = /^[\w+#.-]{1,30}/.exec(info.trim())?.[0];
    return node('pre', [body.join('\n')], lang ? { lang } : undefined);
  }

  private quote(): MarkdownNode {
    const inner: string[] = [];
    while (this.at < this.lines.length) {
      const line = this.lines[this.at]!;
      // A line without the mark goes on with the quote's paragraph.
      if (!QUOTE.test(line) && (isBlank(line) || this.startsOther(line) || isBlank(inner.at(-1)!))) break;
      inner.push(line.replace(QUOTE, ''));
      this.at++;
    }
    return node('blockquote', nodes(inner, this.depth + 1));
  }

  private list(): MarkdownNode {
    const first = ITEM.exec(this.lines[this.at]!)!;
    const ordered = /\d/.test(first[2]!);
    const kind = first[2]!.at(-1)!; // another bullet begins another list
    const items: MarkdownNode[] = [];
    while (this.at < this.lines.length) {
      const match = ITEM.exec(this.lines[this.at]!);
      if (
        !match ||
        match[2]!.at(-1) !== kind ||
        match[1]!.length > first[1]!.length + 3 ||
        RULE.test(this.lines[this.at]!)
      )
        break;
      items.push(this.item(match));
    }
    const start = ordered ? parseInt(first[2]!, 10) : 1;
    return node(ordered ? 'ol' : 'ul', items, ordered && start !== 1 ? { start } : undefined);
  }

  private item(match: RegExpExecArray): MarkdownNode {
    const inner = [this.lines[this.at]!.slice(match[0].length)];
    // What belongs to the item stands two columns or more to the right of its mark.
    const column = Math.max(match[1]!.length + 2, Math.min(match[0].length, match[1]!.length + 4));
    this.at++;
    while (this.at < this.lines.length) {
      const line = this.lines[this.at]!;
      if (isBlank(line)) {
        const next = this.lines.slice(this.at + 1, this.at + 20).find((text) => !isBlank(text));
        const further = ITEM.exec(next ?? '');
        if (next === undefined || (indentOf(next) < match[1]!.length + 2 && !further)) break;
        if (further && further[1]!.length < match[1]!.length + 2) {
          this.skipBlank();
          break;
        }
      } else if (
        indentOf(line) < match[1]!.length + 2 &&
        (ITEM.test(line) || this.startsOther(line) || isBlank(inner.at(-1)!))
      )
        break;
      inner.push(line.slice(Math.min(indentOf(line), column)));
      this.at++;
    }
    const task = /^\[([ xX])\][ \t]+/.exec(inner[0]!);
    if (task) inner[0] = inner[0]!.slice(task[0].length);
    const children = tight(nodes(inner, this.depth + 1));
    if (task) children.unshift(node('task', [], { checked: task[1] !== ' ' }));
    return node('li', children);
  }

  private skipBlank(): void {
    while (this.at < this.lines.length && isBlank(this.lines[this.at]!)) this.at++;
  }

  private startsTable(): boolean {
    const next = this.lines[this.at + 1];
    return (
      next !== undefined &&
      this.lines[this.at]!.includes('|') &&
      next.includes('-') &&
      DELIMITER_ROW.test(next) &&
      cells(this.lines[this.at]!).length === cells(next).length
    );
  }

  private table(): MarkdownNode {
    const head = cells(this.lines[this.at]!);
    const aligns = cells(this.lines[this.at + 1]!).map((text) => {
      const [left, right] = [text.startsWith(':'), text.endsWith(':')];
      return left && right ? 'center' : right ? 'right' : left ? 'left' : undefined;
    });
    const row = (tag: 'th' | 'td', texts: string[]) =>
      node(
        'tr',
        head.map((_, i) => node(tag, inline(texts[i] ?? ''), aligns[i] ? { align: aligns[i] } : undefined)),
      );
    const rows = [row('th', head)];
    this.at += 2;
    while (
      this.at < this.lines.length &&
      !isBlank(this.lines[this.at]!) &&
      this.lines[this.at]!.includes('|')
    ) {
      rows.push(row('td', cells(this.lines[this.at++]!)));
    }
    return node('table', rows);
  }

  private paragraph(): MarkdownNode {
    const lines = [this.lines[this.at++]!.trimStart()];
    while (this.at < this.lines.length) {
      const line = this.lines[this.at]!;
      if (isBlank(line) || this.startsOther(line) || this.startsTable()) break;
      lines.push(line.trimStart());
      this.at++;
    }
    return node('p', inline(lines.join('\n').trimEnd()));
  }

  // Whether a line ends a paragraph by beginning something else.
  private startsOther(line: string): boolean {
    if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
    if (this.depth >= MAX_DEPTH) return false;
    const item = ITEM.exec(line);
    // "1986. What a year" is no list: only 1 interrupts.
    return (
      QUOTE.test(line) ||
      (item !== null && item[0].length < line.length && (!/\d/.test(item[2]!) || /^1[.)]/.test(item[2]!)))
    );
  }
}

// An item that is one paragraph is shown without the paragraph's margins.
function tight(children: MarkdownNode[]): (MarkdownNode | string)[] {
  return children[0]?.tag === 'p' ? [...children[0].children, ...children.slice(1)] : children;
}

function cells(line: string): string[] {
  const parts = line
    .trim()
    .replace(/^\|/, '')
    .replace(/(^|[^\\])\|$/, '$1')
    .split(/(?<!\\)\|/);
  return parts.slice(0, 50).map((text) => text.replace(/\\\|/g, '|').trim());
}

const nodes = (lines: string[], depth: number) =>
  new BlockReader(lines, depth).read().map((block) => block.node);

/** The blocks of a text. */
export function parseMarkdown(text: string): MarkdownBlock[] {
  const lines = text.replace(/\r\n?/g, '\n').replace(/\0/g, '\ufffd').split('\n');
  return new BlockReader(
    lines.map((line) => line.replace(/^[ \t]*\t[ \t]*/, (white) => white.replace(/\t/g, '    '))),
    0,
  ).read();
}

// ---- Inside a block ---------------------------------------------------------------------------------

interface Opener {
  mark: string;
  at: number;
  index: number;
} // `at`: place among the pieces
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const BARE = /^https?:\/\/[^\s<>"'`]+/i;
const WORD = /[\p{L}\p{N}]/u;

class InlineReader {
  private pieces: (MarkdownNode | string)[] = [];
  private openers: Opener[] = [];
  private text = '';
  private i = 0;
  constructor(private readonly source: string) {}

  read(): (MarkdownNode | string)[] {
    while (this.i < this.source.length) this.step();
    this.flush();
    return merge(this.pieces);
  }

  private flush(): void {
    if (this.text) this.pieces.push(this.text);
    this.text = '';
  }
  private push(made: MarkdownNode | string): void {
    this.flush();
    this.pieces.push(made);
  }

  private step(): void {
    const c = this.source[this.i]!;
    switch (c) {
      case '\\':
        return this.escape();
      case '\n':
        this.text = this.text.trimEnd();
        this.push(node('br', []));
        this.i++;
        return;
      case '`':
        return this.ticks();
      case '*':
      case '_':
      case '~':
        return this.emphasis(c);
      case '!':
        if (this.source[this.i + 1] !== '[') break; // an image: its text, as a link
        return this.open('![');
      case '[':
        return this.open('[');
      case ']':
        return this.bracket();
      case '<':
        return this.angle();
      case 'h':
      case 'H':
        return this.bare();
    }
    this.text += c;
    this.i++;
  }

  private escape(): void {
    const next = this.source[this.i + 1];
    if (next === '\n') {
      this.push(node('br', []));
      this.i += 2;
      return;
    }
    const escapes = next !== undefined && PUNCTUATION.test(next);
    this.text += escapes ? next : '\\';
    this.i += escapes ? 2 : 1;
  }

  private run(c: string): number {
    let n = 1;
    while (this.source[this.i + n] === c) n++;
    return n;
  }

  private ticks(): void {
    const n = this.run('`');
    const from = this.i + n;
    // A search that fails is for the last mark of its length: there are few.
    let end = from;
    for (let length = 0; end >= 0; end += length) {
      end = this.source.indexOf('`', end);
      if (end < 0) break;
      length = 1;
      while (this.source[end + length] === '`') length++;
      if (length === n) break;
    }
    if (end < 0) {
      this.text += '`'.repeat(n);
      this.i = from;
      return;
    }
    const code = this.source.slice(from, end).replace(/\n/g, ' ');
    this.push(node('code', [/^ .* $/.test(code) && /[^ ]/.test(code) ? code.slice(1, -1) : code]));
    this.i = end + n;
  }

  private emphasis(c: string): void {
    const n = this.run(c);
    const [before, after] = [this.source[this.i - 1] ?? ' ', this.source[this.i + n] ?? ' '];
    const inWord = c === '_' && WORD.test(before) && WORD.test(after); // snake_case
    const opens = !/\s/.test(after) && !(PUNCTUATION.test(after) && WORD.test(before)) && !inWord;
    const closes = !/\s/.test(before) && !(PUNCTUATION.test(before) && WORD.test(after)) && !inWord;
    this.i += n;
    let left = n > 3 || (c === '~' && n !== 2) ? 0 : n;
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
  private closeMarks(c: string, left: number): number {
    while (left > 0) {
      let k = this.openers.length - 1;
      while (k >= 0 && this.openers[k]!.mark[0] !== c && !this.openers[k]!.mark.endsWith('[')) k--;
      const opener = this.openers[k];
      if (!opener || opener.mark[0] !== c) break;
      const used = Math.min(left, opener.mark.length, 2);
      if (c === '~' && used !== 2) break;
      this.flush();
      const inside = this.pieces.splice(opener.at + 1);
      this.openers.length = k;
      const rest = opener.mark.length - used;
      this.pieces.pop();
      if (rest > 0) {
        this.openers.push({ ...opener, mark: c.repeat(rest) });
        this.pieces.push(c.repeat(rest));
      }
      this.pieces.push(node(c === '~' ? 'del' : used === 2 ? 'strong' : 'em', merge(inside)));
      left -= used;
    }
    return left;
  }

  private open(mark: string): void {
    this.flush();
    this.i += mark.length;
    this.openers.push({ mark, at: this.pieces.length, index: this.i });
    this.pieces.push(mark);
  }

  private bracket(): void {
    let k = this.openers.length - 1;
    while (k >= 0 && !this.openers[k]!.mark.endsWith('[')) k--;
    const opener = this.openers[k];
    this.i++;
    const to =
      opener &&
      /^\(\s{0,3}(?:<([^<>\n]{0,2000})>|([^\s()<>]{0,2000}(?:\([^\s()<>]{0,200}\)[^\s()<>]{0,2000})?))(?:\s{1,3}(?:"[^"\n]{0,500}"|'[^'\n]{0,500}'))?\s{0,3}\)/.exec(
        this.source.slice(this.i, this.i + 5000),
      );
    const href = to ? safeHref(to[1] ?? to[2] ?? '') : null;
    if (opener) this.openers.length = k; // an opener is tried once
    if (!opener || !to || !href) {
      this.text += ']';
      return;
    }
    this.flush();
    const inside = merge(this.pieces.splice(opener.at + 1));
    this.pieces.pop();
    this.i += to[0].length;
    this.pieces.push(node('a', inside.length ? withoutLinks(inside) : [href], { href }));
  }

  private link(address: string, length: number): boolean {
    const href = safeHref(address);
    if (!href) return false;
    this.push(node('a', [address], { href }));
    this.i += length;
    return true;
  }

  private angle(): void {
    const match = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/i.exec(
      this.source.slice(this.i, this.i + 2020),
    );
    if (match && this.link(match[1]!, match[0].length)) return;
    const br = /^<br\s?\/?>/i.exec(this.source.slice(this.i, this.i + 7)); // in tables models write it
    if (br) {
      this.push(node('br', []));
      this.i += br[0].length;
      return;
    }
    this.text += '<';
    this.i++;
  }

  private bare(): void {
    const match = WORD.test(this.source[this.i - 1] ?? ' ')
      ? null
      : BARE.exec(this.source.slice(this.i, this.i + 2000));
    if (match) {
      let address = match[0].replace(/[.,;:!?*_~\]]+$/, '');
      if (address.endsWith(')') && !address.includes('(')) address = address.replace(/[).,;:!?]+$/, '');
      if (this.link(address, address.length)) return;
    }
    this.text += this.source[this.i++];
  }
}

// A link in a link is its text.
function withoutLinks(children: (MarkdownNode | string)[]): (MarkdownNode | string)[] {
  return merge(
    children.flatMap((child) =>
      typeof child === 'string'
        ? [child]
        : child.tag === 'a'
          ? withoutLinks(child.children)
          : [{ ...child, children: withoutLinks(child.children) }],
    ),
  );
}

function merge(pieces: (MarkdownNode | string)[]): (MarkdownNode | string)[] {
  const merged: (MarkdownNode | string)[] = [];
  let texts: string[] = [];
  const flush = () => {
    if (texts.length) merged.push(texts.join(''));
    texts = [];
  };
  for (const piece of pieces) {
    if (typeof piece === 'string') texts.push(piece);
    else {
      flush();
      merged.push(piece);
    }
  }
  flush();
  return merged;
}

function inline(source: string): (MarkdownNode | string)[] {
  return new InlineReader(source).read();
}
