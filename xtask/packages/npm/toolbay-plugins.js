#!/usr/bin/env node
'use strict'

console.log(require('../index.js').directory)
