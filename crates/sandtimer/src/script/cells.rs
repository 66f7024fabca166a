//! Cells: pieces of one program, which has no modules' syntax. Their imports become expressions,
//! with the same bindings.

use swc_common::Spanned;
use swc_ecma_ast::{
    CallExpr, Callee, DefaultDecl, ImportDecl, ImportSpecifier, ModuleDecl, ModuleExportName, ModuleItem,
};
use swc_ecma_visit::{Visit, VisitWith};

use super::parsed::{Edits, Parsed, ecmascript};
use super::reader::deep;
use super::syntax_error::SyntaxError;
use super::typescript::javascript;

/// The replacement of `import`, of the same length; the interpreter's program defines it.
const IMPORT: &str = "_$imp_";

/// The text of a cell as the interpreter is sent it: an `x` and JavaScript, or an `e`, the place of
/// a syntax error, and on the next line what it is. JavaScript that cannot be parsed here is sent
/// as it is, and the interpreter reports the error.
pub(crate) fn cell(source: &str, is_typescript: bool) -> String {
    let code = if is_typescript { javascript(source) } else { Ok(source.to_owned()) };
    let code = match code {
        Ok(code) => code,
        Err(error) => return error.text(),
    };
    if !code.contains("import") && !code.contains("export") {
        return format!("x{code}");
    }
    let script = deep(&code, false, as_script);
    format!("x{}", script.unwrap_or(code))
}

fn as_script(code: &str) -> Result<String, SyntaxError> {
    let parsed = Parsed::read(code, ecmascript())?;
    let mut cell = CellRewrite { code, parsed: &parsed, edits: Edits::default() };
    parsed.module.visit_with(&mut cell);
    Ok(cell.edits.apply(code))
}

struct CellRewrite<'a> {
    code: &'a str,
    parsed: &'a Parsed,
    edits: Edits,
}

impl CellRewrite<'_> {
    fn text(&self, span: swc_common::Span) -> &str {
        &self.code[self.parsed.byte_range(span)]
    }

    fn name(&self, name: &ModuleExportName) -> String {
        self.text(name.span()).to_owned()
    }

    /// `import a, { b as c } from 'd'` with the bindings that it makes.
    fn import(&mut self, found: &ImportDecl) {
        let with = found
            .with
            .as_ref()
            .map_or(String::new(), |with| format!(", {{ with: {} }}", self.text(with.span)));
        let module = format!("await {IMPORT}({}{with})", self.text(found.src.span));
        let (mut whole, mut named) = (None, Vec::new());
        for specifier in &found.specifiers {
            match specifier {
                ImportSpecifier::Namespace(all) => whole = Some(all.local.sym.to_string()),
                ImportSpecifier::Default(one) => named.push(format!("default: {}", one.local.sym)),
                ImportSpecifier::Named(one) => {
                    let imported = one.imported.as_ref().map(|name| self.name(name));
                    named.push(match imported {
                        Some(imported) => format!("{imported}: {}", one.local.sym),
                        None => one.local.sym.to_string(),
                    });
                }
            }
        }
        let named = named.join(", ");
        let text = match (whole, named.is_empty()) {
            (None, true) => format!("{module};"),
            (None, false) => format!("const {{ {named} }} = {module};"),
            (Some(whole), true) => format!("const {whole} = {module};"),
            (Some(whole), false) => format!("const {whole} = {module}, {{ {named} }} = {whole};"),
        };
        self.edits.replace(self.code, self.parsed.byte_range(found.span), &text);
    }

    /// Turns an export into a plain declaration: no other module imports from a cell.
    fn export(&mut self, found: &ModuleDecl) {
        let whole = self.parsed.byte_range(found.span());
        let (rest, is_value) = match found {
            ModuleDecl::ExportDecl(declared) => (declared.decl.span(), false),
            ModuleDecl::ExportDefaultExpr(value) => (value.expr.span(), true),
            ModuleDecl::ExportDefaultDecl(declared) => match &declared.decl {
                DefaultDecl::Class(class) => (class.span(), class.ident.is_none()),
                DefaultDecl::Fn(function) => (function.span(), function.ident.is_none()),
                DefaultDecl::TsInterfaceDecl(interface) => (interface.span, false),
            },
            _ => {
                self.edits.blank(self.code, whole);
                return;
            }
        };
        let rest = self.parsed.byte_range(rest);
        if is_value {
            // A value, separated from the code before and after it: without a name there is nothing
            // to declare.
            self.edits.replace(self.code, whole.start..whole.start + 2, ";(");
            self.edits.blank(self.code, whole.start + 2..rest.start);
            self.edits.replace(self.code, rest.end..rest.end, ");");
        } else {
            self.edits.blank(self.code, whole.start..rest.start);
        }
    }
}

impl Visit for CellRewrite<'_> {
    fn visit_module_item(&mut self, found: &ModuleItem) {
        match found {
            ModuleItem::ModuleDecl(ModuleDecl::Import(import)) => self.import(import),
            ModuleItem::ModuleDecl(export) => self.export(export),
            ModuleItem::Stmt(_) => {}
        }
        found.visit_children_with(self);
    }

    fn visit_call_expr(&mut self, found: &CallExpr) {
        if let Callee::Import(import) = &found.callee {
            let start = self.parsed.byte_range(import.span).start;
            self.edits.replace(self.code, start..start + IMPORT.len(), IMPORT);
        }
        found.visit_children_with(self);
    }
}
