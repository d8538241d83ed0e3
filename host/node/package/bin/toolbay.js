#!/usr/bin/env node
// Starts the program of the package for this platform, or the one that `TOOLBAY_BIN` names.
'use strict';

const fs = require('node:fs');
const { spawn } = require('node:child_process');
const { constants } = require('node:os');

const { LIBRARIES, missing, platformPackage, unsupported } = require('../lib/platform.js');

const program = findProgram();
const args = process.argv.slice(2);
// The program takes the place of this process: it gets the signals itself, and nothing is left when it ends.
if (process.execve) process.execve(program, [program, ...args], process.env);
else spawnProgram();

function findProgram() {
  const { TOOLBAY_BIN: chosen } = process.env;
  if (chosen) return executable(chosen, 'TOOLBAY_BIN names');
  const reason = unsupported();
  if (reason) fail(reason);
  for (const library of LIBRARIES) {
    // The program needs no C library, so each package fits.
    try {
      return executable(require.resolve(`${platformPackage(library)}/bin/toolbay`), 'the program is');
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error;
    }
  }
  fail(missing('the program'));
}

// `execve` ends the process with a core dump if it fails, so look before.
function executable(file, subject) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
  } catch (error) {
    fail(`${subject} \`${file}\`, which cannot be run (${error.code})`);
  }
  return file;
}

function fail(message) {
  process.stderr.write(`error: ${message}; or set TOOLBAY_BIN to the path of a program\n`);
  process.exit(3);
}

// Node before 22.15 has no `execve`. This process passes on its signals and ends as the program does.
function spawnProgram() {
  const child = spawn(program, args, { stdio: 'inherit' });
  const terminal = [0, 1, 2].some((stream) => require('node:tty').isatty(stream));
  const signals = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGUSR1', 'SIGUSR2'];
  for (const signal of signals) {
    // A terminal sends these to both processes, and the program ends at once when it gets them twice.
    const isSent = terminal && ['SIGINT', 'SIGQUIT'].includes(signal);
    process.on(signal, () => isSent || child.kill(signal));
  }
  child.on('error', (error) => fail(`\`${program}\` cannot be started (${error.code})`));
  child.on('exit', (code, signal) => {
    if (!signal) process.exit(code);
    signals.forEach((name) => process.removeAllListeners(name));
    process.exitCode = 128 + constants.signals[signal];
    process.kill(process.pid, signal);
  });
}
