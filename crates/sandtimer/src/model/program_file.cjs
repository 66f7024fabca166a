'use strict';
// What Node.js executes before a program whose file is not in the working directory: the program is to find modules and files from
// there as if it were. Workers and child processes execute this, too: they have its options.
const Module = require('module');
const { readFileSync } = require('fs');
const { join } = require('path');
const { pathToFileURL } = require('url');

const directory = process.cwd();
const isProgram = (path) => /^(\/sandtimer\/main\.[cm]js|\/proc\/self\/fd\/\d+)$/.test(path);
const [, first, second] = process.argv;
if (first === '-' && isProgram(second)) giveModule(second);
if (isProgram(first) || isProgram(second)) nameBuiltins();
findFromDirectory();

/** Has Node.js read a module in place of stdin, from where it is one of the working directory. */
function giveModule(name) {
  const itself = [join(directory, '[eval1]'), `${pathToFileURL(`${directory}/`)}[eval1]`];
  process.argv.splice(1, 2, itself[0]);
  // Node.js refuses this option for a file, which a child process has.
  const options = process.execArgv.filter((option) => option !== '--input-type=module');
  process.execArgv = options;
  const stdin = Object.getOwnPropertyDescriptor(process, 'stdin');
  const source = readFileSync(name, 'utf8');
  const text = {
    setEncoding() {},
    on(event, listener) {
      if (event === 'data') listener(source);
      if (event === 'end') {
        Object.defineProperty(process, 'stdin', stdin);
        listener();
      }
    },
  };
  Object.defineProperty(process, 'stdin', { configurable: true, get: () => text });

  const threads = require('worker_threads');
  // A worker has the option as well, unless it is given others.
  threads.Worker = class Worker extends threads.Worker {
    constructor(file, settings) {
      if (itself.includes(String(file)) && !settings?.eval) {
        super(source, { ...settings, eval: true });
      } else {
        super(file, settings?.eval ? settings : { execArgv: options, ...settings });
      }
    }
  };
}

/** Gives the built-in modules global names, which they have with `--eval` too. */
function nameBuiltins() {
  for (const name of Module.builtinModules) {
    if (name === 'module' || !/^[a-z]\w*$/.test(name)) continue;
    const set = (value) => Object.defineProperty(globalThis, name, { configurable: true, writable: true, value });
    const get = () => set(require(name)) && globalThis[name];
    Object.defineProperty(globalThis, name, { configurable: true, get, set });
  }
}

/** Has programs' files find modules and files from the working directory. */
function findFromDirectory() {
  const place = { id: '.', filename: join(directory, 'main.cjs'), paths: Module._nodeModulePaths(directory) };
  const { _resolveFilename: resolve } = Module;
  Module._resolveFilename = function (request, parent, ...rest) {
    if (isProgram(request)) return request;
    return resolve.call(this, request, isProgram(parent?.filename) ? place : parent, ...rest);
  };
  const { _compile: compile } = Module.prototype;
  Module.prototype._compile = function (content, filename, ...rest) {
    if (!isProgram(filename)) return compile.call(this, content, filename, ...rest);
    this.paths = place.paths;
    compile.call(this, 'exports.require = require', filename);
    const { require } = this.exports;
    this.exports = {};
    const vm = require('vm');
    // Traces have the name in the last line, and `import()` begins at the other one.
    const text = `${content.replace(/^#!/, '//')}\n//# sourceURL=${filename}`;
    const names = ['exports', 'require', 'module', '__filename', '__dirname'];
    const importModuleDynamically = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;
    if (content.includes('import(')) silence('vm.USE_MAIN_CONTEXT_DEFAULT_LOADER');
    const main = vm.compileFunction(text, names, { filename: place.filename, importModuleDynamically });
    return main.call(this.exports, this.exports, require, this, filename, directory);
  };
}

/** Drops the warning that a feature is experimental. */
function silence(feature) {
  const { emitWarning } = process;
  process.emitWarning = function (warning, ...rest) {
    if (!String(warning).startsWith(feature)) emitWarning.call(this, warning, ...rest);
  };
}
