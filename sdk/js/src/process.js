// Programs on the operator's list. No shell is involved.

import { host } from '#host';
import { asked } from './asked.js';
import * as utf8 from './bytes.js';

/**
 * Runs a program to its end: `{exitCode, stdout, stderr, truncated}`, with texts. A failing exit code is not an
 * error.
 */
export function run(program, args = [], { cwd = null, env = {}, stdin = null, timeoutMs = null, maxOutputBytes = null } = {}) {
  const command = {
    program, args, cwd, env: Object.entries(env), stdin: stdin === null ? null : utf8.bytes(stdin), timeoutMs, maxOutputBytes,
  };
  const done = asked('process', program, () => host.process.run(command));
  return { ...done, exitCode: done.exitCode ?? null, stdout: utf8.text(done.stdout), stderr: utf8.text(done.stderr) };
}
