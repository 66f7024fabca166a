export { Client } from "./client.js";
export { Context } from "./context.js";
export { Files, Workspace } from "./files.js";
export { Run } from "./run.js";
export { SandtimerError, UnauthorizedError, UnreachableError } from "./errors.js";
export { bytesOf } from "./bytes.js";
export type { ClientOptions, Content } from "./http.js";
export type * from "./types.js";
