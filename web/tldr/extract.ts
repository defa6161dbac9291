// The text of a page's article: what a person would read, without menus, buttons and notices. Works on as
// much of the DOM's interface as it needs (PageElement), so that it can be tested without a browser.

export interface PageText {
  nodeType: 3;
  textContent: string | null;
}
export interface PageElement {
  nodeType: 1;
  tagName: string;
  childNodes: ArrayLike<PageText | PageElement | { nodeType: number }>;
  getAttribute(name: string): string | null;
}

const LEFT_OUT = new Set([
  'SCRIPT',
  'STYLE',
  'NOSCRIPT',
  'TEMPLATE',
  'NAV',
  'FOOTER',
  'ASIDE',
  'FORM',
  'BUTTON',
  'SELECT',
  'TEXTAREA',
  'INPUT',
  'SVG',
  'CANVAS',
  'IFRAME',
  'VIDEO',
  'AUDIO',
  'OBJECT',
  'DIALOG',
  'MENU',
  'MATH',
  'HEAD',
  'LINK',
  'META',
  'IMG',
  'IMAGE',
]);
const LEFT_OUT_ROLES = new Set([
  'navigation',
  'banner',
  'contentinfo',
  'complementary',
  'search',
  'dialog',
  'alert',
  'menu',
  'toolbar',
  'button',
  'tablist',
]);
const BLOCKS = new Set([
  'P',
  'LI',
  'PRE',
  'BLOCKQUOTE',
  'DD',
  'DT',
  'H1',
  'H2',
  'H3',
  'H4',
  'H5',
  'H6',
  'FIGCAPTION',
  'TR',
  'CAPTION',
  'SUMMARY',
  'DIV',
  'SECTION',
  'ARTICLE',
  'MAIN',
  'BODY',
  'HEADER',
  'UL',
  'OL',
  'DL',
  'TABLE',
  'TBODY',
  'THEAD',
  'FIGURE',
  'DETAILS',
  'ADDRESS',
  'CENTER',
  'HR',
]);
// Names that say that a part is not of the article. Whole words: "download" is not "ad".
const ASIDE_NAMES =
  /(^|[\s_-])(nav(bar|igation)?|menu|sidebar|breadcrumbs?|footer|comments?|related|share|sharing|social|promo|ads?|advert\w*|cookies?|consent|newsletter|subscribe|toc|skip|pagination|banner|popup|modal)([\s_-]|$)/i;

const isElement = (node: { nodeType: number }): node is PageElement => node.nodeType === 1;
const isText = (node: { nodeType: number }): node is PageText => node.nodeType === 3;

function isLeftOut(element: PageElement): boolean {
  const tag = element.tagName.toUpperCase();
  if (LEFT_OUT.has(tag)) return true;
  if (
    element.getAttribute('hidden') !== null ||
    element.getAttribute('aria-hidden') === 'true' ||
    element.getAttribute('data-tldr') === 'skip'
  )
    return true;
  if (LEFT_OUT_ROLES.has(element.getAttribute('role') ?? '')) return true;
  if (/(^|;)\s*(display:\s*none|visibility:\s*hidden)/i.test(element.getAttribute('style') ?? ''))
    return true;
  if (tag === 'BODY' || tag === 'ARTICLE' || tag === 'MAIN') return false;
  return ASIDE_NAMES.test(`${element.getAttribute('class') ?? ''} ${element.getAttribute('id') ?? ''}`);
}

// Bounds for pages that are made to hurt: so deep, so many nodes.
const MAX_DEPTH = 256;
const MAX_NODES = 200000;

interface Block {
  text: string;
  tag: string;
  links: number;
  path: PageElement[];
}

// The page as a list of blocks of text, in reading order, each with the elements around it.
class Reader {
  readonly blocks: Block[] = [];
  private text = '';
  private links = 0;
  private nodes = 0;

  read(element: PageElement, path: PageElement[], tag: string, inLink: boolean): void {
    if (path.length > MAX_DEPTH) return;
    for (let i = 0; i < element.childNodes.length; i++) {
      const child = element.childNodes[i]!;
      if (++this.nodes > MAX_NODES) return;
      if (isText(child)) {
        const text = child.textContent ?? '';
        this.text += text;
        if (inLink) this.links += text.trim().length;
      } else if (isElement(child) && !isLeftOut(child)) this.element(child, path, tag, inLink);
    }
  }

  private element(child: PageElement, path: PageElement[], tag: string, inLink: boolean): void {
    const name = child.tagName.toUpperCase();
    if (name === 'BR') {
      this.text += '\n';
      return;
    }
    if (name === 'TD' || name === 'TH') this.text += ' ';
    if (!BLOCKS.has(name)) return this.read(child, path, tag, inLink || name === 'A');
    this.flush(tag, path);
    const inner = [...path, child];
    this.read(child, inner, name, inLink);
    this.flush(name, inner);
  }

  flush(tag: string, path: PageElement[]): void {
    const text =
      tag === 'PRE'
        ? this.text.replace(/^\n+|\s+$/g, '')
        : this.text
            .replace(/[^\S\n]+/g, ' ')
            .replace(/ ?\n[\s]*/g, tag === 'TR' ? ' ' : '\n')
            .trim();
    if (text) this.blocks.push({ text, tag, links: this.links, path });
    this.text = '';
    this.links = 0;
  }
}

// How much a block says: its letters, unless it is mostly links or a fragment.
function weight({ text, tag, links }: Block): number {
  const linked = links / text.length;
  if (linked > 0.5) return 0;
  if (/^H[1-6]$/.test(tag)) return 5;
  const length = Math.min(text.length, 1500);
  return (length < 40 ? length / 8 : length) * (1 - linked);
}

// The element that holds most of the text without holding much else: what is lost by going into a child
// must be little.
function findArticle(root: PageElement, blocks: Block[]): PageElement {
  const sums = new Map<PageElement, number>();
  for (const block of blocks) {
    const value = weight(block);
    for (const element of block.path) sums.set(element, (sums.get(element) ?? 0) + value);
  }
  const total = blocks.reduce((sum, block) => sum + weight(block), 0);
  // A page that marks its article is believed, if a good part of the text is there.
  for (const tag of ['ARTICLE', 'MAIN']) {
    const marked = [...sums].filter(
      ([element]) =>
        element.tagName.toUpperCase() === tag || element.getAttribute('role') === tag.toLowerCase(),
    );
    marked.sort((a, b) => b[1] - a[1]);
    if (marked[0] && marked[0][1] > total * 0.35) return marked[0][0];
  }
  let best = root,
    found = total;
  for (const [element, sum] of sums) {
    // Later ones lie deeper, as they are met on the way in.
    if (sum >= found * 0.75) {
      best = element;
      found = Math.min(found, sum);
    }
  }
  return best;
}

/** The article's blocks of text; empty if there is hardly any. */
export function extractArticle(root: PageElement): string[] {
  const reader = new Reader();
  reader.read(root, [root], 'BODY', false);
  reader.flush('BODY', [root]);
  const article = findArticle(root, reader.blocks);
  const seen = new Set<string>();
  const texts = reader.blocks
    .filter((block) => block.path.includes(article) && weight(block) > 0)
    .map(({ tag, text }) => (tag === 'LI' ? `- ${text}` : text))
    .filter((text) => !seen.has(text) && seen.add(text)); // pages say some things twice
  return texts.join('').length < 80 ? [] : texts;
}

// Ends of sentences, also of languages that put no space after them.
const sentences = (text: string) => text.match(/[^.!?。！？]+(?:[.!?。！？]+["”’)]*\s*|$)/g) ?? [text];

export interface Cut {
  text: string;
  share: number;
} // share: of the letters that are left, 0..1

/**
 * As much of the blocks' front as has at most `budget` tokens by `count`: whole blocks, then whole sentences
 * of the next one, if nothing else fits its first letters. Asks `count` a few times, not once a block.
 */
export async function cutToTokens(
  blocks: readonly string[],
  budget: number,
  count: (text: string) => Promise<number> | number,
): Promise<Cut> {
  const whole = blocks.join('\n\n');
  if (budget <= 0 || !whole) return { text: '', share: 0 };
  if ((await count(whole)) <= budget) return { text: whole, share: 1 };
  // The largest n of 0..most for which the text of n parts fits.
  const largest = async (most: number, text: (n: number) => string) => {
    let low = 0,
      high = most;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((await count(text(middle))) <= budget) low = middle;
      else high = middle - 1;
    }
    return low;
  };
  const n = await largest(blocks.length, (k) => blocks.slice(0, k).join('\n\n'));
  const front = blocks.slice(0, n).join('\n\n');
  const parts = sentences(blocks[n] ?? '');
  const glue = front ? front + '\n\n' : '';
  const m = await largest(parts.length, (k) => glue + parts.slice(0, k).join(''));
  let text = (m > 0 ? glue + parts.slice(0, m).join('') : front).trim();
  if (!text) {
    const letters = [...whole];
    text = letters.slice(0, await largest(letters.length, (k) => letters.slice(0, k).join(''))).join('');
  }
  return { text, share: Math.min(1, text.length / whole.length) };
}
