// What each version of Node must do: run with a folder for its files.

import * as toolbay from 'toolbay';

import smoke from './smoke.cjs';

await smoke.run(toolbay);
