// HTTP through the host's policy, one buffered exchange at a time:
// `http.get(url, { headers: { accept: 'application/json' } }).ok().json()`.

import { host } from '#host';
import { asked } from './asked.js';
import * as utf8 from './bytes.js';
import { failed } from './errors.js';
import { parse, stringify } from './json.js';

/** A response of any status. */
export class Response {
  constructor({ status, url, headers, body, truncated }) {
    this.status = status;
    /** The URL after redirects. */
    this.url = url;
    this.headers = headers;
    this.body = body;
    /** Whether the body was cut at `maxResponseBytes`. */
    this.truncated = truncated;
  }

  /** Returns the response if its status is 2xx, otherwise throws an error with the status. */
  ok() {
    if (this.status >= 200 && this.status < 300) return this;
    throw failed(`\`${this.url}\` answered with status ${this.status}`, String(this.status));
  }

  /** Returns the first header of that name, or null. */
  header(name) {
    const found = this.headers.find(([key]) => key.toLowerCase() === name.toLowerCase());
    return found ? found[1] : null;
  }

  /** Returns the body as text. Invalid UTF-8 is replaced. */
  text() {
    return utf8.text(this.body);
  }

  /** Parses the body as JSON. */
  json() {
    return parse(this.text());
  }
}

/** Sends a request. `json` sets a JSON body and its content type; `body` is text or bytes. */
export function request(method, url, { headers = {}, body = null, json, timeoutMs = null, maxResponseBytes = null } = {}) {
  const all = Object.entries(headers).map(([key, value]) => [key, String(value)]);
  if (json !== undefined) all.push(['content-type', 'application/json']);
  const data = json !== undefined ? utf8.bytes(stringify(json)) : body === null ? null : utf8.bytes(body);
  const asRecord = { method, url, headers: all, body: data, timeoutMs, maxResponseBytes };
  return new Response(asked('httpClient', url, () => host.http.fetch(asRecord)));
}

/** Sends a `GET` request. */
export const get = (url, options) => request('GET', url, options);
/** Sends a `POST` request. */
export const post = (url, options) => request('POST', url, options);
