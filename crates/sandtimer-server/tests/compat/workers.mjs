// What the package takes from the runtime of Workers.
export class DurableObject {
  constructor(ctx, env) {
    this.ctx = ctx;
    this.env = env;
  }
}
export class WorkerEntrypoint extends DurableObject {}
export class RpcTarget {}
export const env = {};
export const tracing = { enterSpan: (_name, work) => work({ setAttribute() {} }) };
