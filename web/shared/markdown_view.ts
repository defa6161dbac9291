// Shows a Markdown tree: elements of the parser's few kinds, text as text nodes. A text that grows is
// shown again and again; blocks that did not change keep their elements (and what is selected in them).
import { copyText, h, iconButton } from './dom.ts';
import { MarkdownNode, parseMarkdown } from './markdown.ts';

function build(item: MarkdownNode | string): Node {
  if (typeof item === 'string') return document.createTextNode(item);
  const { tag, attributes = {}, children } = item;
  const content = children.map(build);
  switch (tag) {
    case 'pre':
      return codeBlock(String(children[0] ?? ''), attributes.lang);
    case 'a':
      return h(
        'a',
        { href: attributes.href, rel: 'noopener noreferrer nofollow', target: '_blank' },
        ...content,
      );
    case 'ol':
      return h('ol', { start: attributes.start }, ...content);
    case 'th':
    case 'td':
      return h(tag, { class: attributes.align, scope: tag === 'th' ? 'col' : undefined }, ...content);
    case 'table':
      return h(
        'div',
        { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table' },
        h('table', null, ...content),
      );
    case 'task':
      return h('input', {
        type: 'checkbox',
        class: 'task',
        disabled: true,
        checked: attributes.checked,
        'aria-label': attributes.checked ? 'done' : 'open',
      });
    default:
      return h(tag, null, ...content);
  }
}

function codeBlock(text: string, language?: string): HTMLElement {
  const copy = iconButton('copy', 'Copy code', () => void copyText(text, copy), 'small');
  return h(
    'div',
    { class: 'code' },
    h('header', null, h('span', null, language ?? 'text'), copy),
    h('pre', { tabindex: 0 }, h('code', null, text)),
  );
}

export class MarkdownView {
  readonly element = h('div', { class: 'markdown' });
  private shown: string[] = [];

  show(text: string): void {
    const blocks = parseMarkdown(text);
    let same = 0;
    while (same < blocks.length && same < this.shown.length && blocks[same]!.source === this.shown[same])
      same++;
    while (this.element.childNodes.length > same) this.element.lastChild!.remove();
    for (const block of blocks.slice(same)) this.element.append(build(block.node));
    this.shown = blocks.map((block) => block.source);
  }
}
