// The native functions, with the errors and the names that a program sees.
'use strict';

const { encode, parse } = require('./json.js');
const { HostError } = require('./errors.js');
const { native } = require('./native.js');

const NOTHING = new Uint8Array();

/** The error for a document of the bridge. */
function errorOf({ kind, message, ...where }) {
  return kind === 'argument' ? new TypeError(message) : new HostError(kind, message, where);
}

/** Asks the bridge a question that it answers at once. */
function query(op, request, payload = '', read = parse) {
  const text = encode({ op, ...request });
  return read(asked(() => native().query(text, payload)));
}

/** Opens a mailbox. Returns its number and its socket. */
function openMailbox() {
  return asked(() => native().openMailbox());
}

/** Begins a request; its answer comes through the mailbox. */
function submit(mailbox, request, payload = NOTHING) {
  const text = encode(request);
  return asked(() => native().submit(mailbox, text, payload));
}

/** Takes the events of a mailbox. */
function drain(mailbox) {
  return parse(asked(() => native().drain(mailbox)));
}

/** Cancels the calls of a request. */
function cancel(mailbox, number) {
  ignoringClosed(() => native().cancel(mailbox, number));
}

/** Replies to a question. Once the host is closed, nobody waits for it. Throws for an answer that the host cannot read. */
function reply(mailbox, question, kind, answer) {
  const text = encode({ reply: kind, ...answer });
  ignoringClosed(() => native().reply(mailbox, question, text));
}

/** Closes an open host with its environment. */
function closeWithEnvironment(host) {
  asked(() => native().closeWithEnvironment(host));
}

/** Closes all hosts of the process. */
function shutDown() {
  ignoringClosed(() => native().shutDown());
}

function asked(question) {
  try {
    return question();
  } catch (error) {
    throw error instanceof HostError ? error : documented(error);
  }
}

/** Errors of the bridge have a document as their message. Others are mistakes in the use of the module. */
function documented(error) {
  return error.message.startsWith('{') ? errorOf(parse(error.message)) : error;
}

function ignoringClosed(question) {
  try {
    asked(question);
  } catch (error) {
    if (!(error instanceof HostError)) throw error;
  }
}

const releases = new FinalizationRegistry((number) => ignoringClosed(() => native().release(number)));

/** Forgets a view, session or host once its object is gone. */
function releaseWith(object, number) {
  releases.register(object, number);
}

/** A document of the bridge with the names of JavaScript. Times in microseconds become milliseconds. */
function members(document) {
  const shown = {};
  for (const [name, value] of Object.entries(document)) {
    const camelCase = name.replace(/_us$/, '_ms').replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
    shown[camelCase] = name.endsWith('_us') ? Number(value) / 1000 : value;
  }
  return shown;
}

module.exports = {
  cancel, closeWithEnvironment, drain, errorOf, members, openMailbox, query, releaseWith, reply, shutDown, submit,
};
