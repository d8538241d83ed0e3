// The call that is running: what may be known about it, and the two things it may always do.

import { host } from '#host';
import { failed } from './errors.js';
import { parse } from './json.js';

/** Reports progress; `percent` is 0 to 100, `audience` is `user`, `internal` or `dashboard`. */
export function progress(message, percent = null, audience = 'user') {
  host.context.progress(String(message), percent ?? null, audience);
}

/** True once the caller gave up. Poll it in long loops. */
export const cancelled = () => host.context.cancelled();

/** Throws once the caller gave up; for long loops. */
export function checkCancelled() {
  if (cancelled()) throw failed('the call was cancelled', 'cancelled');
}

/** Characters the result's text may have before the host cuts it. */
export const budgetChars = () => host.context.budgetChars();
/** Milliseconds left before the host ends the call, or null. */
export const remainingMs = () => host.context.remainingMs() ?? null;
/** True: say what would be done, do nothing. */
export const dryRun = () => host.context.dryRun();
/** Id of this call. */
export const callId = () => host.context.callId();
/** Id of the session, or null. */
export const sessionId = () => host.context.sessionId() ?? null;
/** The session's key for people, such as `cli:my-repo`, or null. */
export const sessionKey = () => host.context.sessionKey() ?? null;
/** Where the conversation takes place (`cli`, `mcp`, …), or null. */
export const platform = () => host.context.platform() ?? null;
/** Directory that relative paths are meant against, or null. */
export const workingDir = () => host.context.workingDir() ?? null;
/** Id of the acting agent, or null. */
export const agentId = () => host.context.agentId() ?? null;
/** Id of the agent's personality, or null. */
export const personalityId = () => host.context.personalityId() ?? null;
/** Id of the agent's team, or null. */
export const teamId = () => host.context.teamId() ?? null;
/** Turn of the session, counted from 1, or null. */
export const turn = () => host.context.turn() ?? null;
/** How many messages the session has, or null. */
export const messageCount = () => host.context.messageCount() ?? null;

/** An attribute that the host defined (`memory-scope`, `traceparent`, …), or null. */
export function attribute(name) {
  const text = host.context.attribute(name);
  return text === null || text === undefined ? null : parse(text);
}
