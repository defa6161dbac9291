// An answer that comes in pieces, as sentences to be spoken: the first one as soon as it is whole.

const SHORT = 12; // letters: what is shorter ("Dr.", "1.") waits for what follows

export class Sentences {
  private text = '';

  /** What is whole with this piece. */
  push(piece: string): string[] {
    this.text += piece;
    const whole: string[] = [];
    const ends = /[.!?…]+["'”’)\]]*\s+|\n+/g;
    let from = 0;
    for (let match = ends.exec(this.text); match; match = ends.exec(this.text)) {
      const sentence = this.text.slice(from, ends.lastIndex).trim();
      if (sentence.length < SHORT && !match[0].includes('\n')) continue;
      from = ends.lastIndex;
      if (sentence) whole.push(sentence);
    }
    this.text = this.text.slice(from);
    return whole;
  }

  /** What is left when nothing follows. */
  end(): string[] {
    const rest = this.text.trim();
    this.text = '';
    return rest ? [rest] : [];
  }
}

/** Without the marks of Markdown, which nobody wants to hear. */
export function speakable(sentence: string): string {
  return sentence
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/^\s*(#+|[-*+]|>)\s+/gm, '')
    .replace(/[*_`~|]+/g, '')
    .trim();
}
