// What functions of the program answer: calls of native tools, and requests for approval.
'use strict';

const { reply } = require('./bridge.js');
const { ToolError, describe } = require('./errors.js');
const { encode, parse } = require('./json.js');
const { log } = require('./log.js');
const { ToolOutput } = require('./results.js');

const AUDIENCES = ['user', 'internal', 'dashboard'];
const ANSWERS = ['yes', 'always', 'deferred', 'no'];

/** Whether somebody waits for the answer, and the signal that says that nobody does. */
class Withdrawal {
  #controller = null;
  isOver = false;

  get signal() {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.isOver) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  withdraw() {
    this.isOver = true;
    this.#controller?.abort();
  }
}

/** A running call of a native tool. */
class CallContext {
  #mailbox;
  #question;
  #withdrawal;

  constructor(mailbox, question, withdrawal, document) {
    this.#mailbox = mailbox;
    this.#question = question;
    this.#withdrawal = withdrawal;
    this.callId = document.call_id;
    this.tool = document.tool;
    this.budgetChars = document.budget_chars;
    this.dryRun = document.dry_run;
    this.profile = document.profile;
    this.sessionId = document.session_id;
    this.sessionKey = document.session_key;
    this.platform = document.platform;
    this.agentId = document.agent_id;
    this.personalityId = document.personality_id;
    this.teamId = document.team_id;
    this.turn = document.turn;
    this.messageCount = document.message_count;
    this.attributes = document.attributes;
  }

  get signal() {
    return this.#withdrawal.signal;
  }

  progress(message, percent = null, audience = 'user') {
    if (!AUDIENCES.includes(audience)) {
      throw new TypeError(`unknown audience ${JSON.stringify(audience)}; known are ${AUDIENCES.join(', ')}`);
    }
    reply(this.#mailbox, this.#question, 'progress', { message: readable(message), percent, audience });
  }
}

/** Runs a call of a native tool. The promise never rejects. */
async function answerCall(mailbox, event, tool, withdrawal) {
  const { id, tool: name, args, context } = event;
  try {
    const value = await tool.call(args, new CallContext(mailbox, id, withdrawal, context));
    if (!withdrawal.isOver) replyWithResult(mailbox, id, name, value);
  } catch (error) {
    if (!withdrawal.isOver) replyWithError(mailbox, id, name, error);
  }
}

/** Says that a tool is unregistered. */
function answerUnregistered(mailbox, { id, tool }) {
  const error = new ToolError('not_available', `the tool \`${tool}\` was unregistered`);
  reply(mailbox, id, 'error', errorReply(error));
}

function replyWithResult(mailbox, id, name, value) {
  try {
    reply(mailbox, id, 'output', ToolOutput.reply(outputOf(value)));
  } catch (error) {
    const failure = new ToolError('execution_failed', `the tool \`${name}\` returned ${error.message}`);
    reply(mailbox, id, 'error', errorReply(failure));
  }
}

function outputOf(value) {
  if (value === undefined || value === null) return new ToolOutput();
  if (value instanceof ToolOutput) return value;
  if (typeof value !== 'string') return ToolOutput.ofData(value);
  // Refuses lone surrogates.
  encode(value);
  return new ToolOutput(value);
}

function replyWithError(mailbox, id, name, error) {
  try {
    reply(mailbox, id, 'error', errorReply(toolError(error, name)));
  } catch {
    // The members of what was thrown are the program's: getters, or values that a reply cannot have.
    const failure = new ToolError('execution_failed', 'the tool failed with an error that cannot be shown');
    reply(mailbox, id, 'error', errorReply(failure));
  }
}

function toolError(error, name) {
  if (error instanceof ToolError) return error;
  log('error', `the tool \`${name}\` failed`, error);
  return new ToolError('execution_failed', describe(error));
}

function errorReply({ code, message, subject, costUsd }) {
  return { code, message: readable(message), subject: subject === null ? null : readable(subject), cost_usd: costUsd };
}

const readable = (text) => String(text).toWellFormed();

/** Asks the approver. The promise never rejects; an error counts as no. */
async function answerApproval(mailbox, { id, request }, approver, withdrawal) {
  let answer = { answer: 'no' };
  try {
    answer = approvalOf(await approver(approvalRequest(request, withdrawal)));
  } catch (error) {
    if (withdrawal.isOver) return;
    log('error', `the approver failed; the call of \`${request.tool}\` is refused`, error);
  }
  if (!withdrawal.isOver) reply(mailbox, id, 'approval', answer);
}

function approvalRequest(document, withdrawal) {
  return {
    callId: document.call_id, tool: document.tool, source: document.source, caller: document.caller,
    args: parse(document.args), preview: document.preview, argsSha256: document.args_sha256, reason: document.reason,
    get signal() {
      return withdrawal.signal;
    },
  };
}

function approvalOf(value) {
  if (ANSWERS.includes(value)) return { answer: value };
  if (typeof value === 'object' && typeof value?.no === 'string') return { answer: 'no', comment: readable(value.no) };
  throw new TypeError("an approver returns 'yes', 'always', 'deferred', 'no' or { no: comment }");
}

module.exports = { Withdrawal, answerApproval, answerCall, answerUnregistered };
