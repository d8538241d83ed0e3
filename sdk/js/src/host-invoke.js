// The host's interface for calls of other tools. A component imports it if one of its tools declares `invoke`.

import * as toolInvoke from 'toolbay:plugin/tool-invoke@0.1.0';

export { toolInvoke };
