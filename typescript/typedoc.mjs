/**
 * A plugin of TypeDoc for the reference: comments of the generated types are their `@description`, what they inherit from the
 * generated schemas is their own, and parameters that are taken apart at once are called `options`.
 */

import { Converter } from "typedoc";
import { MarkdownPageEvent } from "typedoc-plugin-markdown";

// After TypeDoc's own handlers.
const PRIORITY = -10_000;

export function load(app) {
  const tidy = (context) => {
    for (const reflection of Object.values(context.project.reflections)) {
      const description = reflection.comment?.getTag("@description");
      if (description !== undefined) {
        reflection.comment.summary = description.content;
        reflection.comment.removeTags("@description");
      }
      if (reflection.typeHierarchy?.types.every((type) => type.name === "Schema")) {
        delete reflection.extendedTypes;
        delete reflection.typeHierarchy;
      }
      if (reflection.inheritedFrom?.name.startsWith("Schema.")) delete reflection.inheritedFrom;
      if (reflection.name === "__namedParameters") reflection.name = "options";
    }
  };
  app.converter.on(Converter.EVENT_RESOLVE_END, tidy, PRIORITY);
  app.renderer.on(MarkdownPageEvent.END, (page) => {
    // Not every Markdown has this escape.
    page.contents = page.contents.replaceAll("\\<", "&lt;");
  });
}
