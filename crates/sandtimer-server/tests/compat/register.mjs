// Loads the package in Node: `cloudflare:workers`, which only exists inside Workers, is a stub; everything else is unmodified.
import { register } from "node:module";

register("./hooks.mjs", import.meta.url);
