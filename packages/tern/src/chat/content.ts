// The content of messages: texts and images.
import type { ChatMessage, ContentPart } from '../api.js';
import type { Message } from '../engine/types.js';
import { TernError } from '../errors.js';
import { portableImage } from '../images.js';
import type { ImageInput, TextInput } from '../protocol.js';

const LOW = 512 * 512; // pixels, of detail: 'low'

// Content as templates take it: a text or, if there are images, parts. The images are added to the list.
export function contentOf(content: unknown, where: string, isUser: boolean, images: ImageInput[]): string | object[] {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) throw new TernError('argument', `${where}: content must be a text, or parts`);
  const parts = (content as ContentPart[]).map(part => {
    if (part.type === 'text') return { type: 'text', text: part.text ?? '' };
    if (part.type !== 'image_url' && part.type !== 'image')
      throw new TernError('unsupported', `${where}: a part of type ${String((part as { type: unknown }).type)} is not supported`);
    if (!isUser) throw new TernError('argument', `${where}: only messages of the user have images`);
    images.push(imageOf(part, where));
    return { type: 'image' };
  });
  return parts.some(({ type }) => type === 'image') ? parts : parts.map(({ text }) => text ?? '').join('');
}

function imageOf(part: Exclude<ContentPart, { type: 'text' }>, where: string): ImageInput {
  const { url, detail } = part.type === 'image' ? { url: part.image, detail: undefined } : part.image_url ?? {};
  if (!url) throw new TernError('argument', `${where}: an image has no ${part.type === 'image' ? 'image' : 'image_url.url'}`);
  return { image: portableImage(url), maxPixels: detail === 'low' ? LOW : 0 };
}

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool'];

// A role as templates know it.
export function roleOf(role: unknown, where: string): string {
  if (!ROLES.includes(role as string))
    throw new TernError('argument', `${where}: there is no role ${JSON.stringify(role)}; it is one of ${ROLES.join(', ')}`);
  return role === 'developer' ? 'system' : role as string;
}

// The input of a conversation under this package's names.
export function chatInput(messages: readonly ChatMessage[]): TextInput {
  const images: ImageInput[] = [];
  const plain = messages.map(({ role, content }, i) =>
    ({ role: roleOf(role, `messages[${i}]`), content: contentOf(content, `messages[${i}]`, role === 'user', images) }));
  return images.length > 0 ? { request: { messages: plain }, images } : { messages: plain as Message[] };
}
