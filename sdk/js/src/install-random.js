// Loaded before the author's modules: some keep the function that they find.

import { install } from './random.js';

install();
