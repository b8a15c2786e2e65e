// Pictures that will go with the next message, as data URLs.
import { element, iconButton } from './dom.js';

const KINDS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];
const BYTES_MAX = 5e6;  // base64 makes it 6.7 MB, below the server's largest request
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
  for (const file of files) {
    if (!KINDS.includes(file.type)) return `${file.name || 'the file'} is no PNG, JPEG, WebP or GIF picture`;
    if (file.size > BYTES_MAX) return `${file.name || 'the picture'} is larger than 5 MB`;
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
