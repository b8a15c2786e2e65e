// Pictures that will go with the next message, as data URLs.
import { element, iconButton } from './dom.js';

const KINDS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];
const BYTES_MAX = 20 * 2 ** 20;  // as the server has it, unless told otherwise; and of all together
const PICTURES_MAX = 8;

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/// Adds the files to `pictures`; why one was left out, or ''.
export async function attachPictures(files, pictures) {
  let bytes = pictures.reduce((sum, url) => sum + url.length * 3 / 4, 0);
  for (const file of files) {
    if (!KINDS.includes(file.type)) return `${file.name || 'the file'} is no PNG, JPEG, WebP or GIF picture`;
    bytes += file.size;
    if (bytes > BYTES_MAX) return `${file.name || 'the picture'} is too large: 20 MB at most, all pictures together`;
    if (pictures.length >= PICTURES_MAX) return `a message takes ${PICTURES_MAX} pictures at most`;
    pictures.push(await dataUrl(file));
  }
  return '';
}

/// Small views of the pictures, each with a button that takes it away.
export function pictureTray(pictures, changed) {
  return pictures.map((src, k) => element('div', { class: 'thumb' },
    element('img', { src, alt: `picture ${k + 1}` }),
    iconButton('close', 'Remove picture', () => { pictures.splice(k, 1); changed(); })));
}
