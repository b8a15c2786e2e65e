// Pictures that will go with the next message, as data URLs.
import { element, iconButton } from './dom.js';

const KINDS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];
const BYTES_MAX = 20 * 2 ** 20;  // bytes of one picture by the server's default; here of all
const PICTURES_MAX = 8;  // pictures of a request, which holds the whole conversation

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

const bytesOf = (urls) => urls.reduce((sum, url) => sum + (url.length - url.indexOf(',') - 1) * 3 / 4, 0);

/// The problem of a request with the pictures `sent` before and `pictures`, or ''.
export function tooManyPictures(sent, pictures) {
  if (sent.length + pictures.length > PICTURES_MAX)
    return `a conversation takes ${PICTURES_MAX} pictures at most: begin a new one, or leave some out`;
  if (bytesOf(sent) + bytesOf(pictures) > BYTES_MAX)
    return 'the pictures of a conversation are too large: 20 MB at most, all together';
  return '';
}

/// Adds the files to `pictures`, beside those that the conversation `sent` before. Returns why one
/// was left out, or ''.
export async function attachPictures(files, pictures, sent) {
  for (const file of files) {
    if (!KINDS.includes(file.type)) return `${file.name || 'the file'} is no PNG, JPEG, WebP or GIF picture`;
    if (file.size > BYTES_MAX) return `${file.name || 'the picture'} is too large: 20 MB at most`;
    const url = await dataUrl(file);
    const problem = tooManyPictures(sent, [...pictures, url]);
    if (problem) return problem;
    pictures.push(url);
  }
  return '';
}

/// Small views of the pictures, each with a button that takes it away.
export function pictureTray(pictures, changed) {
  return pictures.map((src, k) => element('div', { class: 'thumb' },
    element('img', { src, alt: `picture ${k + 1}` }),
    iconButton('close', 'Remove picture', () => { pictures.splice(k, 1); changed(); })));
}
