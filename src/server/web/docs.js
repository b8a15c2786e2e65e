// Shows /openapi.json for people. Reads only what this server's document uses of OpenAPI 3.1.
import { element } from './dom.js';
import { inlineNodes } from './inline.js';
import { startTheme } from './theme.js';

let spec = {};

function resolved(thing) {
  if (!thing || !thing.$ref) return thing;
  return thing.$ref.slice(2).split('/').reduce((at, name) => at[name], spec);
}

function nameOf(schema) {
  return schema.$ref ? schema.$ref.split('/').pop() : '';
}

/// A schema in a few words: "number, 0 to 2", "list of Message".
function words(schema) {
  if (schema.$ref) return nameOf(schema);
  if (schema.oneOf) return [...new Set(schema.oneOf.map(words).filter((w) => w !== 'null'))].join(' or ');
  if ('const' in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.filter((v) => v !== null).join(', ');
  const kinds = [].concat(schema.type || 'any').filter((kind) => kind !== 'null');
  let said = kinds.map((kind) => ({ array: 'list', boolean: 'true or false', integer: 'whole number' })[kind] || kind).join(' or ');
  if (schema.items) said += ' of ' + words(schema.items);
  const big = (n) => Math.abs(n) >= 2147483647;
  const low = schema.minimum !== undefined && !big(schema.minimum), high = schema.maximum !== undefined && !big(schema.maximum);
  if (low && high) said += `, ${schema.minimum} to ${schema.maximum}`;
  else if (low) said += `, at least ${schema.minimum}`;
  return said;
}

function fieldsTable(schema) {
  const needed = new Set(schema.required || []);
  const rows = Object.entries(schema.properties || {}).map(([name, field]) => element('tr', {},
    element('td', needed.has(name) ? { class: 'needed', title: 'required' } : {}, name),
    element('td', {}, words(field)),
    element('td', {}, ...inlineNodes((resolved(field) || {}).description || field.description || ''))));
  return element('div', { class: 'fields-wrap' }, element('table', { class: 'fields' }, element('tbody', {}, ...rows)));
}

function nameList(title, names) {
  return names && names.length ? [element('h3', {}, title), element('div', { class: 'names' }, names.join('  '))] : [];
}

function requestPart(operation) {
  if (!operation.requestBody) return [];
  const schema = resolved(operation.requestBody.content['application/json'].schema);
  return [element('h3', {}, 'Body'), ...(schema.description ? [element('p', {}, ...inlineNodes(schema.description))] : []), fieldsTable(schema),
          ...nameList('Refused by name', schema['x-refused']), ...nameList('Taken and ignored', schema['x-ignored'])];
}

function answerPart(operation) {
  const made = [];
  const ok = operation.responses['200'];
  if (ok) {
    const kinds = Object.keys(ok.content);
    const schema = resolved((ok.content['application/json'] || {}).schema);
    made.push(element('h3', {}, 'Answer'), element('p', {}, kinds.join(', ')));
    if (schema && schema.properties) made.push(fieldsTable(schema));
  }
  const others = Object.keys(operation.responses).filter((status) => status !== '200');
  if (others.length)
    made.push(element('h3', {}, 'Other statuses'),
              element('div', { class: 'statuses' }, ...others.map((status) => element('span', {}, status))));
  return made;
}

function routeNode(path, verb, operation) {
  const open = operation.security && operation.security.length === 0;
  const id = `${verb}${path.replace(/[^a-zA-Z0-9]+/g, '-')}`.replace(/-$/, '');
  const route = element('details', { class: 'route', id },
    element('summary', {}, element('span', { class: 'verb ' + verb }, verb.toUpperCase()),
            element('span', { class: 'path' }, path), element('span', { class: 'summary' }, operation.summary)));
  // Filled when first opened: the page stays light.
  route.addEventListener('toggle', () => {
    if (route.childElementCount > 1) return;
    const parameters = (operation.parameters || []).map((p) => element('p', {}, ...inlineNodes('`' + p.name + '`: ' + p.description)));
    route.append(element('div', { class: 'route-body' },
      ...(operation.description ? [element('p', {}, ...inlineNodes(operation.description))] : []),
      ...(open ? [element('p', {}, 'Needs no key.')] : []), ...parameters, ...requestPart(operation), ...answerPart(operation)));
  });
  return route;
}

function build() {
  const sections = spec.tags.map(({ name }) => {
    const routes = Object.entries(spec.paths).flatMap(([path, verbs]) => Object.entries(verbs)
      .filter(([, operation]) => operation.tags[0] === name)
      .map(([verb, operation]) => routeNode(path, verb, operation)));
    return element('section', {}, element('h2', {}, name), ...routes);
  });
  document.getElementById('docs').replaceChildren(
    element('div', { class: 'docs-head' }, element('img', { src: '/assets/icon.svg', alt: '', width: '32', height: '32' }),
            element('h1', {}, 'The API')),
    element('p', { class: 'docs-lead' }, spec.info.description),
    element('p', { class: 'docs-lead' }, 'With a key: Authorization: Bearer KEY, or x-api-key: KEY.'),
    element('div', { class: 'docs-links' }, element('a', { href: '/' }, 'Chat'), element('a', { href: '/openapi.json' }, 'openapi.json')),
    ...sections);
  if (location.hash) {
    const target = document.getElementById(location.hash.slice(1));
    if (target) { target.open = true; target.scrollIntoView(); }
  }
}

startTheme();
spec = await (await fetch('/openapi.json')).json();
build();
