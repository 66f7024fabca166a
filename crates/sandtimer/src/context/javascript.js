// What runs in a live JavaScript interpreter: cells one after the other, in the scope of one program.
//
//   its pre-warm script ─▶ native.ready(): a context's ─▶
//   native.next(): sleeps ─▶ cell ─▶ evaluated (top-level await) ─▶ one turn of the event loop ─▶ native.answer() ─▶ next()
//
// Executed once, before any cell. Cells share the realm, so whatever they may replace is kept here beforehand, and what is
// used later goes through that. The engine takes nothing of what is said on trust; see node.rs of the helper.
'use strict';
(require, process, importFrom) => {
  const fs = require('fs');
  const inspector = require('inspector');
  const { createRequire } = require('module');
  const path = require('path');
  const { Writable } = require('stream');
  const { pathToFileURL } = require('url');
  const util = require('util');
  const vm = require('vm');

  const CHANNEL = 3;
  const LIBRARY = 4;
  const PROGRAM = 5;
  const LONGEST_TEXT = 1 << 20;
  const MOST_DISPLAYED = 64 << 20;
  // What the engine writes in place of `import(`, which code that is evaluated as cells are has not.
  const IMPORT = '_$imp_';
  const START = '__sandtimer_start__';
  // The engine writes the operator's script here, as it writes a cell.
  const PREWARM = null;

  const addon = { exports: {} };
  process.dlopen(addon, `/proc/self/fd/${LIBRARY}`);
  const native = addon.exports;
  fs.closeSync(LIBRARY);
  fs.closeSync(PROGRAM);

  const { isFinite, BigInt, Number, String, Error, SyntaxError, TypeError, RangeError, Buffer, setImmediate } = globalThis;
  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const { defineProperty, deleteProperty, getOwnPropertyDescriptor, getPrototypeOf, setPrototypeOf } = Reflect;
  const stringify = JSON.stringify;
  const slice = uncurry(String.prototype.slice);
  const indexOf = uncurry(String.prototype.indexOf);
  const lastIndexOf = uncurry(String.prototype.lastIndexOf);
  const trim = uncurry(String.prototype.trim);
  // Half a character is none, and nothing that JSON may have.
  const wellFormed = uncurry(String.prototype.toWellFormed);
  const hasOwn = uncurry(Object.prototype.hasOwnProperty);
  const { isArray } = Array;
  const { prototype: ObjectPrototype } = Object;
  const { isNativeError } = util.types;
  const { inspect } = util;
  const bytesOf = Buffer.from;
  const DISPLAY = Symbol.for('Jupyter.display');
  const run = uncurry(vm.Script.prototype.runInThisContext);

  const session = new inspector.Session();
  session.connect();
  const postTo = uncurry(session.post);

  // Asks the inspector. Its messages must not be changed on their way by what a cell has made of all objects.
  function post(method, parameters, done) {
    const hijack = getOwnPropertyDescriptor(ObjectPrototype, 'toJSON');
    if (hijack !== undefined) {
      setPrototypeOf(hijack, null);
      deleteProperty(ObjectPrototype, 'toJSON');
    }
    try {
      postTo(session, method, parameters, done);
    } finally {
      if (hijack !== undefined && !hasOwn(ObjectPrototype, 'toJSON')) {
        defineProperty(ObjectPrototype, 'toJSON', hijack);
      }
    }
  }

  // -- streams -------------------------------------------------------------------------------------------------------

  function output(fd) {
    const stream = new Writable({
      decodeStrings: true,
      write(chunk, _encoding, done) {
        const error = native.write(fd, chunk);
        done(error === 0 ? null : new Error(`write failed: ${util.getSystemErrorName(error)}`));
      },
      // As the standard streams of a process it cannot be closed.
      destroy(error, done) {
        done(error);
        stream._undestroy();
      },
    });
    stream.fd = fd;
    return stream;
  }

  let stdin;
  const streams = { stdout: output(1), stderr: output(2) };
  for (const name of ['stdout', 'stderr']) {
    defineProperty(process, name, { __proto__: null, configurable: true, enumerable: true, get: () => streams[name] });
  }
  defineProperty(process, 'stdin', {
    __proto__: null,
    configurable: true,
    enumerable: true,
    // Each cell has its own.
    get: () => (stdin ??= new fs.ReadStream(null, { fd: 0, autoClose: false })),
  });

  function complain(what, error) {
    native.write(2, bytesOf(`${what}: ${describe(error).traceback}\n`));
  }

  // -- what is shown --------------------------------------------------------------------------------------------------

  const HIDDEN = ['(node:inspector:', 'sandtimer:context'];

  // Cuts off the frames that are not the cell's own.
  function ownFrames(stack) {
    let end = stack.length;
    for (let index = 0; index < HIDDEN.length; index += 1) {
      const at = indexOf(stack, HIDDEN[index]);
      if (at >= 0) {
        const line = lastIndexOf(stack, '\n', at);
        // What is beside the frames, such as a cause, is left out with them.
        end = line >= 0 && line < end ? line : end;
      }
    }
    return slice(stack, 0, end);
  }

  function text(value, otherwise) {
    try {
      return String(value);
    } catch {
      return otherwise;
    }
  }

  function describe(error) {
    let [type, message, traceback] = ['Error', '', ''];
    try {
      if (isNativeError(error)) {
        type = text(error.name, 'Error');
        message = text(error.message, '');
        const stack = error.stack;
        traceback = typeof stack === 'string' ? ownFrames(stack) : `${type}: ${message}`;
        if (error.cause !== undefined) {
          traceback += `\n[cause]: ${ownFrames(inspect(error.cause))}`;
        }
      } else {
        type = typeof error;
        message = inspect(error);
        traceback = `Uncaught ${message}`;
      }
    } catch {
      traceback = traceback || `${type}: ${message}`;
    }
    return {
      __proto__: null,
      type: wellFormed(slice(type, 0, 1000)),
      message: wellFormed(slice(message, 0, 100000)),
      traceback: wellFormed(slice(traceback, 0, LONGEST_TEXT)),
    };
  }

  function onlyFinite(_key, value) {
    if (typeof value === 'number' && !isFinite(value)) {
      throw new TypeError('no number of JSON');
    }
    return value;
  }

  // The value as JSON, where that says all of it; else undefined.
  function asJson(value) {
    if (typeof value === 'object' && value !== null) {
      const prototype = getPrototypeOf(value);
      const isPlain = prototype === null || prototype === ObjectPrototype || isArray(value);
      if (!isPlain && typeof value.toJSON !== 'function') {
        return undefined;
      }
    } else if (typeof value === 'function' || typeof value === 'symbol' || typeof value === 'bigint') {
      return undefined;
    }
    try {
      return stringify(value, onlyFinite);
    } catch {
      return undefined;
    }
  }

  // A value by MIME type, as JSON.
  function bundle(value) {
    let shown = `{"text/plain":${stringify(wellFormed(slice(inspect(value), 0, LONGEST_TEXT)))}`;
    const json = asJson(value);
    if (json !== undefined) {
      shown += `,"application/json":${json}`;
    }
    const custom = typeof value === 'object' && value !== null ? value[DISPLAY] : undefined;
    if (typeof custom === 'function') {
      const more = Reflect.apply(custom, value, []);
      for (const kind in more) {
        if (kind !== 'text/plain' && kind !== 'application/json' && hasOwn(more, kind)) {
          const data = stringify(more[kind]);
          shown += data === undefined ? '' : `,${stringify(kind)}:${data}`;
        }
      }
    }
    return `${shown}}`;
  }

  let displayed = 0;
  function display(...values) {
    for (let index = 0; index < values.length; index += 1) {
      const shown = bundle(values[index]);
      displayed += shown.length;
      if (displayed > MOST_DISPLAYED) {
        throw new RangeError(`more than ${MOST_DISPLAYED >> 20} MiB are displayed in one cell`);
      }
      native.display(shown);
    }
  }

  // -- a cell ---------------------------------------------------------------------------------------------------------

  let count = 0;
  let answered = true;
  // Ends the cell that is on, where it awaits something.
  let interrupt = () => {};

  // Values come back through the inspector as handles; a function that it calls puts what is behind one here.
  const holder = { __proto__: null, value: undefined };
  let holderId;
  globalThis[START] = holder;
  post('Runtime.evaluate', { expression: START }, (_error, said) => (holderId = said.result.objectId));
  delete globalThis[START];

  const starter = new vm.Script(`${START}()`, { filename: 'sandtimer:context' });

  function listOf(item) {
    const list = [item];
    setPrototypeOf(list, null);
    return list;
  }

  function valueOf(result) {
    if (hasOwn(result, 'objectId')) {
      const request = {
        __proto__: null,
        objectId: holderId,
        functionDeclaration: 'function (value) { this.value = value }',
        arguments: listOf({ __proto__: null, objectId: result.objectId }),
      };
      post('Runtime.callFunctionOn', request, () => {});
      const { value } = holder;
      holder.value = undefined;
      return value;
    }
    if (hasOwn(result, 'unserializableValue')) {
      const said = result.unserializableValue;
      return result.type === 'bigint' ? BigInt(slice(said, 0, -1)) : Number(said);
    }
    return hasOwn(result, 'value') ? result.value : undefined;
  }

  function compiles(source) {
    try {
      return new vm.Script(source) !== undefined;
    } catch {
      return false;
    }
  }

  // What begins with a brace is an object where it can be one, as at the prompt of Node.js.
  function expressionOf(source) {
    const code = trim(source);
    const isObject = code[0] === '{' && code[code.length - 1] === '}' && compiles(`async () => (${source}\n)`);
    return isObject ? `(${source}\n)` : source;
  }

  // Evaluates code at the top level of the program that all cells are; `done` is told of its value, or that it threw.
  function evaluate(source, done) {
    const name = count === 0 ? '<prewarm>' : `<cell-${count}>`;
    const request = {
      __proto__: null,
      expression: `${expressionOf(source)}\n//# sourceURL=${name}`,
      objectGroup: 'cell',
      replMode: true,
      awaitPromise: true,
    };
    const start = () => {
      deleteProperty(globalThis, START);
      post('Runtime.evaluate', request, (error, said) => {
        if (error) {
          done(error, true);
          return;
        }
        const details = hasOwn(said, 'exceptionDetails') ? said.exceptionDetails : undefined;
        const value = valueOf(details !== undefined && hasOwn(details, 'exception') ? details.exception : said.result);
        if (details !== undefined && hasOwn(details, 'scriptId') && isNativeError(value) && value.name === 'SyntaxError') {
          const place = `${name}:${details.lineNumber + 1}:${details.columnNumber + 1}`;
          done({ __proto__: null, place, error: value }, true, true);
        } else {
          done(value, details !== undefined);
        }
      });
    };
    if (!defineProperty(globalThis, START, { __proto__: null, value: start, configurable: true })) {
      start();
      return;
    }
    try {
      // Ends a loop when it is interrupted, as long as nothing is awaited.
      run(starter, { __proto__: null, breakOnSigint: true });
    } catch (error) {
      done(error, true, false, error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED');
    }
  }

  function failure(error, interrupted) {
    const said = describe(error);
    const parts = `"type":${stringify(said.type)},"module":"","message":${stringify(said.message)}`;
    return `{"status":"error","results":[],"error":{${parts},"traceback":${stringify(said.traceback)}},"execution_count":${count},"interrupted":${interrupted}}`;
  }

  function syntaxError({ error, place }) {
    const message = text(error.message, '');
    return `{"status":"error","results":[],"error":{"type":"SyntaxError","module":"","message":${stringify(message)},"traceback":${stringify(`SyntaxError: ${message}\n    at ${place}`)}},"execution_count":${count},"interrupted":false}`;
  }

  function replyTo(value, raised, isSyntax, interrupted) {
    if (isSyntax) {
      return [1, syntaxError(value)];
    }
    if (raised) {
      return [1, failure(value, interrupted === true)];
    }
    try {
      const results = value === undefined ? '' : bundle(value);
      if (value !== undefined) {
        defineProperty(globalThis, '_', { __proto__: null, value, configurable: true, writable: true });
      }
      return [0, `{"status":"ok","results":[${results}],"execution_count":${count},"interrupted":false}`];
    } catch (error) {
      return [1, failure(error, false)];
    }
  }

  function cell(mode, source) {
    count += 1;
    displayed = 0;
    stdin = undefined;
    answered = false;
    const own = count;
    const done = (value, raised, isSyntax, interrupted) => {
      if (answered || own !== count) {
        return;
      }
      answered = true;
      // One turn of the event loop, so that what nobody has caught is reported in the cell that it is of.
      setImmediate(() => {
        const [kind, reply] = replyTo(value, raised, isSyntax, interrupted);
        try {
          post('Runtime.releaseObjectGroup', { __proto__: null, objectGroup: 'cell' }, () => {});
        } finally {
          native.answer(kind, reply);
          serve();
        }
      });
    };
    interrupt = () => {
      const error = new Error('Script execution was interrupted by `SIGINT`');
      error.code = 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
      // Its frames are this program's.
      error.stack = `Error [${error.code}]: ${error.message}`;
      done(error, true, false, true);
    };
    if (mode === 'e') {
      // The engine could not read it: its message, and behind a line of its own where.
      const at = indexOf(source, '\n');
      const place = `<cell-${count}>:${slice(source, 0, at)}`;
      done({ __proto__: null, place, error: new SyntaxError(slice(source, at + 1)) }, true, true);
      return;
    }
    try {
      evaluate(source, done);
    } catch (error) {
      done(error, true);
    }
  }

  function serve() {
    const request = native.next();
    cell(request[0], slice(request, 1));
  }

  // -- the beginning ----------------------------------------------------------------------------------------------------

  // Nothing is fatal that nobody has caught.
  process.on('unhandledRejection', (reason) => complain('Unhandled rejection', reason));
  process.setUncaughtExceptionCaptureCallback((error) => complain('Uncaught', error));
  // What is awaited goes on: a promise cannot be taken back. Nobody has to wait for it any more.
  process.on('SIGINT', () => interrupt());
  // While something is awaited that nothing will ever settle, the limits decide.
  setInterval(() => {}, 0x7fffffff);

  function open(settings) {
    for (const name in settings.environment) {
      process.env[name] = settings.environment[name];
    }
    if (settings.directory) {
      try {
        fs.mkdirSync(settings.directory, { recursive: true });
        process.chdir(settings.directory);
      } catch (error) {
        native.answer(1, text(error.message, ''));
        process.reallyExit(1);
      }
    }
    const here = `${process.cwd()}/`;
    const globals = {
      require: createRequire(here),
      display,
      [IMPORT]: (specifier, options) => {
        const name = `${specifier}`;
        const isPath = name[0] === '/' || name[0] === '.';
        return importFrom(isPath ? pathToFileURL(path.resolve(here, name)).href : name, options);
      },
    };
    for (const name in globals) {
      defineProperty(globalThis, name, { __proto__: null, value: globals[name], configurable: true, writable: true, enumerable: false });
    }
    for (const name of ['module', 'exports', '__filename', '__dirname']) {
      deleteProperty(globalThis, name);
    }
  }

  // Walks the path that every cell takes, so that the first one finds it walked.
  function warm() {
    bundle({ a: [1, 'a'] });
    describe(new Error('none'));
    evaluate('await 1', () => {
      evaluate('1', (value) => {
        replyTo(value, false);
        deleteProperty(globalThis, '_');
        setImmediate(PREWARM === null ? begin : prewarm);
      });
    });
  }

  function begin() {
    open(JSON.parse(native.ready()));
    serve();
  }

  // Runs the operator's script, of which the engine hears that it begins, and why it has failed.
  function prewarm() {
    open({ environment: {} });
    native.write(CHANNEL, bytesOf('P'));
    // What stands before the text is for cells of another language.
    evaluate(slice(PREWARM, 1), (value, raised, isSyntax) => {
      if (!raised) {
        setImmediate(begin);
        return;
      }
      const { type, message } = describe(isSyntax ? value.error : value);
      native.write(CHANNEL, bytesOf(slice(`Wit raised ${type}: ${message}`, 0, 2000)));
      process.reallyExit(1);
    });
  }
  warm();
};
