'use strict'

const path = require('node:path')

exports.directory = path.join(__dirname, 'plugins')
