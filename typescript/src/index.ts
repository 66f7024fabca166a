export { Client } from "./client.js";
export { Context } from "./context.js";
export { Files, Workspace } from "./files.js";
export { Run } from "./run.js";
export { Terminal, type TerminalOptions } from "./terminal.js";
export { SandtimerError, UnauthorizedError, UnreachableError } from "./errors.js";
export { bytesOf } from "./bytes.js";
export type { ClientOptions, Content, WebSocketClass, WebSocketLike } from "./http.js";
export type * from "./types.js";
