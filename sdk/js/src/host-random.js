// Random bytes of the host. A component imports the interface if one of its tools declares `random`.

import * as random from 'wasi:random/random@0.2.0';

export const randomBytes = (count) => random.getRandomBytes(count);
