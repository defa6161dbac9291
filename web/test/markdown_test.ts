// The Markdown renderer: what it takes, and that no HTML, address or attribute of a hostile text gets through.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MarkdownNode, TAGS, parseMarkdown, safeHref } from '../shared/markdown.ts';

// The tree in short: <p>a <strong>b</strong></p>, as the view would make it.
const escape = (text: string) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');
function show(item: MarkdownNode | string): string {
  if (typeof item === 'string') return escape(item);
  const attributes = Object.entries(item.attributes ?? {})
    .map(([name, value]) => ` ${name}="${escape(String(value))}"`)
    .join('');
  return `<${item.tag}${attributes}>${item.children.map(show).join('')}</${item.tag}>`;
}
const html = (text: string) =>
  parseMarkdown(text)
    .map((block) => show(block.node))
    .join('')
    .replace(/<\/(br|hr|task)>/g, '');

function walk(item: MarkdownNode | string, visit: (node: MarkdownNode) => void): void {
  if (typeof item === 'string') return;
  visit(item);
  item.children.forEach((child) => walk(child, visit));
}

// Seen to fail, each row, with its rule taken out of the parser.
const CASES: [string, string][] = [
  ['one\ntwo', '<p>one<br>two</p>'],
  ['one\n\ntwo', '<p>one</p><p>two</p>'],
  ['# A *b*\ntext', '<h1>A <em>b</em></h1><p>text</p>'],
  ['####### no', '<p>####### no</p>'],
  ['#no', '<p>#no</p>'],
  ['## a# ##\n#\n# #', '<h2>a#</h2><h1></h1><h1></h1>'],
  ['a **b *c* d** e', '<p>a <strong>b <em>c</em> d</strong> e</p>'],
  ['***both***', '<p><em><strong>both</strong></em></p>'],
  ['**a*', '<p>*<em>a</em></p>'],
  ['2 * 3 * 4 and snake_case_name', '<p>2 * 3 * 4 and snake_case_name</p>'],
  ['_a_ ~~b~~ ~c~', '<p><em>a</em> <del>b</del> ~c~</p>'],
  ['`a *b* <i>` ``c`d``', '<p><code>a *b* &lt;i></code> <code>c`d</code></p>'],
  ['`open', '<p>`open</p>'],
  ['\\*a\\* \\q', '<p>*a* \\q</p>'],
  ['```js\nlet a = 1 < 2;\n\n```\nend', '<pre lang="js">let a = 1 &lt; 2;\n</pre><p>end</p>'],
  ['```\nstill writing', '<pre>still writing</pre>'],
  ['~~~~\n```\n~~~~', '<pre>```</pre>'],
  ['> a\nb\n> > c\n\nd', '<blockquote><p>a<br>b</p><blockquote><p>c</p></blockquote></blockquote><p>d</p>'],
  [
    '- a\n- b\n  - c\n\n    more\n- d',
    '<ul><li>a</li><li>b<ul><li>c<p>more</p></li></ul></li><li>d</li></ul>',
  ],
  ['3. a\n4. b', '<ol start="3"><li>a</li><li>b</li></ol>'],
  ['1. a\n   ```\n   x\n   ```\n2. b', '<ol><li>a<pre>x</pre></li><li>b</li></ol>'],
  ['1. a\n\n2. b\n\n3. c', '<ol><li>a</li><li>b</li><li>c</li></ol>'],
  ['- [x] done\n- [ ] not', '<ul><li><task checked="true">done</li><li><task checked="false">not</li></ul>'],
  ['- a\n\n1. b', '<ul><li>a</li></ul><ol><li>b</li></ol>'],
  ['text\n- a', '<p>text</p><ul><li>a</li></ul>'],
  ['In\n1986. What a year', '<p>In<br>1986. What a year</p>'],
  ['a\n***\nb', '<p>a</p><hr><p>b</p>'],
  [
    '| a | b |\n|:--|--:|\n| `1` | 2\\|3 |\n| x |',
    '<table><tr><th align="left">a</th><th align="right">b</th></tr>' +
      '<tr><td align="left"><code>1</code></td><td align="right">2|3</td></tr><tr><td align="left">x</td><td align="right"></td></tr></table>',
  ],
  ['a | b\nno table', '<p>a | b<br>no table</p>'],
  ['[t *e*](https://a.b/c_(d) "title")', '<p><a href="https://a.b/c_(d)">t <em>e</em></a></p>'],
  ['![cat](https://a.b/c.png)', '<p><a href="https://a.b/c.png">cat</a></p>'],
  [
    'see https://a.b/c. And (https://d.e/)',
    '<p>see <a href="https://a.b/c">https://a.b/c</a>. And (<a href="https://d.e/">https://d.e/</a>)</p>',
  ],
  ['<https://a.b> <b>x</b>', '<p><a href="https://a.b/">https://a.b</a> &lt;b>x&lt;/b></p>'],
  ['[a [b](https://c.d)](https://e.f)', '<p><a href="https://e.f/">a b</a></p>'],
  ['[a](javascript:alert(1))', '<p>[a](javascript:alert(1))</p>'],
  ['a\r\nb\tc', '<p>a<br>b\tc</p>'],
  ['', ''],
];
for (const [text, expected] of CASES)
  test(`markdown ${JSON.stringify(text)}`, () => assert.equal(html(text), expected));

// Seen to fail with javascript: among the schemes, and with white space left in addresses.
test('addresses', () => {
  for (const bad of [
    'javascript:alert(1)',
    'JaVaScRiPt:alert(1)',
    'java\nscript:alert(1)',
    '\u0001javascript:alert(1)',
    'data:text/html,x',
    'vbscript:x',
    'file:///etc/passwd',
    'blob:https://a/b',
    '//host/path',
    '/path',
    'relative',
    'https:',
    'https://',
    'http:///x/',
    ' javascript:alert(1)//http://a',
    'https://[',
    'mailto://x',
    'view-source:https://a',
  ])
    assert.equal(safeHref(bad), null, bad);
  assert.equal(safeHref('https://a.b/"onclick="x'), 'https://a.b/%22onclick=%22x');
  assert.equal(safeHref('htt\nps://a.b'), 'https://a.b/');
  assert.equal(safeHref('mailto:a@b.c'), 'mailto:a@b.c');
});

// A language that hostile texts are drawn from, and rules that hold for the tree of any text.
const HOSTILE = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  '<svg/onload=alert(1)>',
  '[x](javascript:alert(1))',
  '[x](<javascript:alert(1)>)',
  '![x](data:text/html;base64,PHN2Zz4=)',
  '<javascript:alert(1)>',
  '"><img src=x>',
  '`<b>`',
  '```html"><script>\n',
  '&lt;b&gt;',
  '\u202e',
  '\0',
  '<!-- -->',
  '<![CDATA[',
  '| <b> |\n|--|\n',
  '[',
  ']',
  '](',
  '*',
  '**',
  '_',
  '~~',
  '`',
  '``',
  '> ',
  '- ',
  '1. ',
  '\n',
  '\n\n',
  '    ',
  'https://a.b/"><script>',
  'mailto:"onmouseover="',
  '<a href="javascript:x">',
  '\\',
  '# ',
  '|',
  ':--',
  '[ ] ',
  'é',
  '\ud800',
  'text ',
];
function check(text: string): void {
  for (const block of parseMarkdown(text)) {
    walk(block.node, (item) => {
      assert.ok((TAGS as readonly string[]).includes(item.tag), item.tag);
      for (const [name, value] of Object.entries(item.attributes ?? {})) {
        if (name === 'href') assert.match(String(value), /^(https?:\/\/[^/]|mailto:)/);
        else if (name === 'lang') assert.match(String(value), /^[\w+#.-]{1,30}$/);
        else if (name === 'align') assert.match(String(value), /^(left|right|center)$/);
        else if (name === 'start') assert.ok(Number.isInteger(value));
        else assert.ok(name === 'checked' && typeof value === 'boolean', name);
      }
    });
  }
}
// Seen to fail with a fence's whole info taken as its language.
test('nothing but its own elements, attributes and addresses, whatever the text', () => {
  let seed = 1;
  const random = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
  for (const text of HOSTILE) check(text);
  for (let i = 0; i < 4000; i++)
    check(Array.from({ length: 1 + random(12) }, () => HOSTILE[random(HOSTILE.length)]).join(''));
});

// Seen to fail with brackets that open tried again at each closing one, and with no bound on nesting.
test('long hostile texts take no more than a moment', () => {
  const n = 30000;
  for (const text of [
    '['.repeat(n),
    '[a]('.repeat(n / 4),
    '*a '.repeat(n / 3),
    '**a*'.repeat(n / 4),
    '_'.repeat(n),
    '>'.repeat(n),
    '- '.repeat(n / 2),
    '`a``'.repeat(n / 4),
    Array.from({ length: 400 }, (_, i) => '`'.repeat(i)).join(' '),
    '|'.repeat(n),
    '| a '.repeat(n / 4) + '\n' + '|-'.repeat(n / 2),
    '](x'.repeat(n / 3),
    '<'.repeat(n),
    'https://'.repeat(n / 8),
    '\\'.repeat(n),
    '\n- a'.repeat(n / 4),
    '\n> a'.repeat(n / 4),
    '~~a'.repeat(n / 3),
    '*_'.repeat(n / 2),
    '[*'.repeat(n / 2) + '*]'.repeat(n / 2),
    '- a\n\n'.repeat(n / 5),
    '- a' + '\n'.repeat(n),
    '#'.repeat(n),
    '# ' + '#'.repeat(n) + 'a',
    '- '.repeat(10) + 'a\n'.repeat(n / 2),
    '-'.repeat(n) + 'a',
    '* '.repeat(n / 2) + 'a',
    '|-'.repeat(n / 2) + 'a|\n' + '|-'.repeat(n / 2) + 'a',
    ' '.repeat(n) + 'a',
    '# a' + ' '.repeat(n) + 'b',
    '*'.repeat(3) + 'a*b'.repeat(n / 3),
  ]) {
    const from = process.cpuUsage(); // a busy machine takes longer for anything
    parseMarkdown(text);
    const took = process.cpuUsage(from).user / 1000;
    assert.ok(took < 1500, `${JSON.stringify(text.slice(0, 12))}... took ${took.toFixed(0)} ms`);
  }
});

test('a growing text keeps its finished blocks', () => {
  const text = '# One\n\nSome *text* here.\n\n```js\nlet a;\n```\n\n- a\n- b\n\nEnd';
  const blocks = parseMarkdown(text);
  for (let n = 1; n < text.length; n++) {
    const part = parseMarkdown(text.slice(0, n));
    // All but the last block of any front are blocks of the whole.
    part.slice(0, -1).forEach((block, i) => assert.equal(block.source, blocks[i]!.source));
  }
});
