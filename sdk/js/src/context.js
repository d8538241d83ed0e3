// The running call: its context, progress and cancellation.

import { host } from '#host';
import { failed } from './errors.js';
import { parse } from './json.js';

/** Reports progress; `percent` is 0 to 100, `audience` is `user`, `internal` or `dashboard`. */
export function progress(message, percent = null, audience = 'user') {
  host.context.progress(String(message), percent ?? null, audience);
}

/** True once the caller has cancelled the call. Poll it in long loops. */
export const cancelled = () => host.context.cancelled();

/** Throws once the caller has cancelled the call. Use it in long loops. */
export function checkCancelled() {
  if (cancelled()) throw failed('the call was cancelled', 'cancelled');
}

/** How many characters the result's text may have before the host truncates it. */
export const budgetChars = () => host.context.budgetChars();
/** Milliseconds until the deadline of the call, or null. */
export const remainingMs = () => host.context.remainingMs() ?? null;
/** True for a dry run: describe the effect and do nothing. */
export const dryRun = () => host.context.dryRun();
/** Id of this call. */
export const callId = () => host.context.callId();
/** Id of the session, or null. */
export const sessionId = () => host.context.sessionId() ?? null;
/** The readable key of the session, such as `cli:my-repo`, or null. */
export const sessionKey = () => host.context.sessionKey() ?? null;
/** The channel of the conversation (`cli`, `mcp`, …), or null. */
export const platform = () => host.context.platform() ?? null;
/** The directory to which relative paths refer, or null. */
export const workingDir = () => host.context.workingDir() ?? null;
/** Id of the acting agent, or null. */
export const agentId = () => host.context.agentId() ?? null;
/** Id of the agent's personality, or null. */
export const personalityId = () => host.context.personalityId() ?? null;
/** Id of the agent's team, or null. */
export const teamId = () => host.context.teamId() ?? null;
/** Turn of the session, counted from 1, or null. */
export const turn = () => host.context.turn() ?? null;
/** The number of messages in the session, or null. */
export const messageCount = () => host.context.messageCount() ?? null;

/** An attribute that the host defined (`memory-scope`, `traceparent`, …), or null. */
export function attribute(name) {
  const text = host.context.attribute(name);
  return text === null || text === undefined ? null : parse(text);
}
