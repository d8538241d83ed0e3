// The host's interfaces, as a component imports them. In Node, `#host` is `testing/host.js` instead.

import * as context from 'toolbay:plugin/context@0.1.0';
import * as log from 'toolbay:plugin/log@0.1.0';
import * as config from 'toolbay:plugin/config@0.1.0';
import * as kv from 'toolbay:plugin/kv@0.1.0';
import * as secrets from 'toolbay:plugin/secrets@0.1.0';
import * as http from 'toolbay:plugin/http-client@0.1.0';
import * as files from 'toolbay:plugin/files@0.1.0';
import * as process from 'toolbay:plugin/process@0.1.0';
import * as attachments from 'toolbay:plugin/attachments@0.1.0';

export const host = { context, log, config, kv, secrets, http, files, process, attachments };
