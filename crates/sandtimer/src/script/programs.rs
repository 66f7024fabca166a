//! Programs for Node.js: code that is not in a file, and files that are not JavaScript.

use swc_ecma_ast::{
    ArrowExpr, AwaitExpr, Class, ForOfStmt, Function, MetaPropExpr, MetaPropKind, ModuleItem,
};
use swc_ecma_visit::{Visit, VisitWith};

use super::parsed::{Parsed, ecmascript};
use super::reader::{MAX_CODE_BYTES, deep};
use super::syntax_error::SyntaxError;
use super::typescript::javascript;
use crate::model::{InterpretedCommand, NODE_FILE, PROGRAM_FILES, ProgramSource};

/// A program in JavaScript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaScriptProgram {
    /// The source text, without types.
    pub code: String,
    /// Whether it imports, exports or awaits at its top level, which only modules may.
    pub is_module: bool,
}

impl JavaScriptProgram {
    /// That of this code. JavaScript is for Node.js to read.
    ///
    /// # Errors
    /// Where and why it is not TypeScript, if `is_typescript` is set.
    pub fn of(code: &str, is_typescript: bool) -> Result<Self, SyntaxError> {
        let code = if is_typescript { javascript(code)? } else { code.to_owned() };
        Ok(JavaScriptProgram { is_module: is_module(&code), code })
    }

    /// As a reader process replies it.
    pub(super) fn text(&self) -> String {
        format!("{}{}", if self.is_module { 'm' } else { 'c' }, self.code)
    }

    /// Parses the reply of a reader process.
    pub(crate) fn from_reply(text: &str) -> Result<Self, SyntaxError> {
        let code = || text.get(1..).unwrap_or_default().to_owned();
        match text.as_bytes().first() {
            Some(b'm') => Ok(JavaScriptProgram { code: code(), is_module: true }),
            Some(b'c') => Ok(JavaScriptProgram { code: code(), is_module: false }),
            _ => Err(SyntaxError::from_reply(text)),
        }
    }

    /// The command that executes it, which its arguments may follow.
    ///
    /// Node.js takes a module from stdin, or from an argument, as one of the working directory; of
    /// a file it would take imports from the directory of the file. What is required before it
    /// (`program_file.cjs`) has it read the file in place of stdin.
    pub fn interpreted(self) -> InterpretedCommand {
        let JavaScriptProgram { code, is_module } = self;
        let module = is_module.then_some("--input-type=module");
        let strings =
            |strings: &[&str]| strings.iter().map(|string| (*string).to_owned()).collect::<Vec<_>>();
        let evaluated = format!("--eval={code}");
        let argument = ["node"].into_iter().chain(module).chain([evaluated.as_str(), "--"]);
        let argument = argument.map(str::to_owned).collect();
        let require = format!("--require={NODE_FILE}");
        let [script, source, _] = PROGRAM_FILES;
        let command = match module {
            Some(option) => strings(&["node", &require, option, "-", source]),
            None => strings(&["node", &require, "--preserve-symlinks-main", script]),
        };
        InterpretedCommand::file(argument, command, code)
    }

    /// The command that runs it in place of a file that is not JavaScript, which its arguments may
    /// follow, whether there is a file of that name or not. `path` has no links; one without a
    /// slash is of the directory that Node.js starts in.
    pub fn file_command(self, path: &str) -> InterpretedCommand {
        let format = if self.is_module { "module" } else { "commonjs" };
        // JSON is JavaScript.
        let first = format!(
            "import {{ closeSync, readFileSync }} from 'node:fs'; import {{ register }} from 'node:module'; \
             import {{ pathToFileURL }} from 'node:url'; \
             const source = readFileSync({DESCRIPTOR}, 'utf8'); closeSync({DESCRIPTOR}); \
             register('data:text/javascript,' + encodeURIComponent({}), \
             {{ data: {{ url: pathToFileURL({}).href, format: {format:?}, source }} }});",
            serde_json::json!(HOOKS),
            serde_json::json!(path),
        );
        let import = format!("--import=data:text/javascript,{}", percent_encoded(&first));
        InterpretedCommand {
            command: vec!["node".to_owned(), import, path.to_owned()],
            program: Some(ProgramSource::at_descriptor(self.code)),
        }
    }
}

/// Where the code that takes a file's place is read from.
const DESCRIPTOR: i32 = 3;
/// Gives the code in place of the file.
const HOOKS: &str = "let given; export const initialize = (data) => { given = data; }; \
     export const resolve = (name, context, next) => name !== given.url ? next(name, context) : \
     { shortCircuit: true, format: given.format, url: name }; \
     export const load = (url, context, next) => url !== given.url ? next(url, context) : \
     { shortCircuit: true, format: given.format, source: given.source };";

/// Whether code imports, exports or awaits at its top level, which only modules may.
fn is_module(code: &str) -> bool {
    if !["import", "export", "await"].iter().any(|keyword| code.contains(keyword)) {
        return false;
    }
    if code.len() > MAX_CODE_BYTES {
        return code.lines().any(is_module_line);
    }
    let found = deep(code, false, |code| {
        let parsed = Parsed::read(code, ecmascript())?;
        let mut search = ModuleSearch(false);
        parsed.module.visit_with(&mut search);
        Ok(search.0)
    });
    found.unwrap_or(false)
}

/// A line as only modules have it, of code that is too long to be read.
fn is_module_line(line: &str) -> bool {
    let is_outermost = !line.starts_with(char::is_whitespace);
    let begins = ["import ", "import{", "export ", "export{"].iter().any(|keyword| line.starts_with(keyword));
    is_outermost && (begins || line.contains("await ") && !line.contains("function") && !line.contains("=>"))
}

struct ModuleSearch(bool);

impl Visit for ModuleSearch {
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
