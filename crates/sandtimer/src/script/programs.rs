//! Programs for Node.js: code that is not in a file.

use swc_ecma_ast::{
    ArrowExpr, AwaitExpr, Class, ForOfStmt, Function, MetaPropExpr, MetaPropKind, ModuleItem,
};
use swc_ecma_visit::{Visit, VisitWith};

use super::{Parsed, SyntaxError, deep, ecmascript, javascript};

/// The command that runs this code, which its arguments may follow.
///
/// # Errors
/// Where and why it is no TypeScript, if it is said to be that. JavaScript is for Node.js to read.
pub fn command(code: &str, is_typescript: bool) -> Result<Vec<String>, SyntaxError> {
    let code = if is_typescript { javascript(code)? } else { code.to_owned() };
    let mut command = vec!["node".to_owned()];
    if is_module(&code) {
        command.push("--input-type=module".to_owned());
    }
    command.extend([format!("--eval={code}"), "--".to_owned()]);
    Ok(command)
}

/// Whether code imports, exports or awaits at its top level, which only modules may.
pub(super) fn is_module(code: &str) -> bool {
    if !["import", "export", "await"].iter().any(|word| code.contains(word)) {
        return false;
    }
    let found = deep(code, |code| {
        let parsed = Parsed::read(code, ecmascript())?;
        let mut search = Search(false);
        parsed.module.visit_with(&mut search);
        Ok(search.0)
    });
    found.unwrap_or(false)
}

struct Search(bool);

impl Visit for Search {
    fn visit_module_item(&mut self, found: &ModuleItem) {
        self.0 |= found.is_module_decl();
        found.visit_children_with(self);
    }

    fn visit_await_expr(&mut self, _: &AwaitExpr) {
        self.0 = true;
    }

    fn visit_for_of_stmt(&mut self, found: &ForOfStmt) {
        self.0 |= found.is_await;
        found.visit_children_with(self);
    }

    fn visit_meta_prop_expr(&mut self, found: &MetaPropExpr) {
        self.0 |= found.kind == MetaPropKind::ImportMeta;
    }

    // What a function awaits, its module does not.
    fn visit_function(&mut self, _: &Function) {}

    fn visit_arrow_expr(&mut self, _: &ArrowExpr) {}

    fn visit_class(&mut self, _: &Class) {}
}

/// The command that runs a TypeScript file, which its arguments may follow: Node.js finds the file where it is, and reads what stands
/// here instead. `path` has no links.
///
/// # Errors
/// Where and why it is no TypeScript.
pub fn file_command(source: &str, path: &str) -> Result<Vec<String>, SyntaxError> {
    let code = javascript(source)?;
    let format = if is_module(&code) { "module" } else { "commonjs" };
    // JSON is JavaScript.
    let hooks = format!(
        "import {{ pathToFileURL }} from 'node:url'; const file = pathToFileURL({}).href; \
         const module = {{ shortCircuit: true, format: {format:?}, source: {} }}; \
         export const load = (url, context, next) => (url === file ? module : next(url, context));",
        serde_json::json!(path),
        serde_json::json!(code),
    );
    let first = format!(
        "import {{ register }} from 'node:module'; register('data:text/javascript,' + encodeURIComponent({}));",
        serde_json::json!(hooks)
    );
    let import = format!("--import=data:text/javascript,{}", percent_encoded(&first));
    Ok(vec!["node".to_owned(), import, path.to_owned()])
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~!*'()".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
