// Pictures that go with a message, where the model reads some.

import { $, element } from "./dom.js";

const BYTES_MAX = 256 * 1024;  // of a file that is sent as it is: conversations are kept here
const SIDE_MAX = 1536;  // pixels; larger ones are made smaller
const QUALITY = 0.9;
const READ = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];

export const isPicture = ({ type }) => type.startsWith("image/");

/** Return a picture as it is kept and sent. Throws where it is none, or the model reads none. */
export async function pictureOf(file) {
  if ($("model").dataset.sees !== "true") throw new Error(`${file.name}: this model reads no pictures.`);
  try {
    const sent = file.size > BYTES_MAX || !READ.includes(file.type) ? await smaller(file) : file;
    return { name: file.name, url: await urlOf(sent) };
  } catch {
    throw new Error(`${file.name} is no picture that can be read.`);
  }
}

async function smaller(file) {
  const image = await createImageBitmap(file);
  const scale = Math.min(1, SIDE_MAX / Math.max(image.width, image.height));
  const canvas = element("canvas");
  Object.assign(canvas, { width: scale * image.width, height: scale * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject()), "image/jpeg", QUALITY);
  });
}

const urlOf = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  Object.assign(reader, { onload: () => resolve(reader.result), onerror: reject });
  reader.readAsDataURL(file);
});

/** Return a picture small, with its name. */
export const thumbnail = ({ name, url }) => element("img", { src: url, alt: name });

/** Return a message's content: its text, behind its pictures if it has some. */
export function withPictures(text, files = []) {
  const pictures = files.filter(({ url }) => url);
  if (!pictures.length) return text;
  return [...pictures.map(({ url }) => ({ type: "image_url", image_url: { url } })),
    ...(text ? [{ type: "text", text }] : [])];
}
