export async function resolve(specifier, context, next) {
  if (specifier === "cloudflare:workers") {
    return { url: new URL("./workers.mjs", import.meta.url).href, shortCircuit: true };
  }
  try {
    return await next(specifier, context);
  } catch (error) {
    // The package is written for bundlers, which find files without their extension.
    if (error.code !== "ERR_MODULE_NOT_FOUND" || !specifier.startsWith(".")) throw error;
    return next(`${specifier}.js`, context);
  }
}
